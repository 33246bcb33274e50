"""Error rates per category at common thresholds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ._all_pairs import all_pairs
from ._verification import HIGHEST, resample_pairs
from .figures import Figure, rate_name
from .intervals import RESAMPLES, Measurement, clustered_mean, wilson
from .ranking import QueryGallery, Ranking, pair_counts, query_gallery
from .scoring import CosineScore, Score


@dataclass(frozen=True)
class CategoryRates:
    """Errors within one category.

    ``far`` and ``frr`` are the false accept and false reject rates of pairs within the category, by the FAR of all
    pairs whose threshold is used; empty if the category lacks one kind of pair. ``rank_1`` is of the category's
    images before the gallery of everyone; None if no image has a mate.

    >>> labels, sites = torch.arange(12).repeat(3), ["north", "south"] * 18
    >>> features = torch.eye(12)[labels] + 0.05 * torch.randn(36, 12)
    >>> north, south = hs.evaluation.open_set_report(features, labels, fars=[1e-2], categories=sites).categories
    >>> north.name, north.images, float(north.frr[1e-2]), float(north.rank_1)
    ('north', 18, 0.0, 1.0)
    """

    name: str
    images: int
    same: int
    different: int
    far: dict[float, Measurement]
    frr: dict[float, Measurement]
    rank_1: Measurement | None
    probes: int

    def figures(self) -> list[Figure]:
        """Return FAR and FRR at every common threshold and the rank-1 rate, named by the category."""
        figures = [Figure(f"{self.name}: images", self.images, "images")]
        for rate in self.far:
            at = f"at the threshold of FAR={rate_name(rate)}"
            figures.append(Figure.of(f"{self.name}: FAR {at}", self.far[rate], count=self.different))
            figures.append(Figure.of(f"{self.name}: FRR {at}", self.frr[rate], count=self.same))
        if self.rank_1 is not None:
            figures.append(Figure.of(f"{self.name}: rank-1", self.rank_1, count=self.probes))
        return figures


def category_rates(
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    names: Sequence[str],
    ranked: Ranking,
    thresholds: Mapping[float, float],
    chunk: int = 512,
    *,
    score: Score | None = None,
    sides: QueryGallery | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[CategoryRates, ...]:
    """Measure each category at common ``thresholds``, a score for each false accept rate; categories in order of name.

    ``ranked`` is the ranking of all images, with rank 0 where one is no query. Pairs across two categories belong to neither.
    Intervals are over identities, ``resamples`` of them drawn by ``seed``.
    """
    result = []
    score = CosineScore() if score is None else score
    sides = query_gallery(None, None, labels) if sides is None else sides
    for name in sorted(set(names)):
        mine = torch.tensor([other == name for other in names], device=labels.device)
        x, ids = features[mine], labels[mine]
        same, different = pair_counts(sides.part(mine), ids)
        far: dict[float, Measurement] = {}
        frr: dict[float, Measurement] = {}
        if same and different:
            finite = {rate: t for rate, t in thresholds.items() if math.isfinite(t)}
            at = torch.tensor(list(finite.values()), dtype=torch.float64, device=features.device)
            some: dict[str, Any] = {"score": score, "sides": sides.part(mine)}
            counted = all_pairs(x, ids, at=at, worst=1, highest=HIGHEST, chunk=chunk, **some)
            roc, shown = counted.roc, resample_pairs(x, ids, counted, **some, resamples=resamples, seed=seed)
            for rate, threshold in finite.items():
                point = int((roc.thresholds >= threshold).sum()) - 1
                accepted = wilson(int(roc.accepted_different[point]), different)
                far[rate] = shown.acceptance_rate(threshold, accepted, same=False)
                frr[rate] = clustered_mean(
                    counted.same.scores < threshold, ids[counted.same.first], resamples=resamples, seed=seed
                )
        probes = ranked.rank[mine][ranked.mated[mine]]
        rank_1 = clustered_mean(probes == 1, ids[ranked.mated[mine]]) if len(probes) else None
        result.append(CategoryRates(name, len(ids), same, different, far, frr, rank_1, len(probes)))
    return tuple(result)


def check_categories(categories: Sequence[str] | Int[Tensor, "n"], count: int) -> list[str]:
    """Return the category of each image as a string; raises ``ValueError`` unless there is one for each."""
    names = categories.tolist() if isinstance(categories, Tensor) else list(categories)
    if len(names) != count:
        raise ValueError(f"categories must be one for each of {count} images, got {len(names)}")
    return [str(name) for name in names]
