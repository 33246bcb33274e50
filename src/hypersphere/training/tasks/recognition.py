"""The task of ``fit``: train on some identities, measure on others."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import Unpack

from ...config import Call
from ...data import Preprocessing
from ...evaluation import Evidence, all_pairs, append_mirrored, choose_samples, thumbnails
from ...evaluation.ranking import rank_probes
from .classification import Classification, TaskOptions, save_embedder

REPORTED_FARS = (1e-3, 1e-2)  # TAR is reported at the first of these FARs that the number of pairs can resolve


class Recognition(Classification):
    """Recognition of new identities, measured by verification and identification of identities that are not trained on.

    If the preprocessing has ``mirror``, the features of the mirror image are appended.

    Args:
        frozen: do not train the backbone; its batch statistics do not change either.
        head_first: number of first steps that train only the layers after the backbone.
        facts: entries of the embedder's card.

    >>> from hypersphere.training import Recognition, call
    >>> data = hs.data.InMemory(torch.randn(30, 4), torch.arange(30) % 3, ("a", "b", "c"))
    >>> task = Recognition(torch.nn.Linear(4, 8), call(hs.CosFace), data, data, batch_size=10)
    >>> sorted(task.evaluate())[:2]
    ['eer', 'rank1']
    """

    measures_unseen_classes = True

    def __init__(
        self,
        model: nn.Module | Call,
        head: nn.Module | Call,
        train: Any,
        measured: Any = None,
        *,
        frozen: bool = False,
        head_first: int = 0,
        facts: Mapping[str, Any] | None = None,
        **options: Unpack[TaskOptions],
    ):
        super().__init__(model, head, train, measured, **options)
        self.frozen, self.head_first = frozen, head_first
        self.facts = dict(facts or {})
        self.has_unused_parameters = head_first > 0
        self.backbone_frozen = False  # whether the backbone is frozen now, during the first `head_first` steps
        self.keeps_statistics = False  # whether batch normalization of the backbone uses its initial statistics
        if frozen:
            for parameter in self.backbone.parameters():
                parameter.requires_grad_(False)

    @property
    def backbone(self) -> nn.Module:
        """The network without projection and head."""
        body = getattr(self.model, "body", None)
        inner = getattr(body, "network", None)
        if isinstance(inner, nn.Module):
            return inner
        return body if isinstance(body, nn.Module) else cast(nn.Module, self.model)

    def train(self, mode: bool = True) -> "Recognition":
        """Set the mode. A frozen backbone stays in evaluation mode, so its batch statistics do not change."""
        super().train(mode)
        if mode and (self.frozen or self.backbone_frozen or self.keeps_statistics):
            self.backbone.eval()
        return self

    def forward(self, step: int, *batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss. In the first ``head_first`` steps no gradient reaches the backbone."""
        if self.backbone_frozen != (step < self.head_first):
            self._freeze_backbone(step < self.head_first)
        return super().forward(step, *batch)

    def _freeze_backbone(self, frozen: bool) -> None:
        self.backbone_frozen = frozen
        for parameter in self.backbone.parameters():
            parameter.requires_grad_(not frozen and not self.frozen)
        self.backbone.train(not frozen and not self.frozen and not self.keeps_statistics)

    def embed_batch(self, raw: Tensor) -> Float[Tensor, "b d"]:
        """Return features of stored pictures, followed by those of their mirror images if the preprocessing has ``mirror``."""
        inputs = self.inputs(self._normalize(raw.to(self.device)))
        return (
            append_mirrored(self.features, inputs)
            if getattr(self.preprocessing, "mirror", False)
            else self.features(inputs)
        )

    def evaluate(self) -> dict[str, float]:
        """Return EER, TAR at the strictest FAR that the pairs resolve, and rank-1, in percent."""
        features, labels = self.embed(self.measured_samples), self.measured_samples.labels
        roc = all_pairs(features, labels, worst=1).roc
        ranked = rank_probes(features, labels, features, labels, own=torch.arange(len(features)))
        values = {"eer": float(roc.eer), "rank1": float((ranked.rank[ranked.mated] == 1).double().mean())}
        for far in [f for f in REPORTED_FARS if roc.resolve_fars([f])][:1]:
            values[f"tar@{far:g}"] = float(roc.accepted_same[roc.at_far(far)]) / roc.positives
        return {name: 100 * value for name, value in values.items()}

    def evidence(self) -> Evidence | None:
        """Return features of measured samples with their pictures. The preprocessing draws samples that are not pictures."""
        found = super().evidence()
        if found is None or not isinstance(self.preprocessing, Preprocessing) or self.preprocessing.medium == "picture":
            return found
        drawn = self.preprocessing.thumbnails(
            self.measured_samples.batch(choose_samples(self.measured_samples.labels))[0]
        )
        return dataclasses.replace(found, images=thumbnails(drawn))

    def pictures(self, folder: pathlib.Path) -> None:
        """Draw nothing, because the report of the run has its own pictures."""

    def write_embedder(self, folder: pathlib.Path, weights: Mapping[str, Tensor]) -> str | None:
        """Write the embedder with the facts in its card."""
        sample = self.measured_samples.batch(torch.arange(min(4, len(self.measured_samples))))[0]
        return save_embedder(self, weights, sample, folder / "embedder.safetensors", **self.facts)
