"""One chunk of a large head whose scores go through hooks: any φ, any g, by automatic differentiation from the cosines on."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..geometry import norm
from .cosines import CosineParts
from .scores import Features, Scores, scores_of_cosines


class HookedParts:
    """The scores of a chunk by the same definition as the dense path's; its graph is made and used up in the backward pass.

    The cosines and their gradient are :class:`CosineParts`'. Learned parameters of the margin and of g get their gradients; buffers
    are kept as they were in the forward pass, as a margin may have moved its statistics before the backward pass runs.
    """

    def __init__(self, scores: Scores, keep: bool):
        self.cosines = CosineParts(scores.sub_centers, True, scores.matmul_dtype, keep, bounded=not scores.weight_norm)
        self.sub_centers, self.weight_norm = scores.sub_centers, scores.weight_norm
        self.hooks = _Hooks(scores)
        named = dict(self.hooks.named_parameters())
        self.names, self.parameters = list(named), list(named.values())
        self.buffers = {name: buffer.clone() for name, buffer in self.hooks.named_buffers()}

    def open(self, weight: Tensor, dtype: torch.dtype) -> None:
        """Room for the inverse norms."""
        self.cosines.open(weight, dtype)

    def logits(self, part: slice, weight: Tensor, bias: Tensor | None, directions: Tensor, *tensors: Tensor) -> Tensor:
        """z of the classes in ``part``, a new tensor."""
        self.cos = self.cosines.logits(part, weight, None, directions)
        return self._scores(
            part, self.cos, self._lengths(part, weight), None if bias is None else bias[part], directions, *tensors
        )

    def keep(self, part: slice, z: Tensor) -> None:
        """Hold on to the cosines, if they are few."""
        self.cosines.keep(part, self.cos)

    def open_backward(self, weight: Tensor, bias: Tensor | None, needs: Sequence[bool], *tensors: Tensor) -> None:
        """Room for the gradients that are wanted, and leaves for autograd to differentiate by."""
        self.cosines.open_backward(weight, None, (needs[0], False, needs[2]), tensors[0])
        self.d_bias = torch.empty_like(bias) if bias is not None and needs[1] else None
        # The directions act through the cosines alone; what remains are norms, scale, target and the parameters.
        self.leaves = [t.detach().requires_grad_(need) for t, need in zip(tensors[1:], needs[3:], strict=True)]
        self.sums = [torch.zeros_like(t) if need else None for t, need in zip(tensors[1:], needs[3:], strict=True)]

    def logits_again(
        self, part: slice, weight: Tensor, bias: Tensor | None, directions: Tensor, *tensors: Tensor
    ) -> Tensor:
        """The same, with its graph."""
        self.cos = self.cosines.logits_again(part, weight, None, directions).detach().requires_grad_()
        lengths, shift = self._lengths(part, weight), None if bias is None else bias[part].detach()
        self.lengths = None if lengths is None else lengths.requires_grad_()
        self.shift = None if shift is None else shift.requires_grad_(self.d_bias is not None)
        with torch.enable_grad():
            self.graph = self._scores(part, self.cos, self.lengths, self.shift, directions, *self.leaves)
        return self.graph.detach()

    def pull(
        self,
        part: slice,
        z: Tensor,
        d: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        directions: Tensor,
        *tensors: Tensor,
    ) -> None:
        """Pull ∂L/∂z back to the cosines and on to the weights, and to everything else the scores depend on."""
        wanted = [t for t in (self.cos, self.lengths, self.shift, *self.leaves) if t is not None and t.requires_grad]
        found = dict(zip(map(id, wanted), torch.autograd.grad(self.graph, wanted, d, allow_unused=True), strict=True))
        self.cosines.pull(part, self.cos.detach(), found[id(self.cos)], weight, None, directions)
        if self.cosines.d_weight is not None and self.lengths is not None and self.cosines.inverse is not None:
            along = found[id(self.lengths)] * self.cosines.inverse[part].squeeze(-1)
            self.cosines.d_weight[part].addcmul_(weight[part], along.unsqueeze(-1).to(weight.dtype))
        if self.d_bias is not None:
            self.d_bias[part] = found[id(self.shift)]
        for leaf, total in zip(self.leaves, self.sums, strict=True):
            gradient = found.get(id(leaf))
            if total is not None and gradient is not None:
                total += gradient

    def close(self) -> tuple[Tensor | None, ...]:
        """The gradients of weight, bias, directions and the other tensors; the graphs are given up."""
        d_weight, _, d_directions = self.cosines.close()
        gradients = (d_weight, self.d_bias, d_directions, *self.sums)
        del self.d_bias, self.sums, self.leaves, self.cos, self.lengths, self.shift, self.graph
        return gradients

    def _lengths(self, part: slice, weight: Tensor) -> Tensor | None:
        return norm(weight[part].to(self.cos.dtype)) if self.weight_norm else None

    def _scores(
        self,
        part: slice,
        cos: Tensor,
        lengths: Tensor | None,
        bias: Tensor | None,
        directions: Tensor,
        norms: Tensor,
        scale: Tensor,
        target: Tensor,
        *own: Tensor,
    ) -> Tensor:
        x = Features(directions, norms, scale, directions)
        state = {**self.buffers, **dict(zip(self.names, own, strict=True))}
        return functional_call(self.hooks, state, (part, cos, lengths, bias, x, target))


class _Hooks(nn.Module):
    """The modules behind the scores, so that they can be called with other parameters and buffers than they hold."""

    def __init__(self, scores: Scores):
        super().__init__()
        self.margin, self.angular, self.scores = scores.margin, scores.angular, scores

    def forward(
        self, part: slice, cos: Tensor, lengths: Tensor | None, bias: Tensor | None, x: Features, target: Tensor
    ) -> Tensor:
        return scores_of_cosines(self.scores, part, cos, lengths, bias, x, target)
