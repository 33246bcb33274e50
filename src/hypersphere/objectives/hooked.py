"""One chunk of a large head whose scores go through hooks: any φ, any g, by automatic differentiation of the chunk."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .scores import Features, Scores


class HookedParts:
    """The scores of a chunk by the same definition as the dense path's, with each chunk's graph made and used up in the backward pass.

    Learned parameters of the margin and of g get their gradients; buffers are kept as they were in the forward pass, as a margin may
    have moved its statistics before the backward pass runs.
    """

    def __init__(self, scores: Scores):
        self.scores, self.sub_centers = scores, scores.sub_centers
        self.hooks = _Hooks(scores)
        named = dict(self.hooks.named_parameters())
        self.names, self.parameters = list(named), list(named.values())
        self.buffers = {name: buffer.clone() for name, buffer in self.hooks.named_buffers()}

    def open(self, weight: Tensor) -> None:
        """Nothing is kept between the passes."""

    def logits(self, part: slice, weight: Tensor, bias: Tensor | None, *tensors: Tensor) -> Tensor:
        """z of the classes in ``part``, a new tensor."""
        rows = weight.unflatten(0, (-1, self.sub_centers))[part].flatten(0, 1)
        return self._scores(part, rows, None if bias is None else bias[part], *tensors)

    def open_backward(self, weight: Tensor, bias: Tensor | None, needs: Sequence[bool], *tensors: Tensor) -> None:
        """Room for the gradients that are wanted, and leaves for autograd to differentiate by."""
        self.d_weight = torch.empty_like(weight) if needs[0] else None
        self.d_bias = torch.empty_like(bias) if bias is not None and needs[1] else None
        self.leaves = [t.detach().requires_grad_(need) for t, need in zip(tensors, needs[2:], strict=True)]
        self.sums = [torch.zeros_like(t) if need else None for t, need in zip(tensors, needs[2:], strict=True)]

    def logits_again(self, part: slice, weight: Tensor, bias: Tensor | None, *tensors: Tensor) -> Tensor:
        """The same, with its graph."""
        self.rows = weight.unflatten(0, (-1, self.sub_centers))[part].flatten(0, 1).detach().requires_grad_(self.d_weight is not None)
        self.shift = None if bias is None else bias[part].detach().requires_grad_(self.d_bias is not None)
        with torch.enable_grad():
            self.graph = self._scores(part, self.rows, self.shift, *self.leaves)
        return self.graph.detach()

    def pull(self, part: slice, z: Tensor, d: Tensor, weight: Tensor, bias: Tensor | None, *tensors: Tensor) -> None:
        """Pull ∂L/∂z back through the chunk's graph."""
        wanted = [t for t in (self.rows, self.shift, *self.leaves) if t is not None and t.requires_grad]
        found = dict(zip(map(id, wanted), torch.autograd.grad(self.graph, wanted, d, allow_unused=True), strict=True))
        if self.d_weight is not None:
            self.d_weight.unflatten(0, (-1, self.sub_centers))[part] = found[id(self.rows)].unflatten(0, (-1, self.sub_centers))
        if self.d_bias is not None:
            self.d_bias[part] = found[id(self.shift)]
        for leaf, total in zip(self.leaves, self.sums, strict=True):
            gradient = found.get(id(leaf))
            if total is not None and gradient is not None:
                total += gradient

    def close(self) -> tuple[Tensor | None, ...]:
        """The gradients of weight, bias and the other tensors; the graphs are given up."""
        gradients = (self.d_weight, self.d_bias, *self.sums)
        del self.d_weight, self.d_bias, self.sums, self.leaves, self.rows, self.shift, self.graph
        return gradients

    def _scores(
        self, part: slice, rows: Tensor, bias: Tensor | None, directions: Tensor, norms: Tensor, scale: Tensor, target: Tensor, *own: Tensor
    ) -> Tensor:
        x = Features(directions, norms, scale, scale.unsqueeze(-1) * directions)
        state = {**self.buffers, **dict(zip(self.names, own, strict=True))}
        return functional_call(self.hooks, state, (part, rows.to(directions.dtype), bias, x, target))


class _Hooks(nn.Module):
    """The modules behind the scores, so that they can be called with other parameters and buffers than they hold."""

    def __init__(self, scores: Scores):
        super().__init__()
        self.margin, self.angular, self.scores = scores.margin, scores.angular, scores

    def forward(self, part: slice, weight: Tensor, bias: Tensor | None, x: Features, target: Tensor) -> Tensor:
        return self.scores(part, weight, bias, x, target)
