"""Error rates per category at common thresholds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ._all_pairs import all_pairs
from ._verification import HIGHEST_PAIRS, resample_pairs
from .figures import Figure, format_rate
from .intervals import RESAMPLES, Measurement, clustered_mean, wilson
from .ranking import QueryGallery, Ranking, count_compared_pairs, make_masks
from .scoring import CosineScore, Score


@dataclass(frozen=True)
class CategoryRates:
    """Error rates of one category.

    A threshold is named by its FAR over all pairs. ``far`` and ``frr`` map this name to the false accept rate and the false
    reject rate of pairs within the category. They are empty if the category has no same or no different pairs. ``rank_1`` is
    the rank-1 rate of the category's images in the gallery of all images; None if no image has a mate. ``same`` and
    ``different`` count pairs, ``probes`` counts images with a mate.

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
        """Return FAR and FRR at every common threshold, and the rank-1 rate. Names of figures start with the category."""
        figures = [Figure(f"{self.name}: images", self.images, "images")]
        for rate in self.far:
            at = f"at the threshold of FAR={format_rate(rate)}"
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
    masks: QueryGallery | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[CategoryRates, ...]:
    """Measure each category at common ``thresholds``, which map false accept rates to scores. Categories are sorted by name.

    ``ranked`` is the ranking of all images; images that are not queries have rank 0. Pairs of images from two categories
    are not counted. Intervals are over identities, from ``resamples`` resamples that ``seed`` draws.
    """
    result = []
    score = CosineScore() if score is None else score
    masks = make_masks(None, None, labels) if masks is None else masks
    for name in sorted(set(names)):
        is_member = torch.tensor([other == name for other in names], device=labels.device)
        x, ids = features[is_member], labels[is_member]
        own_masks = masks.part(is_member)
        same, different = count_compared_pairs(own_masks, ids)
        far: dict[float, Measurement] = {}
        frr: dict[float, Measurement] = {}
        if same and different:
            finite = {rate: t for rate, t in thresholds.items() if math.isfinite(t)}
            at = torch.tensor(list(finite.values()), dtype=torch.float64, device=features.device)
            options: dict[str, Any] = {"score": score, "masks": own_masks}
            counted = all_pairs(x, ids, at=at, worst=1, highest=HIGHEST_PAIRS, chunk=chunk, **options)
            roc, intervals = counted.roc, resample_pairs(x, ids, counted, **options, resamples=resamples, seed=seed)
            for rate, threshold in finite.items():
                point = int((roc.thresholds >= threshold).sum()) - 1
                accepted = wilson(int(roc.accepted_different[point]), different)
                far[rate] = intervals.acceptance_rate(threshold, accepted, same=False)
                frr[rate] = clustered_mean(
                    counted.same.scores < threshold, ids[counted.same.first], resamples=resamples, seed=seed
                )
        mated = ranked.mated[is_member]
        ranks = ranked.rank[is_member][mated]
        rank_1 = clustered_mean(ranks == 1, ids[mated], resamples=resamples, seed=seed) if len(ranks) else None
        result.append(CategoryRates(name, len(ids), same, different, far, frr, rank_1, len(ranks)))
    return tuple(result)


def check_categories(categories: Sequence[str] | Int[Tensor, "n"], count: int) -> list[str]:
    """Return the category of each image as a string; raise ``ValueError`` unless there is one per image."""
    names = categories.tolist() if isinstance(categories, Tensor) else list(categories)
    if len(names) != count:
        raise ValueError(f"categories must be one for each of {count} images, got {len(names)}")
    return [str(name) for name in names]
