"""Closed-set identification: the rank of the identity of every probe in a gallery."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from .. import plots
from ..data.streams import Stream
from .figures import Figure, Report
from .intervals import Measurement, clustered_mean
from .ranking import rank_probes

Level = Literal["identity", "image"]


def identification(
    probes: Float[Tensor, "p d"],
    probe_ids: Shaped[Tensor, "..."],
    gallery: Float[Tensor, "g d"] | None = None,
    gallery_ids: Shaped[Tensor, "..."] | None = None,
    *,
    chunk: int = 256,
) -> "IdentificationReport":
    """Identify every probe in a gallery by cosine: rank-k rates and the cumulative match characteristic (CMC).

    The report contains two ranks. The rank of identities ranks each identity by its best template. The rank of images is
    that of the first image of the correct identity (the CMC of re-identification). Ties increase the rank.

    Without a gallery, or if the gallery is the same tensor as the probes, each image is searched for among all other images.
    Images without another image of their identity are distractors in the gallery and are not probes.

    Args:
        probes: Features ``(p, d)`` of the probes.
        probe_ids: Identities of the probes, integers.
        gallery: Features ``(g, d)`` to search in. None compares each probe with all other probes.
        gallery_ids: Identities of the gallery; None only without a gallery.
        chunk: Number of probes compared at a time; affects memory only.

    Raises:
        ValueError: If the identity of a probe is not in the gallery. Use :func:`open_set` in this case.

    >>> gallery, ids = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]), torch.tensor([0, 1, 2])
    >>> report = identification(torch.tensor([[2.0, 1.0], [1.0, 0.5]]), torch.tensor([0, 1]), gallery, ids)
    >>> report.rank(1), report.rank(2)
    (0.5000 [0.0945, 0.9055], 1.0000 [0.3424, 1.0000])
    """
    if (gallery is None) != (gallery_ids is None):
        raise ValueError("gallery and gallery_ids must be given together or not at all")
    if gallery is None or gallery_ids is None or _share_storage(probes, gallery):
        result = rank_probes(probes, probe_ids, probes, probe_ids, chunk, own=torch.arange(len(probes)))
        if not result.mated.any():
            raise ValueError("probe_ids must name some identity at least twice, got every identity once")
        kept, templates, ids = result.mated, len(probes) - 1, probe_ids
    else:
        result = rank_probes(probes, probe_ids, gallery, gallery_ids, chunk)
        kept, templates, ids = torch.ones_like(result.mated), len(gallery), gallery_ids
        if not result.mated.all():
            raise ValueError(
                f"every probe needs its identity in the gallery, got {int((~result.mated).sum())} without; "
                "use open_set for such probes"
            )
    return IdentificationReport(result.rank[kept], int(ids.unique().numel()), result.image_rank[kept], templates)


@dataclass(frozen=True, repr=False)
class IdentificationReport(Report):
    """Ranks ``(probes,)`` of the correct identity among ``identities``, and of its first image among ``images``.

    ``owners`` are the identities of the probes; if they are given, intervals are over identities.

    >>> gallery, ids = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]), torch.tensor([0, 1, 2])
    >>> report = identification(torch.tensor([[2.0, 1.0], [1.0, 0.5]]), torch.tensor([0, 1]), gallery, ids)
    >>> report.ranks.tolist(), report.cmc.tolist()
    ([1, 2], [0.5, 1.0, 1.0])
    """

    ranks: Int[Tensor, "p"]
    identities: int
    image_ranks: Int[Tensor, "p"]
    images: int
    owners: Int[Tensor, "p"] | None = None
    title = "closed-set identification"

    def rank(self, k: int = 1, level: Level = "identity") -> Measurement:
        """Return the share of probes whose identity is among the first ``k``, with a 95 % interval.

        With ``owners``, the interval is over identities with the same gallery; otherwise it is Wilson's. With
        ``level="image"``, return the share of probes with an image of their identity among the first ``k`` images; at
        k = 1 both shares are equal.
        """
        if k < 1:
            raise ValueError(f"k must be an integer ≥ 1, got {k!r}")
        if level not in ("identity", "image"):
            raise ValueError(f"level must be 'identity' or 'image', got {level!r}")
        return clustered_mean((self.ranks if level == "identity" else self.image_ranks) <= k, self.owners)

    @property
    def cmc(self) -> Float[Tensor, "identities"]:
        """Cumulative match characteristic of identities: entry k − 1 is the rank-k rate."""
        return _compute_cmc(self.ranks, self.identities)

    @property
    def image_cmc(self) -> Float[Tensor, "images"]:
        """Cumulative match characteristic of images: entry k − 1 is the rank-k rate at the level of images."""
        return _compute_cmc(self.image_ranks, self.images)

    def figures(self) -> list[Figure]:
        """Return rank-1, 5, 10 and 20 rates of identities and of images, up to the size of the gallery."""
        figures = [
            Figure("probes", len(self.ranks), "probes"),
            Figure("identities", self.identities, "identities"),
            Figure("gallery images", self.images, "images"),
        ]
        for k in (1, 5, 10, 20):
            if k <= self.identities:
                figures.append(Figure.of(f"rank-{k}", self.rank(k), count=len(self.ranks)))
            if 1 < k <= self.images:
                figures.append(Figure.of(f"image rank-{k}", self.rank(k, "image"), count=len(self.ranks)))
        return figures

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the CMC curves of identities and of images."""
        name = f"identities\nrank-1 {100 * self.rank(1):.4g} %"
        return plots.plot_cmc({name: self.cmc, "images": self.image_cmc}, title=self.title, ax=ax)


def _share_storage(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors are views of the same memory with the same shape."""
    if first is second:
        return True
    shape = first.shape == second.shape and first.stride() == second.stride() and first.dtype == second.dtype
    return shape and first.device == second.device and first.data_ptr() == second.data_ptr() and first.numel() > 0


def _compute_cmc(ranks: Int[Tensor, "p"], length: int) -> Float[Tensor, "_"]:
    return torch.bincount(ranks - 1, minlength=length).cumsum(0).double() / len(ranks)


def split_one_per_class(
    labels: Int[Tensor, "n"], stream: Stream
) -> tuple[Int[Tensor, "classes"], Int[Tensor, "probes"]]:
    """Return the indices of one random sample per class, and of all other samples."""
    shuffled = stream.permutation(len(labels)).to(labels.device)
    order = shuffled[labels[shuffled].argsort(stable=True)]  # by class, in random order within each class
    first = torch.ones_like(order, dtype=torch.bool)
    first[1:] = labels[order].diff() != 0
    return order[first], order[~first]
