"""Frozen linear layers with 8-bit or 4-bit weights, and learned changes around them and around torch's quantized layers."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float, Int8, UInt8
from torch import Tensor, nn

from ..parametrization import ADAPTER_CHILD
from .adapter import Adapter

MAX_DECODED_NUMBERS = 2**18  # numbers of a weight that are decoded at a time: 1 MiB of float32
INT4_GROUP = 64  # numbers that share a scale, as in QLoRA (arXiv:2305.14314)


class QuantizedLinear(nn.Module, ABC):
    """A frozen linear layer whose weight is stored as small integers and scales.

    Products decode at most 2¹⁸ numbers of the weight at a time, forward and backward, so the whole weight never exists in
    floating point. Gradients flow to the inputs and the bias.

    Args:
        in_features: Length of a neuron.
        out_features: Number of neurons.
        bias: Whether the layer has a bias.
    """

    weight: Tensor
    scale: Tensor

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        for name, value in self.encode(torch.zeros(out_features, in_features)).items():
            self.register_buffer(name, value)
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    @staticmethod
    @abstractmethod
    def encode(weight: Float[Tensor, "neurons n"]) -> dict[str, Tensor]:
        """Return the integers and the scales of a weight by buffer name."""

    @staticmethod
    @abstractmethod
    def decode(weight: Tensor, scale: Tensor, numbers: int) -> Float[Tensor, "rows n"]:
        """Return rows of length ``numbers`` in floating point."""

    @classmethod
    @torch.no_grad()
    def of(cls, layer: nn.Linear) -> "QuantizedLinear":
        """Return a quantized copy of a Linear layer.

        Args:
            layer: The layer, which is not changed.

        Returns:
            A layer with the rounded weight and a copy of the bias.
        """
        result = cls(layer.in_features, layer.out_features, layer.bias is not None)
        for name, value in cls.encode(layer.weight).items():
            setattr(result, name, value)
        if layer.bias is not None:
            result.bias = nn.Parameter(layer.bias.detach().clone(), requires_grad=layer.bias.requires_grad)
        return result

    def forward(self, x: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch neurons"]:
        """Return x Wᵀ + b."""
        y: Tensor = _Product.apply(x, self.weight, self.scale, self)  # type: ignore[no-untyped-call]
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def dequantize(self) -> Float[Tensor, "neurons n"]:
        """Return the whole weight in floating point."""
        return self.decode(self.weight, self.scale, self.in_features)

    def extra_repr(self) -> str:
        """Describe the sizes."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Int8Linear(QuantizedLinear):
    """A frozen linear layer with 8-bit integers and one scale per neuron: w_i ≈ s_i q_i, s_i = max|w_i|/127.

    It takes a quarter of the memory of float32. Use it to tune a model that does not fit into memory in floating point.

    >>> layer, x = torch.nn.Linear(16, 4), torch.randn(3, 16)
    >>> (Int8Linear.of(layer)(x) - layer(x)).abs().max().item() < 0.05
    True
    """

    @staticmethod
    def encode(weight: Float[Tensor, "neurons n"]) -> dict[str, Tensor]:
        """Return one integer for each number and one scale for each neuron."""
        largest = weight.abs().amax(1, keepdim=True)
        scale = torch.where(largest > 0, largest / 127, 1)
        return {"weight": (weight / scale).round().to(torch.int8), "scale": scale}

    @staticmethod
    def decode(weight: Int8[Tensor, "rows n"], scale: Float[Tensor, "rows 1"], numbers: int) -> Float[Tensor, "rows n"]:
        """Return s_i q_i."""
        return weight * scale


class Int4Linear(QuantizedLinear):
    """A frozen linear layer with 4-bit integers, two per byte, and one scale for every 64 numbers of a neuron.

    w ≈ s q with q from −7 to 7 and s = max|w|/7 over the 64 numbers. It takes 4.5 bits per number. Use it if 8 bits per
    number do not fit into memory; the rounding is 18 times coarser.

    >>> layer, x = torch.nn.Linear(100, 4), torch.randn(3, 100)
    >>> (Int4Linear.of(layer)(x) - layer(x)).abs().max().item() < 0.5
    True
    """

    @staticmethod
    def encode(weight: Float[Tensor, "neurons n"]) -> dict[str, Tensor]:
        """Return two integers per byte and one scale per group of numbers; the last group is padded with zeros."""
        padded = nn.functional.pad(weight, (0, -weight.shape[1] % INT4_GROUP))
        groups = padded.unflatten(1, (-1, INT4_GROUP))
        largest = groups.abs().amax(2, keepdim=True)
        scale = torch.where(largest > 0, largest / 7, 1)
        codes = ((groups / scale).round() + 8).to(torch.uint8).flatten(1)
        return {"weight": codes[:, 0::2] | (codes[:, 1::2] << 4), "scale": scale.squeeze(2)}

    @staticmethod
    def decode(
        weight: UInt8[Tensor, "rows bytes"], scale: Float[Tensor, "rows groups"], numbers: int
    ) -> Float[Tensor, "rows n"]:
        """Return the numbers without the padding."""
        codes = torch.stack([weight & 15, weight >> 4], -1).flatten(1).to(scale.dtype).sub_(8)
        return codes.unflatten(1, (-1, INT4_GROUP)).mul_(scale.unsqueeze(2)).flatten(1)[:, :numbers]


def is_quantized(module: nn.Module) -> bool:
    """Return whether this is a linear layer with a quantized weight that fine-tuning supports."""
    return isinstance(module, QuantizedLinear) or _is_dynamic(module)


def attach(module: nn.Module, adapter: Adapter) -> None:
    """Put a learned change around a quantized layer. The layer remains the same object; only its class changes."""
    module.add_module(ADAPTER_CHILD, adapter)
    _derive_class(module)


def release(module: nn.Module) -> None:
    """Remove the learned change of a quantized layer."""
    del module._modules[ADAPTER_CHILD]
    module.__class__ = type(module).__bases__[0]


def get_quantized_weight(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a quantized weight, for a fingerprint."""
    if isinstance(module, QuantizedLinear):
        return {"weight": module.weight, "scale": module.scale}
    weight = module.weight()  # type: ignore[operator]
    return {"weight": weight.int_repr(), "dequantized": weight.dequantize()}


class _Product(torch.autograd.Function):
    """x Wᵀ, where both passes decode a few rows of W at a time. The gradient of x is G W for the gradient G of the product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, scale: Tensor, layer: QuantizedLinear) -> Tensor:
        ctx.save_for_backward(weight, scale)
        ctx.layer = layer
        y = x.new_empty(*x.shape[:-1], layer.out_features)
        for rows in _list_row_slices(layer):
            y[..., rows] = x @ layer.decode(weight[rows], scale[rows], layer.in_features).to(x.dtype).mT
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        weight, scale = ctx.saved_tensors
        layer = ctx.layer
        result = gradient.new_zeros(*gradient.shape[:-1], layer.in_features)
        for rows in _list_row_slices(layer):
            decoded = layer.decode(weight[rows], scale[rows], layer.in_features).to(gradient.dtype)
            result += gradient[..., rows] @ decoded
        return result, None, None, None


class _Dynamic(torch.autograd.Function):
    """torch's quantized product, which has no derivative. The gradient of x is G W, with the whole weight W decoded."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: nn.Module) -> Tensor:
        ctx.module = module
        return type(module).__bases__[0].forward(module, x)  # type: ignore[no-any-return, attr-defined]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient @ ctx.module.weight().dequantize().to(gradient.dtype), None


def _list_row_slices(layer: QuantizedLinear) -> list[slice]:
    rows = max(1, MAX_DECODED_NUMBERS // layer.in_features)
    return [slice(first, first + rows) for first in range(0, layer.out_features, rows)]


def _forward(module: nn.Module, x: Tensor) -> Tensor:
    adapter = module._modules[ADAPTER_CHILD]
    assert isinstance(adapter, Adapter)
    if isinstance(module, QuantizedLinear):
        return adapter.change.compute_around(x, lambda inputs: QuantizedLinear.forward(module, inputs), module.bias)
    bias = module.bias()  # type: ignore[operator]
    return adapter.change.compute_around(x, lambda inputs: _Dynamic.apply(inputs, module), bias)  # type: ignore[no-any-return, no-untyped-call]


def _reduce(module: nn.Module, protocol: int) -> tuple[Any, ...]:
    return _rebuild, (type(module).__bases__[0], dict(module.__dict__))


def _rebuild(kind: type[nn.Module], state: dict[str, Any]) -> nn.Module:
    module = kind.__new__(kind)
    module.__dict__.update(state)
    _derive_class(module)
    return module


def _derive_class(module: nn.Module) -> None:
    """Give a module a class with the forward of a tuned layer, and with a way to pickle a class of this process."""
    kind = type(module)
    module.__class__ = type(f"Tuned{kind.__name__}", (kind,), {"forward": _forward, "__reduce_ex__": _reduce})


def _is_dynamic(module: nn.Module) -> bool:
    """Return whether this is torch's dynamically quantized Linear layer with 8 bits, without importing its package."""
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(module).__mro__}
    is_dynamic = "torch.ao.nn.quantized.dynamic.modules.linear.Linear" in kinds
    return is_dynamic and module._packed_params.dtype == torch.qint8  # type: ignore[union-attr]
