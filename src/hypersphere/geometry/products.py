"""Large matrix products and 1×1 convolutions in float32, computed by the faster of PyTorch's two CPU libraries, MKL and oneDNN.

PyTorch computes float32 products with MKL and convolutions with oneDNN. On AMD processors, oneDNN uses AVX-512 and MKL does not, so
products of 10⁷ multiplications and more take about half the time with oneDNN. Both compute in float32.
The choice depends only on the machine and the shapes, never on a measurement, so that equal runs give equal numbers.
"""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .numerics import is_traced, needs_graph

MIN_MULTIPLICATIONS = 2**22
"""Smaller products use MKL, because oneDNN takes 10 µs more per product, and 0.5 ms more for the first product of a shape."""
FASTER_SIZES_OF_MKL = (2, 3, 4)
"""Numbers of rows or columns with which MKL is faster, because only memory limits its speed."""
PLAIN_TYPES = (Tensor, nn.Parameter)
"""Types of tensors that oneDNN may get. Other types may override operations."""


def matmul(a: Float[Tensor, "n k"], b: Float[Tensor, "k m"]) -> Float[Tensor, "n m"]:
    """Return ``a @ b``. The last bits may differ from those of PyTorch.

    >>> matmul(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]]))
    tensor([[11.]])
    """
    if (
        a.shape[0] * b.numel() < MIN_MULTIPLICATIONS
    ):  # the only check for small products, which more checks would slow down
        return a @ b
    if torch.compiler.is_compiling() and not _is_exporting() and _is_large_product(a, b):
        from .opaque_product import multiply  # imported here, because defining an operation takes milliseconds

        opaque: Tensor = multiply(a, b)
        return opaque
    if uses_onednn(a, b):
        product: Tensor = torch.ops.mkldnn._linear_pointwise(a, b.T, None, "none", [], "")
        return product
    return a @ b


def uses_onednn(a: Float[Tensor, "n k"], b: Float[Tensor, "k m"]) -> bool:
    """Return whether :func:`matmul` computes this product with oneDNN.

    >>> uses_onednn(torch.eye(2), torch.eye(2))
    False
    """
    return (
        _is_large_product(a, b)
        and type(a) in PLAIN_TYPES
        and type(b) in PLAIN_TYPES
        and bool(torch.backends.mkldnn.enabled)
        and not needs_graph(a, b)
        and torch.get_float32_matmul_precision() == "highest"
    )


def faster_convolutions() -> AbstractContextManager[object]:
    """Return a context in which 1×1 convolutions use oneDNN on processors where it is faster.

    These convolutions take most of the time of small networks. On one thread, PyTorch computes small ones with MKL unless they
    are dilated. A dilation does not change the result of a 1×1 kernel, so the context sets one. The last bits may differ.

    >>> layer, x = torch.nn.Conv2d(8, 4, 1), torch.randn(1, 8, 5, 5)
    >>> with torch.no_grad(), faster_convolutions():
    ...     y = layer(x)
    >>> torch.allclose(y, layer(x), atol=1e-6)
    True
    """
    return _Dilated() if is_onednn_faster() and not is_traced() else nullcontext()


class _Dilated(TorchFunctionMode):
    """Calls ``torch.conv2d`` with a dilation for 1×1 kernels, and all other functions unchanged."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        # nn.Conv2d passes these arguments: input, weight, bias, stride, padding, dilation, groups.
        if func is torch.conv2d and len(args) == 7 and tuple(args[1].shape[2:]) == (1, 1):
            args = (*args[:5], (2, 2), args[6])
        return func(*args, **(kwargs or {}))


def is_onednn_faster() -> bool:
    """Return whether this is an AMD processor with AVX-512 and PyTorch has oneDNN in full precision."""
    return _ONEDNN_IS_FASTER


def _is_large_product(a: Tensor, b: Tensor) -> bool:
    (n, k), m = a.shape, b.shape[1]
    return (
        is_onednn_faster()
        and n * k * m >= MIN_MULTIPLICATIONS
        and min(n, m) not in FASTER_SIZES_OF_MKL
        and a.dtype == b.dtype == torch.float32
        and a.device.type == b.device.type == "cpu"
    )


def _is_onednn_faster() -> bool:
    """Compute the result of :func:`is_onednn_faster`, which does not change while the program runs."""
    reduced_precision = any(f"{library}_DEFAULT_FPMATH_MODE" in os.environ for library in ("ONEDNN", "DNNL"))
    has_product = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    has_avx512 = "AVX512" in torch.backends.cpu.get_cpu_capability()
    return has_product and has_avx512 and not reduced_precision and "AuthenticAMD" in _describe_processor()


def _is_exporting() -> bool:
    """Return whether a graph may be exported for other programs, which know only PyTorch's own operations."""
    # PyTorch before 2.7 cannot tell.
    return not hasattr(torch.compiler, "is_exporting") or torch.compiler.is_exporting()


def _describe_processor() -> str:
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()


_ONEDNN_IS_FASTER = _is_onednn_faster()
