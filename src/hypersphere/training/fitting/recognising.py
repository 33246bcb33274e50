"""The task of a fit: trained on some identities, watched on others that are never trained on."""

import pathlib
from collections.abc import Mapping
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import Unpack

from ...config import Call
from ...data import PicturePreprocessing
from ...evaluation import all_pairs, mirrored
from ...evaluation.ranking import ranking
from ..datasets import Scaling
from ..tasks import Classification
from ..tasks.classification import TaskOptions, save_embedder

FARS = (1e-3, 1e-2)  # the strictest one that the watched pairs resolve is shown


class Recognising(Classification):
    """Features that recognise identities never trained on, measured by verification and by identification of such.

    Args:
        preprocessing: how pictures become inputs; with ``mirror`` features of the mirror image are appended.
        still: the backbone stays as it is, batch statistics included.
        head_first: so many steps in which only what is behind the backbone learns.
        facts: what the embedder's file says of its making.
    """

    unseen = True

    def __init__(
        self,
        model: nn.Module | Call,
        head: nn.Module | Call,
        train: Any,
        measured: Any = None,
        *,
        preprocessing: PicturePreprocessing,
        still: bool = False,
        head_first: int = 0,
        facts: Mapping[str, Any] | None = None,
        **options: Unpack[TaskOptions],
    ):
        options["scaling"] = Scaling(preprocessing)
        super().__init__(model, head, train, measured, **options)
        self.preprocessing, self.still, self.head_first = preprocessing, still, head_first
        self.facts = dict(facts or {})
        self.partial = head_first > 0
        self.resting = False
        if still:
            for parameter in self.backbone.parameters():
                parameter.requires_grad_(False)

    @property
    def backbone(self) -> nn.Module:
        """The network without what a fit puts behind it."""
        body = getattr(self.model, "body", None)
        inner = getattr(body, "network", None)
        if isinstance(inner, nn.Module):
            return inner
        return body if isinstance(body, nn.Module) else cast(nn.Module, self.model)

    def train(self, mode: bool = True) -> "Recognising":
        """A backbone that does not learn is in evaluation mode always: its statistics are part of it."""
        super().train(mode)
        if mode and (self.still or self.resting):
            self.backbone.eval()
        return self

    def forward(self, step: int, *batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss; in the first stage no gradient reaches the backbone."""
        if step < self.head_first and not self.resting:
            self._rest(True)
        elif step >= self.head_first and self.resting:
            self._rest(False)
        return super().forward(step, *batch)

    def _rest(self, resting: bool) -> None:
        self.resting = resting
        for parameter in self.backbone.parameters():
            parameter.requires_grad_(not resting and not self.still)
        self.backbone.train(not resting and not self.still)

    def embed_batch(self, raw: Tensor) -> Float[Tensor, "b d"]:
        """Features of pictures as the dataset gives them, with those of the mirror images where these count."""
        inputs = self.inputs(self._scaled(raw.to(self.device)))
        return mirrored(self.features, inputs) if self.preprocessing.mirror else self.features(inputs)

    def evaluate(self) -> dict[str, float]:
        """EER, TAR at the strictest FAR that the pairs resolve, and rank-1, in percent."""
        features, labels = self.embed(self.measured_samples), self.measured_samples.labels
        roc = all_pairs(features, labels, worst=1).roc
        ranked = ranking(features, labels, features, labels, leave_out=True)
        values = {"eer": float(roc.eer), "rank1": float((ranked.rank[ranked.mated] == 1).double().mean())}
        for far in [f for f in FARS if roc.resolved([f])][:1]:
            values[f"tar@{far:g}"] = float(roc.accepted_same[roc.at_far(far)]) / roc.positives
        return {name: 100 * value for name, value in values.items()}

    def pictures(self, folder: pathlib.Path) -> None:
        """None here: the report at the end draws its own."""

    def keep(self, folder: pathlib.Path, weights: Mapping[str, Tensor]) -> str | None:
        """The embedder, with what is known of its making in its card."""
        sample = self.measured_samples.batch(torch.arange(min(4, len(self.measured_samples))))[0]
        return save_embedder(self, weights, sample, folder / "embedder.safetensors", **self.facts)
