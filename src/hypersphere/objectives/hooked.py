"""A block of a large head whose scores go through hooks: any φ, any g, differentiated from the cosines on."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from ..geometry import norm
from .chunked import Block, Gradients, Inputs
from .cosines import PlainLogits
from .margins.margin import Sloped
from .part import WHOLE, Portion, classes_of, entered
from .scores import BatchFeatures, Scores, others_with_slope, scores_of_cosines


class HookedLogits:
    """The scores of a block by the same definition as the dense path's; its graph lives in one call of :meth:`pull`.

    It is a :class:`~hypersphere.objectives.chunked.ChunkedLogits`. The cosines and their gradient are those of
    :class:`PlainLogits`. Learned parameters of the margin and of g get their gradients; buffers are those of the moment
    this object was made, as a margin may have moved its statistics before the backward pass runs.

    Args:
        scores: The hooks and how they are used.
        x: The batch.
        target: cos θ of each sample's own class.
        hardest: What the margin asked to know of the other classes, or None.
        part: Which classes the rows are; by default all.
    """

    def __init__(
        self, scores: Scores, x: BatchFeatures, target: Tensor, hardest: Tensor | None = None, part: Portion = WHOLE
    ):
        self.cosines = PlainLogits(scores.sub_centers, True, scores.matmul_dtype, bounded=not scores.weight_norm)
        self.sub_centers, self.weight_norm = scores.sub_centers, scores.weight_norm
        self.hooks, self.part = _Hooks(scores), part
        named = dict(self.hooks.named_parameters())
        self.names = list(named)
        self.buffers = {name: buffer.clone() for name, buffer in self.hooks.named_buffers()}
        self.labels, self.ignored, self.noise = x.labels, x.ignored, x.noise
        self.hardest = None if hardest is None else hardest.detach()
        self.batch = (x.directions, x.norms, x.scale, *[entered(t, part) for t in (target, *named.values())])

    def block(self, part: slice, inputs: Inputs, inverse: Tensor | None = None) -> Block:
        """The cosines of the classes in ``part``."""
        return self.cosines.block(part, inputs, inverse)

    def logits(self, part: slice, block: Block, inputs: Inputs) -> Float[Tensor, "n c"]:
        """z of the classes in ``part``, a new tensor."""
        assert block.products is not None
        bias = None if inputs.bias is None else inputs.bias[part]
        return self._scores(part, block.products, self._lengths(part, inputs), bias, inputs.batch)

    def pull(
        self,
        part: slice,
        block: Block,
        inputs: Inputs,
        slope: Callable[[Tensor], Tensor],
        gradients: Gradients,
    ) -> None:
        """Carry ∂L/∂z to the cosines and on to the weights, and to everything else the scores depend on."""
        assert block.products is not None
        if self._pull_closed(part, block, inputs, slope, gradients):
            return
        cos = block.products.detach().requires_grad_()
        lengths = self._lengths(part, inputs)
        bias = None if inputs.bias is None else inputs.bias[part].detach()
        # The directions act through the cosines alone; what remains are norms, scale, target and the parameters.
        pairs = zip(inputs.batch[1:], gradients.batch[1:], strict=True)
        leaves = [t.detach().requires_grad_(total is not None) for t, total in pairs]
        if lengths is not None:
            lengths.requires_grad_()
        if bias is not None:
            bias.requires_grad_(gradients.bias is not None)
        with torch.enable_grad():
            z = self._scores(part, cos, lengths, bias, (inputs.batch[0], *leaves))
        wanted = [t for t in (cos, lengths, bias, *leaves) if t is not None and t.requires_grad]
        found = torch.autograd.grad(z, wanted, slope(z.detach()), allow_unused=True)
        by_id = {id(t): g for t, g in zip(wanted, found, strict=True) if g is not None}
        self._pull_rows(part, block, inputs, by_id[id(cos)], by_id.get(id(lengths)), gradients)
        if gradients.bias is not None:
            gradients.bias[part] = by_id[id(bias)]
        for leaf, total in zip(leaves, gradients.batch[1:], strict=True):
            if total is not None and id(leaf) in by_id:
                total += by_id[id(leaf)]

    def _pull_closed(
        self, part: slice, block: Block, inputs: Inputs, slope: Callable[[Tensor], Tensor], gradients: Gradients
    ) -> bool:
        """The same without a graph where φ knows its slope and the scale is a constant; False where not."""
        assert block.products is not None
        scale = inputs.batch[2].unsqueeze(-1)
        if self.weight_norm or gradients.batch[2] is not None or self.names:
            return False
        found = self._call(part, block.products, None, None, inputs.batch, True)
        if found is None:
            return False
        z, by_cos = found[0] * scale, found[1]
        d = slope(z if inputs.bias is None else z.add_(inputs.bias[part]))
        if gradients.bias is not None:
            torch.sum(d, 0, out=gradients.bias[part])
        self.cosines.pull_products(part, block, inputs, d.mul_(by_cos.mul_(scale)), gradients)
        return True

    def _pull_rows(
        self, part: slice, block: Block, inputs: Inputs, d_cos: Tensor, d_lengths: Tensor | None, gradients: Gradients
    ) -> None:
        self.cosines.pull_products(part, block, inputs, d_cos, gradients)
        if gradients.weight is not None and d_lengths is not None and block.inverse is not None:
            along = d_lengths * block.inverse.squeeze(-1)
            gradients.weight[part].addcmul_(inputs.weight[part], along.unsqueeze(-1).to(inputs.weight.dtype))

    def _lengths(self, part: slice, inputs: Inputs) -> Tensor | None:
        return norm(inputs.weight[part].detach().to(inputs.batch[0].dtype)) if self.weight_norm else None

    def _scores(
        self, part: slice, cos: Tensor, lengths: Tensor | None, bias: Tensor | None, batch: tuple[Tensor, ...]
    ) -> Tensor:
        return self._call(part, cos, lengths, bias, batch, False)

    def _call(
        self,
        part: slice,
        cos: Tensor,
        lengths: Tensor | None,
        bias: Tensor | None,
        batch: tuple[Tensor, ...],
        with_slope: bool,
    ) -> Any:
        directions, norms, scale, target, *own = batch
        x = BatchFeatures(directions, norms, scale, directions, self.labels, self.ignored, self.noise)
        state = {**self.buffers, **dict(zip(self.names, own, strict=True))}
        classes = classes_of(self.part, part)
        given = (classes, cos, lengths, bias, x, target, self.hardest, with_slope)
        return functional_call(self.hooks, state, given)


class _Hooks(nn.Module):
    """The modules behind the scores, so that they can be called with other parameters and buffers than they hold."""

    def __init__(self, scores: Scores):
        super().__init__()
        self.margin, self.angular, self.scores = scores.margin, scores.angular, scores

    def forward(
        self,
        classes: slice | Tensor,
        cos: Tensor,
        lengths: Tensor | None,
        bias: Tensor | None,
        x: BatchFeatures,
        target: Tensor,
        hardest: Tensor | None,
        with_slope: bool,
    ) -> Tensor | Sloped | None:
        if with_slope:
            return others_with_slope(self.scores, classes, cos, x, target, hardest)
        return scores_of_cosines(self.scores, classes, cos, lengths, bias, x, target, hardest)
