"""Simple baselines for a trained network: pixels, PCA, PCA + LDA, LBP and HOG, on the same identities."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from ..models.descriptors import MIN_ELONGATION, local_binary_patterns, oriented_gradients, row_statistics
from ._all_pairs import all_pairs
from .comparison import TooFewIdentitiesError, compare_embedders
from .descriptor_fitting import MAX_BASELINE_COMPONENTS, fit_discriminant, principal_components
from .intervals import Measurement
from .scoring import CosineScore, Score

MAX_SIDE = 64  # pixels of the longer side to which pictures are reduced before their features are computed
MIN_IDENTITIES = 3  # for a bootstrap over identities


@dataclass(frozen=True)
class Baseline:
    """A simple method, compared with a network on the same pairs of the same identities.

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

    Every method is measured on the same pairs. The same identities are resampled for the network and the method, so that the
    interval of the difference is paired (:func:`~hypersphere.evaluation.compare_embedders`).

    Args:
        features: Features of the network.
        labels: The identity of each row.
        baselines: Features of each method by its name, rows in the same order, compared by cosine.
        score: How the network's features are compared; by cosine by default.
        pairs: The largest number of pairs of one identity, and of pairs of two identities.
        resamples: The number of resamples.
        seed: Seed of pairs and resamples.

    Returns:
        One :class:`Baseline` per method. If there are too few identities to resample, the interval of the difference is
        [−1, 1].

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
    unbeaten = [baseline for baseline in baselines if not baseline.is_beaten]
    if not baselines:
        return ""
    if not unbeaten:
        best = baselines[0]
        low, high = (100 * end for end in best.difference.interval)
        return (
            f"{network} clearly beats all {len(baselines)} simple methods; the best of them is {best.name} "
            f"(EER {100 * best.eer:.3g} %, difference {100 * best.difference:+.3g} [{low:+.3g}, {high:+.3g}] points)"
        )
    best = min(unbeaten, key=lambda baseline: float(baseline.eer))
    low, high = (100 * end for end in best.difference.interval)
    others = {1: "", 2: " and one other method"}.get(len(unbeaten), f" and {len(unbeaten) - 1} other methods")
    return (
        f"{network} does not clearly beat {best.name}{others} (EER {100 * best.eer:.3g} %, difference "
        f"{100 * best.difference:+.3g} [{low:+.3g}, {high:+.3g}] points): {_advise(best, baselines)}"
    )


def format_baselines(baselines: Sequence[Baseline]) -> list[str]:
    r"""Return a table: one line per method with its EER and the paired difference, in percent and percentage points.

    >>> close = Baseline("PCA", Measurement(0.1, 0.05, 0.15), Measurement(0.01, -0.02, 0.04))
    >>> print("\n".join(format_baselines([close])))
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

    The methods are raw pixels minus the mean picture, histograms of local binary patterns (LBP) and histograms of oriented
    gradients (HOG). With training pictures, there are also PCA of pixels, PCA + LDA of pixels and of HOG, and, for pictures
    as long as spectra, LDA on the mean and deviation of every row. Only the mean picture is computed from the measured
    pictures, and only if there are no training pictures.

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
    small, small_train = _reduce(pictures), None if train is None else _reduce(train)
    x = small.flatten(1)
    mean = (x if small_train is None else small_train.flatten(1)).mean(0)
    gradients = oriented_gradients(small)
    features = {"raw pixels": x - mean, "LBP": local_binary_patterns(small), "HOG": gradients}
    if small_train is None:
        return features
    pixels = small_train.flatten(1)
    components = principal_components(pixels)
    features["PCA"] = (x - mean) @ components.T
    if train_labels is None or len(train_labels.unique()) < 2 or len(train_labels.unique()) == len(train_labels):
        return features
    features["PCA + LDA"] = _apply_lda(pixels, train_labels, x, components)
    features["HOG, PCA + LDA"] = _apply_lda(oriented_gradients(small_train), train_labels, gradients)
    height, width = small.shape[2:]
    if max(height, width) >= MIN_ELONGATION * min(height, width):
        rows = row_statistics(small)
        features["row statistics, LDA"] = _apply_lda(row_statistics(small_train), train_labels, rows)
    return features


def spectrogram_features(
    recordings: Sequence[Float[Tensor, "k samples"]],
    train: tuple[Float[Tensor, "m samples"], Int[Tensor, "m"]],
    preprocessing: Any,
) -> dict[str, Float[Tensor, "n _"]]:
    """Compute the features of recordings by simple methods, to be compared by cosine.

    The methods are mean and standard deviation over time of each band of the log-mel spectrogram, with the mean of the
    training recordings removed, and LDA of the same.

    Args:
        recordings: All windows of each recording.
        train: Windows of training recordings and their identities, which LDA is fitted to.
        preprocessing: Computes the spectrogram of windows (:class:`~hypersphere.data.AudioPreprocessing`).

    Returns:
        Features by the name of the method.

    >>> prepare = hs.data.AudioPreprocessing(frames=50, step=25, bands=20)
    >>> windows = torch.randn(6, *prepare.shape)
    >>> found = spectrogram_features(list(windows[:, None]), (windows, torch.arange(6) // 2), prepare)
    >>> {name: tuple(x.shape) for name, x in found.items()}
    {'spectrogram statistics': (6, 40), 'spectrogram statistics, LDA': (6, 40)}
    """
    prepared = replace(preprocessing, logarithm=True, center=False)

    def measure(windows: Tensor) -> Tensor:
        return torch.cat([row_statistics(prepared.normalize(part)[:, None]) for part in windows.split(64)])

    train_statistics, labels = measure(train[0]), train[1]
    x = torch.stack([measure(windows).mean(0) for windows in recordings])
    features = {"spectrogram statistics": x - train_statistics.mean(0)}
    counts = labels.unique(return_counts=True)[1]
    if len(counts) > 1 and int(counts.max()) > 1:
        features["spectrogram statistics, LDA"] = fit_discriminant(train_statistics, labels)(x).detach()
    return features


def _apply_lda(train: Tensor, labels: Tensor, x: Tensor, components: Tensor | None = None) -> Tensor:
    """Apply PCA, to at most (training pictures − identities) dimensions, and a discriminant, both fitted to the training set."""
    count = max(2, min(MAX_BASELINE_COMPONENTS, len(train) - len(labels.unique())))
    components = principal_components(train, count) if components is None else components[:count]
    try:
        layer = fit_discriminant((train @ components.T).float(), labels)
    except ValueError:  # all pictures of each identity are equal, so nothing can be fitted
        return (x - train.mean(0)) @ components.T
    with torch.no_grad():
        return layer((x @ components.T).float())


def _reduce(pictures: UInt8[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
    """Return pixels in [0, 1], reduced so that the longer side is at most ``MAX_SIDE``."""
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


def _compare(name: str, first: Tensor, second: Tensor, labels: Tensor, options: dict[str, Any]) -> Baseline:
    if len(labels.unique()) >= MIN_IDENTITIES:
        try:
            report = compare_embedders(first, second, labels, **options)
            return Baseline(name, report.second, report.difference)
        except TooFewIdentitiesError:
            pass  # the intervals below span all values, because nothing is known about the difference
    eers = [float(all_pairs(x, labels, worst=1).roc.eer) for x in (first, second)]
    return Baseline(name, Measurement(eers[1], 0.0, 1.0), Measurement(eers[0] - eers[1], -1.0, 1.0))


def _advise(best: Baseline, baselines: Sequence[Baseline]) -> str:
    """Return what to do. The network before training is among the methods by the name of what training started from."""
    if best.name.endswith("before training") and float(best.difference) == 0:
        return "nothing that was fitted to your data was better, so the pretrained features are used unchanged"
    if best.name.startswith("pretrained "):
        name = best.name.removeprefix("pretrained ").partition(" ")[0]
        return f"start from it with --from {name}, or use it as it is"
    advice = "collect more identities and more samples of each, or use the simple method"
    if any(x.name.endswith("before training") and not x.name.startswith("the network") for x in baselines):
        return advice
    return f"start from a pretrained network that fits (hypersphere models), {advice}"
