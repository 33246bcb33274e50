"""Simple methods and pretrained networks on the pictures that an embedder is measured on."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ..data import DataError, PicturePreprocessing, Preprocessing
from ..data.media import find_medium
from ..data.preprocessing import eight_bit_pixels
from ..data.sources import Source
from ..data.streams import SPLIT, Stream
from ..evaluation import Baseline, Score, compare_with_baselines, simple_features
from ..models import CATALOG
from .embedder import Embedder
from .features import embed
from .loading import load

MAX_PICTURES = 2000  # measured samples on which simple methods are compared
MAX_PRETRAINED_PICTURES = 200  # the same for pretrained networks, which take about 30 ms per picture
MIN_SIDE = 32  # pixels; pretrained networks are not tried on smaller pictures
MIN_PICTURES = 20  # pretrained networks are not tried on fewer
NUM_PROBES = 8  # samples that show whether a network fits the data


def measure_baselines(
    features: Float[Tensor, "n d"],
    source: Source,
    stored: Shaped[Tensor, "n ..."],
    *,
    train: tuple[Tensor, Int[Tensor, "m"]] | None = None,
    others: Mapping[str, Float[Tensor, "n _"]] | None = None,
    without: str | None = None,
    score: Score | None = None,
    seed: int = 0,
) -> tuple[Baseline, ...]:
    """Compare an embedder with simple methods and pretrained networks, on the same pairs of the same identities.

    Simple methods are those of :func:`~hypersphere.evaluation.simple_features`, if samples are stored as 8-bit pictures.
    Pretrained networks are those of the catalog that are installed, have a permissive license and fit the data: networks of
    faces if most pictures contain a face, and general networks if the pictures have colors. They are measured on some of the
    identities; their name then contains the number of pictures.

    Args:
        features: The embedder's features of all samples of the source.
        source: The samples.
        stored: The samples as the embedder's preprocessing stores them.
        train: Stored training samples and their labels, which PCA and LDA are fitted to.
        others: Features of further methods by name, such as the network before training.
        without: Fingerprint of a pretrained network that is left out, because the embedder started from it.
        score: How the embedder's features are compared; by cosine by default.
        seed: Seed of pairs and resamples.

    Returns:
        The methods, the lowest EER first.

    >>> pictures = torch.randint(0, 256, (40, 1, 8, 8), dtype=torch.uint8)
    >>> source = hs.data.open_source((pictures.numpy()[:, 0], torch.arange(10).repeat_interleave(4).numpy()))
    >>> found = measure_baselines(torch.randn(40, 8), source, pictures)
    >>> sorted(baseline.name for baseline in found)
    ['HOG', 'LBP', 'raw pixels']
    """
    labels = source.labels
    methods: dict[str, Tensor] = dict(others or {})
    if stored.dtype == torch.uint8 and stored.ndim == 4 and min(stored.shape[2:]) >= 4:
        methods |= simple_features(stored, *(() if train is None else train))
    baselines = list(compare_with_baselines(features, labels, methods, score=score, seed=seed)) if methods else []
    for name, rows, pretrained in _embed_with_pretrained(source, without):
        title = f"pretrained {name}" + ("" if len(rows) == len(labels) else f" (on {len(rows)} pictures)")
        baselines += compare_with_baselines(features[rows], labels[rows], {title: pretrained}, score=score, seed=seed)
    return tuple(sorted(baselines, key=lambda baseline: float(baseline.eer)))


def first_identities(labels: Int[Tensor, "n"], count: int) -> Int[Tensor, "k"]:
    """Return the positions of all samples of some identities, about ``count`` samples, in increasing order.

    The identities are drawn in a random order that is the same in every call, at least two of them. Of a large identity, at
    most half of ``count`` samples are used.

    >>> first_identities(torch.arange(6).repeat_interleave(4), 8)
    tensor([ 8,  9, 10, 11, 12, 13, 14, 15])
    """
    if len(labels) <= count:
        return torch.arange(len(labels))
    per_identity = max(2, count // 2)
    selected: list[Tensor] = []
    names = labels.unique()
    for i, name in enumerate(names[Stream(0, SPLIT, 2).permutation(len(names))].tolist()):
        rows = torch.nonzero(labels == name).flatten()[:per_identity]
        if i >= 2 and sum(map(len, selected)) + len(rows) > count:
            break
        selected.append(rows)
    return torch.cat(selected).sort().values


def _embed_with_pretrained(source: Source, without: str | None) -> list[tuple[str, Int[Tensor, "k"], Tensor]]:
    """Return name, rows and features of every pretrained network that is installed and fits the data."""
    if len(source) < MIN_PICTURES:
        return []
    entries = [
        entry for entry in CATALOG.values() if entry.feature_dim and entry.tier == "permissive" and entry.is_here
    ]
    if not entries:
        return []
    samples = [_read_sample(source, i) for i in torch.linspace(0, len(source) - 1, NUM_PROBES).long().tolist()]
    if any(sample is None for sample in samples):
        return []
    found = []
    for entry in entries:
        preprocessing = Preprocessing.from_dict(dict(entry.preprocessing))
        if any(find_medium(sample).noun != preprocessing.medium for sample in samples):
            continue
        if isinstance(preprocessing, PicturePreprocessing) and not all(_has_colors(sample) for sample in samples):
            continue
        try:
            embedder = load(entry.name)
        except ValueError:  # a damaged file, or a detector that is not installed; commands that need it report this
            continue
        fits = sum(_can_load(embedder, sample) for sample in samples) > NUM_PROBES / 2
        if embedder.fingerprint == without or not fits:
            continue
        rows = first_identities(source.labels, MAX_PRETRAINED_PICTURES)
        part = source.part(rows)
        row_of = {record.name: i for record, i in zip(part.records, rows.tolist(), strict=True)}
        features = embed(embedder, part, 32, on_error="skip")
        embedded_rows = torch.tensor([row_of[name] for name in features.files])
        counts = source.labels[embedded_rows].bincount()
        if int((counts > 1).sum()) >= 2:
            found.append((entry.name, embedded_rows, features.features))
    return found


def _read_sample(source: Source, index: int) -> Any:
    """Return one sample of a source: a recording, or a picture as 8-bit pixels; None if it cannot be read or is too small."""
    try:
        sample = source.sample(index)
        if find_medium(sample).noun != PicturePreprocessing.medium:
            return sample
        picture = eight_bit_pixels(sample, source.records[index].box)
    except (DataError, ValueError, TypeError):
        return None
    return picture if picture.ndim == 3 and min(picture.shape[1:]) >= MIN_SIDE else None


def _has_colors(picture: Tensor) -> bool:
    return picture.shape[0] == 3 and bool((picture[0] != picture[1]).any())


def _can_load(embedder: Embedder, sample: Any) -> bool:
    """Return whether the preprocessing can use a sample, such as a picture with a face."""
    try:
        embedder.preprocessing.load(sample)
    except ValueError:
        return False
    return True
