"""Frozen layers with 8-bit weights: one of our own, and torch's; their rotation acts on the inputs."""

from typing import Any

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn

from ..parametrization import ADAPTER_CHILD
from .adapter import Adapter


class Int8Linear(nn.Module):
    """A frozen linear layer whose neurons are 8-bit integers with a scale each: w_i ≈ s_i q_i, s_i = max|w_i|/127.

    A quarter of the memory of float32, in training too: no floating-point copy outlives its product. Gradients flow to
    the inputs and the bias, not to the weight.

    >>> layer, x = torch.nn.Linear(16, 4), torch.randn(3, 16)
    >>> (Int8Linear.of(layer)(x) - layer(x)).abs().max().item() < 0.05
    True
    """

    weight: Int8[Tensor, "neurons n"]
    scale: Float[Tensor, "neurons 1"]

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("weight", torch.zeros(out_features, in_features, dtype=torch.int8))
        self.register_buffer("scale", torch.ones(out_features, 1))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    @classmethod
    @torch.no_grad()
    def of(cls, layer: nn.Linear) -> "Int8Linear":
        """The quantized twin of a Linear layer."""
        result = cls(layer.in_features, layer.out_features, layer.bias is not None)
        largest = layer.weight.abs().amax(1, keepdim=True)
        result.scale = torch.where(largest > 0, largest / 127, 1)
        result.weight = (layer.weight / result.scale).round().to(torch.int8)
        if layer.bias is not None:
            result.bias = nn.Parameter(layer.bias.detach().clone(), requires_grad=layer.bias.requires_grad)
        return result

    def forward(self, x: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch neurons"]:
        """x Wᵀ + b."""
        y: Tensor = _Int8Product.apply(x, self.weight, self.scale)  # type: ignore[no-untyped-call]
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def dequantize(self) -> Float[Tensor, "neurons n"]:
        """The weight in floating point."""
        return self.weight * self.scale

    def extra_repr(self) -> str:
        """The sizes."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def is_quantized(module: nn.Module) -> bool:
    """Whether this is a linear layer with 8-bit weights that fine-tuning knows."""
    return isinstance(module, Int8Linear) or _is_dynamic(module)


def attach(module: nn.Module, own: Adapter) -> None:
    """Put a rotation before a quantized layer; the layer stays the object it was and changes its class only."""
    module.add_module(ADAPTER_CHILD, own)
    kind = type(module)
    module.__class__ = type(f"Tuned{kind.__name__}", (kind,), {"forward": _forward, "__reduce_ex__": _reduce})


def release(module: nn.Module) -> None:
    """Take the rotation of a quantized layer off."""
    del module._modules[ADAPTER_CHILD]
    module.__class__ = type(module).__bases__[0]


def quantized_weight(module: nn.Module) -> dict[str, Tensor]:
    """The numbers of a quantized weight, for a fingerprint."""
    if isinstance(module, Int8Linear):
        return {"weight": module.weight, "scale": module.scale}
    weight = module.weight()  # type: ignore[operator]
    return {"weight": weight.int_repr(), "dequantized": weight.dequantize()}


class _Int8Product(torch.autograd.Function):
    """x Wᵀ with W made from its integers in either pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(weight, scale)
        return x @ (weight * scale).to(x.dtype).mT

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        weight, scale = ctx.saved_tensors
        return gradient @ (weight * scale).to(gradient.dtype), None, None


class _Dynamic(torch.autograd.Function):
    """torch's quantized product, which has no derivative of its own; the gradient of x is G W."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: nn.Module) -> Tensor:
        ctx.module = module
        return type(module).__bases__[0].forward(module, x)  # type: ignore[no-any-return, attr-defined]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient @ ctx.module.weight().dequantize().to(gradient.dtype), None


def _forward(module: nn.Module, x: Tensor) -> Tensor:
    own = module._modules[ADAPTER_CHILD]
    assert isinstance(own, Adapter)
    turned = own.rotations.inputs(x.reshape(1, -1, x.shape[-1]), transpose=True).reshape(x.shape)
    if isinstance(module, Int8Linear):
        return Int8Linear.forward(module, turned)
    return _Dynamic.apply(turned, module)  # type: ignore[no-any-return, no-untyped-call]


def _reduce(module: nn.Module, protocol: int) -> tuple[Any, ...]:
    return _rebuild, (type(module).__bases__[0], dict(module.__dict__))


def _rebuild(kind: type[nn.Module], state: dict[str, Any]) -> nn.Module:
    module = kind.__new__(kind)
    module.__dict__.update(state)
    module.__class__ = type(f"Tuned{kind.__name__}", (kind,), {"forward": _forward, "__reduce_ex__": _reduce})
    return module


def _is_dynamic(module: nn.Module) -> bool:
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(module).__mro__}
    return "torch.ao.nn.quantized.dynamic.modules.linear.Linear" in kinds and _packed_dtype(module) == torch.qint8


def _packed_dtype(module: nn.Module) -> torch.dtype:
    return module._packed_params.dtype  # type: ignore[union-attr, return-value]
