"""Cheap methods that a trained network has to beat: pixels, PCA, PCA + LDA, LBP and HOG, on the same identities."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from ..geometry import normalize
from .all_pairs import all_pairs
from .comparison import compare_embedders
from .discriminant import discriminant
from .intervals import Measurement
from .scoring import CosineScore, Score

MAX_SIDE = 64  # pixels of the longer side to which pictures are reduced before their features are computed
MAX_COMPONENTS = 150  # of PCA
MIN_IDENTITIES = 3  # fewer cannot be resampled
CELL = 8  # pixels of the side of a cell of LBP and HOG
ORIENTATIONS = 9  # bins of HOG, over half a turn
ELONGATED = 1.8  # longer over shorter side from which on pictures are taken for spectra


@dataclass(frozen=True)
class Baseline:
    """A simple method beside a network on the same pairs of the same identities.

    Attributes:
        name: The method.
        eer: Its equal error rate, with a 95 % interval over identities.
        difference: EER of the network minus that of the method, with a paired 95 % interval; negative is better.

    >>> found = Baseline("raw pixels", Measurement(0.2, 0.1, 0.3), Measurement(-0.1, -0.15, 0.01))
    >>> found.is_beaten, found.to_dict()["difference"]
    (False, -0.1)
    """

    name: str
    eer: Measurement
    difference: Measurement

    @property
    def is_beaten(self) -> bool:
        """Whether the network is better by more than the interval of the difference."""
        return self.difference.high < 0

    def to_dict(self) -> dict[str, Any]:
        """Return name, EER and difference with their intervals as plain values, fractions of 1."""
        return {
            "name": self.name,
            "eer": float(self.eer),
            "interval": list(self.eer.interval),
            "difference": float(self.difference),
            "difference_interval": list(self.difference.interval),
        }

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Baseline":
        """Return the baseline that :meth:`to_dict` described."""
        eer = Measurement(values["eer"], *values["interval"])
        return Baseline(values["name"], eer, Measurement(values["difference"], *values["difference_interval"]))


def compare_with_baselines(
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, "n"],
    baselines: Mapping[str, Float[Tensor, "n _"]],
    *,
    score: Score | None = None,
    pairs: int = 20_000,
    resamples: int = 500,
    seed: int = 0,
) -> tuple[Baseline, ...]:
    """Compare a network's features with those of simple methods, the best method first.

    Every method is measured on the same pairs. Identities are resampled, the same ones for the network and the method, so
    that the interval of the difference is paired (:func:`~hypersphere.evaluation.compare_embedders`).

    Args:
        features: Features of the network.
        labels: The identity of each row.
        baselines: Features of each method by its name, rows in the same order, compared by cosine.
        score: How the network's features are compared; by cosine by default.
        pairs: At most this many pairs of one identity and of two.
        resamples: How many resamples are drawn.
        seed: Seed of pairs and resamples.

    Returns:
        One :class:`Baseline` per method. With fewer than three identities, or too few to resample, nothing is known
        about the difference, and its interval is [−1, 1].

    >>> labels = torch.arange(20).repeat_interleave(5)
    >>> clear = torch.eye(20)[labels] + 0.1 * torch.randn(100, 20)
    >>> (found,) = compare_with_baselines(clear, labels, {"noise": torch.randn(100, 8)})
    >>> found.name, found.is_beaten
    ('noise', True)
    """
    chosen = (CosineScore() if score is None else score, CosineScore())
    options: dict[str, Any] = {"negatives": pairs, "seed": seed, "scores": chosen}
    found = [
        _compare(name, features, other, labels, {**options, "resamples": resamples})
        for name, other in baselines.items()
    ]
    return tuple(sorted(found, key=lambda baseline: float(baseline.eer)))


def summarize_baselines(baselines: Sequence[Baseline], network: str = "the trained network") -> str:
    """Return one sentence: whether the network clearly beats every simple method, and what to do if it does not.

    Args:
        baselines: What :func:`compare_with_baselines` returned.
        network: What the network is called in the sentence.

    >>> close = Baseline("PCA + LDA", Measurement(0.1, 0.05, 0.15), Measurement(0.01, -0.02, 0.04))
    >>> print(summarize_baselines([close]))
    the trained network does not clearly beat PCA + LDA (EER 10 %, difference +1 [-2, +4] points): start from a ...
    """
    open_ = [baseline for baseline in baselines if not baseline.is_beaten]
    if not baselines:
        return ""
    if not open_:
        best = baselines[0]
        low, high = (100 * end for end in best.difference.interval)
        return (
            f"{network} clearly beats all {len(baselines)} simple methods; the best of them is {best.name} "
            f"(EER {100 * best.eer:.3g} %, difference {100 * best.difference:+.3g} [{low:+.3g}, {high:+.3g}] points)"
        )
    best = min(open_, key=lambda baseline: float(baseline.eer))
    low, high = (100 * end for end in best.difference.interval)
    others = f" and {len(open_) - 1} more" if len(open_) > 1 else ""
    return (
        f"{network} does not clearly beat {best.name}{others} (EER {100 * best.eer:.3g} %, difference "
        f"{100 * best.difference:+.3g} [{low:+.3g}, {high:+.3g}] points): {_advise(best)}"
    )


def format_baselines(baselines: Sequence[Baseline]) -> list[str]:
    """Return a table: one line per method with its EER and the paired difference, in percent and percentage points.

    >>> close = Baseline("PCA", Measurement(0.1, 0.05, 0.15), Measurement(0.01, -0.02, 0.04))
    >>> print("\\n".join(format_baselines([close])))
    simple methods on the same identities; the difference is network minus method
      PCA  EER 10 [5, 15] %  difference +1 [-2, +4] points  not clearly beaten
    """
    if not baselines:
        return []
    rows = []
    for baseline in baselines:
        (low, high), (least, most) = baseline.eer.interval, baseline.difference.interval
        eer = f"EER {100 * baseline.eer:.3g} [{100 * low:.3g}, {100 * high:.3g}] %"
        gap = f"difference {100 * baseline.difference:+.3g} [{100 * least:+.3g}, {100 * most:+.3g}] points"
        rows.append([baseline.name, eer, gap, "beaten" if baseline.is_beaten else "not clearly beaten"])
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return ["simple methods on the same identities; the difference is network minus method", *(f"  {x}" for x in lines)]


def simple_features(
    pictures: UInt8[Tensor, "n c h w"],
    train: UInt8[Tensor, "m c h w"] | None = None,
    train_labels: Int[Tensor, "m"] | None = None,
) -> dict[str, Float[Tensor, "n _"]]:
    """Compute the features of pictures by every simple method, to be compared by cosine.

    The methods are raw pixels with the mean picture removed, histograms of local binary patterns (LBP), histograms of
    oriented gradients (HOG), and, if there are training pictures, PCA of pixels, PCA + LDA of pixels and of HOG, and, for
    pictures as long as spectra, LDA on the mean and deviation of every row. Nothing is fitted to the measured pictures,
    except that without training pictures the mean picture is theirs.

    Args:
        pictures: Pictures to compute features of.
        train: Pictures that PCA and LDA are fitted to.
        train_labels: Their identities.

    Returns:
        Features by the name of the method.

    >>> pictures = torch.randint(0, 256, (12, 1, 16, 16), dtype=torch.uint8)
    >>> list(simple_features(pictures))
    ['raw pixels', 'LBP', 'HOG']
    >>> list(simple_features(pictures, pictures, torch.arange(12) % 3))[3:]
    ['PCA', 'PCA + LDA', 'HOG, PCA + LDA']
    """
    small, known = _reduce(pictures), None if train is None else _reduce(train)
    x = small.flatten(1)
    mean = (x if known is None else known.flatten(1)).mean(0)
    gradients = oriented_gradients(small)
    found = {"raw pixels": x - mean, "LBP": local_binary_patterns(small), "HOG": gradients}
    if known is None:
        return found
    pixels = known.flatten(1)
    components = principal_components(pixels)
    found["PCA"] = (x - mean) @ components.T
    if train_labels is None or len(train_labels.unique()) < 2 or len(train_labels.unique()) == len(train_labels):
        return found
    found["PCA + LDA"] = _discriminate(pixels, train_labels, x)
    found["HOG, PCA + LDA"] = _discriminate(oriented_gradients(known), train_labels, gradients)
    height, width = small.shape[2:]
    if max(height, width) >= ELONGATED * min(height, width):
        found["row statistics, LDA"] = _discriminate(_row_statistics(known), train_labels, _row_statistics(small))
    return found


def principal_components(x: Float[Tensor, "n d"], count: int = MAX_COMPONENTS) -> Float[Tensor, "k d"]:
    """Return the leading directions of variation, unit vectors in rows, at most ``count`` and at most n − 1.

    >>> principal_components(torch.tensor([[0.0, 0.0], [2.0, 0.1], [4.0, 0.0]])).abs().round()[0].tolist()
    [1.0, 0.0]
    """
    centered = x.double() - x.double().mean(0)
    rank = max(1, min(count, len(x) - 1, x.shape[1]))
    if len(x) <= x.shape[1]:  # the small Gram matrix has the same nonzero eigenvalues
        spread, vectors = torch.linalg.eigh(centered @ centered.mT)
        rows = (vectors.mT @ centered).flip(0)[:rank]
        keep = spread.flip(0)[:rank] > 1e-10 * spread[-1].clamp_min(1e-300)
    else:
        spread, vectors = torch.linalg.eigh(centered.mT @ centered)
        rows = vectors.mT.flip(0)[:rank]
        keep = spread.flip(0)[:rank] > 1e-10 * spread[-1].clamp_min(1e-300)
    keep[0] = True
    return normalize(rows[keep]).to(x.dtype)


def local_binary_patterns(pictures: Float[Tensor, "n c h w"]) -> Float[Tensor, "n bins"]:
    r"""Return square roots of histograms of uniform local binary patterns in cells of about 8×8 pixels.

    The pattern of a pixel has one bit per neighbor of the eight around it: whether it is at least as bright. Patterns
    with at most two changes around the circle have a bin each, the others share one: 59 bins (Ahonen et al., 2006, "Face
    description with local binary patterns"). The cosine of square roots is the Bhattacharyya coefficient.

    >>> local_binary_patterns(torch.zeros(1, 1, 10, 10)).shape
    torch.Size([1, 59])
    """
    gray = pictures.mean(1)
    if min(gray.shape[1:]) < 3:
        gray = F.pad(gray, (1, 1, 1, 1), mode="replicate")
    center = gray[:, 1:-1, 1:-1]
    height, width = center.shape[1:]
    around = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))
    codes = torch.zeros_like(center, dtype=torch.long)
    for bit, (row, column) in enumerate(around):
        codes |= (gray[:, row : row + height, column : column + width] >= center).long() << bit
    patterns = _uniform_patterns()[codes]
    rows, columns = _cells(height), _cells(width)
    cell = (torch.arange(height) * rows // height)[:, None] * columns + torch.arange(width) * columns // width
    bins = int(_uniform_patterns().max()) + 1
    place = (torch.arange(len(gray))[:, None, None] * (rows * columns) + cell) * bins + patterns
    counts = torch.bincount(place.flatten(), minlength=len(gray) * rows * columns * bins)
    histograms = counts.view(len(gray), rows * columns, bins).to(pictures.dtype)
    return (histograms / histograms.sum(2, keepdim=True)).sqrt().flatten(1)


def oriented_gradients(pictures: Float[Tensor, "n c h w"]) -> Float[Tensor, "n bins"]:
    r"""Return histograms of oriented gradients in cells of about 8×8 pixels, normalized in blocks of 2×2 cells.

    Each pixel votes for the two nearest of nine orientations over half a turn with the length of its gradient (Dalal and
    Triggs, 2005). Blocks are scaled to length 1, clipped at 0.2 and scaled again.

    >>> oriented_gradients(torch.rand(2, 1, 16, 16)).shape
    torch.Size([2, 36])
    """
    gray = F.pad(pictures.mean(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    across = (gray[:, :, 1:-1, 2:] - gray[:, :, 1:-1, :-2])[:, 0]
    down = (gray[:, :, 2:, 1:-1] - gray[:, :, :-2, 1:-1])[:, 0]
    length = (across.square() + down.square()).sqrt()
    place = torch.atan2(down, across).remainder(math.pi) / math.pi * ORIENTATIONS
    lower = place.floor().clamp(max=ORIENTATIONS - 1)
    share = place - lower
    votes = length.new_zeros(len(gray), ORIENTATIONS, *length.shape[1:])
    votes.scatter_add_(1, lower.long()[:, None], (length * (1 - share))[:, None])
    votes.scatter_add_(1, ((lower.long() + 1) % ORIENTATIONS)[:, None], (length * share)[:, None])
    cells = F.adaptive_avg_pool2d(votes, (_cells(votes.shape[2]), _cells(votes.shape[3])))
    size = (min(2, cells.shape[2]), min(2, cells.shape[3]))
    blocks = F.unfold(cells, size)  # (n, orientations × cells of a block, blocks)
    blocks = blocks / (blocks.norm(dim=1, keepdim=True) + 1e-6)
    blocks = blocks.clamp(max=0.2)
    return (blocks / (blocks.norm(dim=1, keepdim=True) + 1e-6)).mT.flatten(1)


def _discriminate(train: Tensor, labels: Tensor, x: Tensor) -> Tensor:
    """PCA to fewer dimensions than training pictures less identities, then linear discriminant analysis."""
    count = max(2, min(MAX_COMPONENTS, len(train) - len(labels.unique())))
    components = principal_components(train, count)
    try:
        layer = discriminant((train @ components.T).float(), labels)
    except ValueError:  # all pictures of each identity are the same: there is nothing to fit
        return (x - train.mean(0)) @ components.T
    with torch.no_grad():
        return layer((x @ components.T).float())


def _row_statistics(pictures: Float[Tensor, "n c h w"]) -> Float[Tensor, "n _"]:
    """Mean and deviation along the longer side: of every frequency over time, for a spectrum."""
    axis = 3 if pictures.shape[3] >= pictures.shape[2] else 2
    return torch.cat([pictures.mean(axis).flatten(1), pictures.std(axis).flatten(1)], 1)


def _reduce(pictures: UInt8[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
    """Pixels in [0, 1], the longer side at most ``MAX_SIDE``."""
    height, width = pictures.shape[2:]
    scale = MAX_SIDE / max(height, width)
    parts = []
    for part in pictures.split(256):
        x = part.float() / 255
        if scale < 1:
            size = [max(4, round(height * scale)), max(4, round(width * scale))]
            x = F.interpolate(x, size, mode="bilinear", antialias=True)
        parts.append(x)
    return torch.cat(parts)


def _cells(side: int) -> int:
    return max(1, round(side / CELL))


def _uniform_patterns() -> Int[Tensor, "256"]:
    """The bin of each of 256 patterns: one for each with at most two changes around the circle, one for all others."""
    codes = torch.arange(256)
    bits = (codes[:, None] >> torch.arange(8)) & 1
    uniform = (bits != bits.roll(1, 1)).sum(1) <= 2
    return torch.where(uniform, uniform.long().cumsum(0) - 1, int(uniform.sum()))


def _compare(name: str, first: Tensor, second: Tensor, labels: Tensor, options: dict[str, Any]) -> Baseline:
    if len(labels.unique()) >= MIN_IDENTITIES:
        try:
            report = compare_embedders(first, second, labels, **options)
            return Baseline(name, report.second, report.difference)
        except ValueError:  # too few identities have several pictures: most resamples lack pairs of one identity
            pass
    eers = [float(all_pairs(x, labels, worst=1).roc.eer) for x in (first, second)]
    return Baseline(name, Measurement(eers[1], 0.0, 1.0), Measurement(eers[0] - eers[1], -1.0, 1.0))


def _advise(best: Baseline) -> str:
    if best.name.startswith("pretrained "):
        name = best.name.removeprefix("pretrained ").partition(" ")[0]
        return f"start from it with --from {name}, or use it as it is"
    return (
        "start from a pretrained network that fits (hypersphere models), collect more identities and more pictures of each, "
        "or use the simple method"
    )
