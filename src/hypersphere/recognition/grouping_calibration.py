"""Calibrations of cosines to log-odds of one identity: for pretrained models, or fitted to labeled pictures."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..data.sources import open_source
from ..evaluation.score_calibration import LogisticCalibration, calibrate_scores
from ..geometry import normalize
from .embedder import Embedder
from .features import embed

MAX_PAIRS_PER_IDENTITY = 20  # limits the weight of people with many pictures
DIFFERENT_PAIRS = 400_000  # drawn at random
MIN_SAME_PAIRS = 20

# Keyed by the name in the embedder's card. Fitted to identities that benchmarks/reports/grouping.md does not use: folds
# 0–4 of LFW for sface, the even alphabets of Omniglot's evaluation set for characters.
MEASURED = {
    "sface": LogisticCalibration(slope=35.235, offset=-9.375),
    "characters": LogisticCalibration(slope=18.006, offset=-9.635),
}


def find_calibration(embedder: Embedder) -> LogisticCalibration:
    """Return the calibration of a pretrained model.

    Args:
        embedder: A pretrained embedder.

    Raises:
        ValueError: If there is none. The message explains how to fit one.

    >>> find_calibration(hs.load("sface")).slope > 0  # doctest: +SKIP
    True
    """
    name = str(embedder.card.get("name", ""))
    if name not in MEASURED:
        raise ValueError(
            f"no calibration is known for the embedder {name or 'without a name'}: give labeled pictures of other identities "
            f"(--calibration FOLDER, calibration=measure_calibration(embedder, folder)); known are {', '.join(MEASURED)}"
        )
    return MEASURED[name]


def measure_calibration(embedder: Embedder, labeled: Any) -> LogisticCalibration:
    """Fit the log-odds of one identity to labeled pictures, if possible of identities outside the training set.

    Args:
        embedder: Computes the features.
        labeled: Anything that :func:`hypersphere.data.open_source` takes, such as a folder with one folder per identity.

    Raises:
        ValueError: If there are too few pairs of one identity.

    >>> embedder = Embedder(torch.nn.Flatten(), hs.data.PicturePreprocessing(size=(8, 8), channels=1))
    >>> pictures = torch.randint(0, 256, (10, 8, 8), dtype=torch.uint8).repeat_interleave(3, 0)
    >>> measure_calibration(embedder, (pictures, [f"person {i // 3}" for i in range(30)])).slope > 0
    True
    """
    found = embed(embedder, open_source(labeled), on_error="skip")
    number = {label: i for i, label in enumerate(dict.fromkeys(found.labels))}
    return calibrate_features(found.features, torch.tensor([number[label] for label in found.labels]))


def calibrate_features(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], *, seed: int = 0
) -> LogisticCalibration:
    """Fit the log-odds of one identity to labeled features.

    At most 20 pairs per identity and 400,000 pairs of different identities are compared, drawn at random.

    Args:
        features: One row per sample.
        labels: The identity of each sample.
        seed: The random seed.

    Raises:
        ValueError: If there are fewer than 20 pairs of one identity, or one identity only.

    >>> labels = torch.arange(40).repeat_interleave(3)
    >>> features = torch.nn.functional.one_hot(labels).float() + 0.1 * torch.randn(120, 40)
    >>> calibrate_features(features, labels).slope > 0
    True
    """
    generator = torch.Generator().manual_seed(seed)
    unit = normalize(features.detach().double())
    pairs_per_label = []
    for label in labels.unique():
        own = (labels == label).nonzero().squeeze(1)
        pairs = torch.combinations(own)
        pairs_per_label.append(pairs[torch.randperm(len(pairs), generator=generator)[:MAX_PAIRS_PER_IDENTITY]])
    same = torch.cat(pairs_per_label)
    first, second = torch.randint(len(unit), (2, DIFFERENT_PAIRS), generator=generator)
    differs = labels[first] != labels[second]
    if len(same) < MIN_SAME_PAIRS or not differs.any():
        raise ValueError(
            f"a calibration needs at least {MIN_SAME_PAIRS} pairs of one identity and two identities, got {len(same)} "
            f"pairs of {len(pairs_per_label)} identities"
        )
    other = torch.stack([first[differs], second[differs]], 1)
    cosines = torch.cat([(unit[part[:, 0]] * unit[part[:, 1]]).sum(1) for part in (same, other)])
    fitted = calibrate_scores(cosines, torch.arange(len(cosines)) < len(same))
    assert isinstance(fitted, LogisticCalibration)
    if fitted.slope <= 0:
        raise ValueError("the features do not tell the identities apart: pairs of one identity are not more similar")
    return fitted
