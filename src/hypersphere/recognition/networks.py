"""Networks as embedders see them: features wherever they come from, and networks built to take given tensors."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..config import Call


def embedding(model: nn.Module, x: Tensor) -> Float[Tensor, "b d"]:
    """Return a network's features of a batch: those of its method ``features``, or its output.

    Outputs of ``transformers`` are pooled by the model's own pooler, or by the mean over tokens; maps (b, d, h, w) by the
    mean over positions.

    >>> embedding(torch.nn.Conv2d(3, 8, 3), torch.zeros(2, 3, 5, 5)).shape
    torch.Size([2, 8])
    """
    method = getattr(model, "features", None)
    out: Any = method(x) if callable(method) and not isinstance(method, nn.Module) else model(x)
    if not isinstance(out, Tensor):
        pooled = getattr(out, "pooler_output", None)
        out = pooled if pooled is not None else getattr(out, "last_hidden_state", None)
        if out is None:
            raise ValueError(f"{type(model).__name__} must give features as a tensor, or as an output of transformers")
        if pooled is None and out.ndim == 3:
            out = out.mean(1)
    out = out.flatten(2).mean(2) if out.ndim > 2 else out
    if out.ndim != 2 or not out.is_floating_point():
        raise ValueError(f"{type(model).__name__} must give features of shape (batch, dim), got {tuple(out.shape)}")
    return cast(Tensor, out)


@torch.no_grad()
def feature_dim(model: nn.Module, sample: Tensor) -> int:
    """Return the dimension of a network's features: its ``feature_dim``, or that of its output for a batch."""
    known = getattr(model, "feature_dim", None)
    if isinstance(known, int):
        return known
    training = model.training
    model.eval()
    try:
        return int(embedding(model, sample).shape[1])
    finally:
        model.train(training)


def empty_network(call: Call, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Return the network of a constructor call, holding ``tensors``.

    It is built on the meta device first, where nothing is allocated, and its names and shapes are compared; a difference is
    a ``ValueError``.
    """
    with torch.device("meta"), _NoDraws():
        network = _module(call)
    wanted = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    given = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if wanted != given:
        names = [name for name in {**wanted, **given} if wanted.get(name) != given.get(name)]
        name = names[0]
        raise ValueError(
            f"{len(names)} tensors differ from those of {call.name}, the first is {name}: "
            f"{given.get(name, 'absent')} instead of {wanted.get(name, 'absent')}"
        )
    # Cloned: a tensor read from a file may lie anywhere in memory, and products of unaligned memory differ in their last bits.
    network.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, assign=True)
    left = [name for name, buffer in network.named_buffers() if buffer.is_meta]
    if left or any(parameter.is_meta for parameter in network.parameters()):
        network = _module(call)  # it keeps more than its state says; the sizes are known to be right
        network.load_state_dict(dict(tensors))
    for parameter in network.parameters():
        parameter.requires_grad_(True)
    return network


class _NoDraws(TorchFunctionMode):
    """Skips random numbers for tensors without memory: PyTorch imports its compiler for them, which takes longer than itself."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in DRAWS and args[0].is_meta:
            return args[0]
        return func(*args, **(kwargs or {}))


DRAWS = frozenset({Tensor.normal_, Tensor.uniform_, Tensor.exponential_, Tensor.bernoulli_})


def _module(call: Call) -> nn.Module:
    try:
        network = call.build()
    except (TypeError, RuntimeError, NotImplementedError, OverflowError, MemoryError) as error:
        raise ValueError(f"{call.name} cannot be built: {error}") from error
    if not isinstance(network, nn.Module):
        raise ValueError(f"{call.name} must build a module, got {type(network).__name__}")
    return network
