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

MIN_MULTIPLICATIONS = 2**22  # oneDNN needs 10 µs more for each product, and 0.5 ms more for the first of a shape
FASTER_BY_COLUMNS = (2, 3, 4)  # rows or columns for which MKL is limited by memory alone; for oneDNN it is one only
_PLAIN = (Tensor, nn.Parameter)


def matmul(a: Float[Tensor, "n k"], b: Float[Tensor, "k m"]) -> Float[Tensor, "n m"]:
    """Return ``a @ b``. The last bits may differ from those of PyTorch.

    >>> matmul(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]]))
    tensor([[11.]])
    """
    if a.shape[0] * b.numel() < MIN_MULTIPLICATIONS:  # first, because further checks would slow down small products
        return a @ b
    if torch.compiler.is_compiling() and not _is_exporting() and _suits_onednn(a, b):
        from .opaque_product import multiply  # here, because defining an operation takes milliseconds

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
        _suits_onednn(a, b)
        and type(a) in _PLAIN
        and type(b) in _PLAIN
        and bool(torch.backends.mkldnn.enabled)
        and not needs_graph(a, b)
        and torch.get_float32_matmul_precision() == "highest"
    )


def faster_convolutions() -> AbstractContextManager[object]:
    """Return a context in which 1×1 convolutions use oneDNN on processors where it is faster.

    These convolutions are most of the work of small networks. On one thread, PyTorch computes small ones with MKL unless they are
    dilated. Dilation has no effect on the result of a 1×1 kernel, so it is set here. The last bits may differ.

    >>> layer, x = torch.nn.Conv2d(8, 4, 1), torch.randn(1, 8, 5, 5)
    >>> with torch.no_grad(), faster_convolutions():
    ...     y = layer(x)
    >>> torch.allclose(y, layer(x), atol=1e-6)
    True
    """
    return _Dilated() if is_onednn_faster() and not is_traced() else nullcontext()


class _Dilated(TorchFunctionMode):
    """Calls ``torch.conv2d`` with a dilation for 1×1 kernels, and everything else as it is."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        # The arguments as nn.Conv2d gives them: input, weight, bias, stride, padding, dilation, groups.
        if func is torch.conv2d and len(args) == 7 and tuple(args[1].shape[2:]) == (1, 1):
            args = (*args[:5], (2, 2), args[6])
        return func(*args, **(kwargs or {}))


def is_onednn_faster() -> bool:
    """Return whether this is an AMD processor with AVX-512 and PyTorch has oneDNN in full precision."""
    return _ONEDNN_IS_FASTER


def _suits_onednn(a: Tensor, b: Tensor) -> bool:
    (n, k), m = a.shape, b.shape[1]
    return (
        is_onednn_faster()
        and n * k * m >= MIN_MULTIPLICATIONS
        and min(n, m) not in FASTER_BY_COLUMNS
        and a.dtype == b.dtype == torch.float32
        and a.device.type == b.device.type == "cpu"
    )


def _find_onednn() -> bool:
    """Return the answer of :func:`is_onednn_faster` for this machine."""
    lowered = any(f"{library}_DEFAULT_FPMATH_MODE" in os.environ for library in ("ONEDNN", "DNNL"))
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    wide = "AVX512" in torch.backends.cpu.get_cpu_capability()
    return known and wide and not lowered and "AuthenticAMD" in _describe_processor()


def _is_exporting() -> bool:
    """Return whether a graph is, or may be, exported for other programs, which know only PyTorch's own operations."""
    return not hasattr(torch.compiler, "is_exporting") or torch.compiler.is_exporting()  # since PyTorch 2.7


def _describe_processor() -> str:
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()


_ONEDNN_IS_FASTER = _find_onednn()
