"""Ensembles: embedders that join the features of several networks and of classical descriptors.

The cosine of joined features is a weighted mean of the cosines of the parts (:class:`~hypersphere.models.Joined`).
Descriptors are fitted in closed form (:func:`~hypersphere.evaluation.fit_descriptors`).
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...config import Call
from ...data import AudioPreprocessing
from ...evaluation import FittedDescriptors, all_pairs, fit_descriptors, roc_curve
from ...geometry import normalize
from ...models import Descriptors, Joined
from ...recognition import Embedder, extract_features
from ...recognition.baselines import first_identities
from ..datasets import Samples, WindowSamples, embed_with, mean_directions, read_samples
from .choices import Choice

MAX_DESCRIBED = 4000  # training pictures that descriptors are fitted to
MAX_DESCRIBED_TRAINING_SET = 20_000  # training pictures; with more, a network needs no descriptors
MIN_SIDE = 8  # pixels; smaller pictures have no descriptors
WEIGHTS = (0.0, 0.15, 0.3, 0.5, 0.7, 0.85, 1.0)  # of the networks, from which the selection identities choose
NETWORK_WEIGHT = 0.3  # default; best over several kinds of small sets (docs/log/fit.md)
SPECTRUM_DESCRIPTORS = ("row statistics", "row covariances")  # do not depend on when something is said
# A microphone multiplies each band of a spectrum by a constant. This changes the mean of its logarithm but not the covariances.
VOICE_DESCRIPTORS = ("row covariances",)
VOICE_NETWORK_WEIGHT = 0.8  # of a pretrained network of voices beside descriptors (docs/log/voices.md)
MAX_RECORDINGS = 1500  # that descriptors beside a pretrained network are fitted to
FOLDS = 3  # of the cross-validation over identities
MIN_IDENTITIES_PER_FOLD = 2


def join_networks(embedders: Sequence[Embedder], train: Samples) -> Embedder:
    """Return an embedder whose cosine is the mean of the cosines of several embedders with the same preprocessing.

    Args:
        embedders: Embedders that differ in their network; a single one is returned as it is.
        train: Samples of the training identities, whose mean direction is subtracted.
    """
    if len(embedders) == 1:
        return embedders[0]
    rows = first_identities(train.labels, MAX_DESCRIBED)
    return _build_ensemble(embedders, [embed_directions(embedder, train, rows).mean(0) for embedder in embedders])


def join_descriptors(
    embedders: Sequence[Embedder], train: Samples, selection: Samples | None
) -> tuple[Embedder, Choice]:
    """Join networks that were trained from scratch with classical descriptors, and return the choice with its reason.

    The networks share their weight equally. A weight other than the default must lower the EER of the selection identities by
    more than chance would. With the weight 0 the networks are left out, so that a run never ends with an embedder that is
    worse than its descriptors.

    Args:
        embedders: The trained embedders. Only the first was not trained on the selection identities, so only it is measured
            on them.
        train: Samples of the training identities.
        selection: Samples of other identities, which are not those of the report; None if there are too few.
    """
    first = embedders[0]
    rows = first_identities(train.labels, MAX_DESCRIBED // _count_windows_per_sample(train))
    inputs, owner = _read_inputs(first, train, rows)
    labels = train.labels[rows][owner]
    obstacle = _find_obstacle(inputs, labels, len(train))
    if obstacle is not None:
        return join_networks(embedders, train), Choice("descriptors", "none", obstacle)
    names = SPECTRUM_DESCRIPTORS if isinstance(first.preprocessing, AudioPreprocessing) else None
    fitted = fit_descriptors(_add_channel(inputs), labels, names=names)
    centers = [embed_directions(embedder, train, rows).mean(0) for embedder in embedders]
    weight = NETWORK_WEIGHT
    reason = "there are too few identities to choose the weight, so it is the one that is best over many small sets"
    if selection is not None:
        eers = _measure_weights(first, fitted, centers[0], selection)
        best = min(WEIGHTS, key=lambda candidate: (eers[candidate], abs(candidate - NETWORK_WEIGHT)))
        if eers[best] < (1 - compute_min_gain(selection.labels)) * eers[NETWORK_WEIGHT]:
            weight = best
        reason = (
            f"the EER of the {len(selection.labels.unique())} selection identities is {100 * eers[1.0]:.3g} % with "
            f"{'the network' if len(embedders) == 1 else 'the first network'} alone, {100 * eers[0.0]:.3g} % with "
            f"descriptors alone and {100 * eers[weight]:.3g} % with this weight"
        )
    if weight == 1:
        return join_networks(embedders, train), Choice("descriptors", "none", reason)
    if selection is not None:  # the choices are made, so the selection identities may be fitted to as well
        selection_inputs, owner = _read_inputs(first, selection, torch.arange(len(selection)))
        inputs = torch.cat([inputs, selection_inputs])
        labels = torch.cat([labels, selection.labels[owner] + int(labels.max()) + 1])
        fitted = fit_descriptors(_add_channel(inputs), labels, names=names, mirror=fitted.mirrored)
    value = f"{', '.join(fitted.network.weights)} with PCA and LDA (weight {1 - weight:.2g})"
    return _build_ensemble(embedders, centers, fitted.network, weight), Choice("descriptors", value, reason)


def join_voice_descriptors(embedder: Embedder, parts: Sequence[Samples]) -> tuple[Embedder, Choice]:
    """Join a pretrained network of voices with covariances of log-mel bands if cross-validation over identities favors it.

    The identities are divided into three folds. Descriptors fitted to two folds are joined to the network and measured on the
    third, beside the network alone. If the network was tuned on these identities, its EER is too low, so that descriptors are
    joined less often. The final fit is to all identities.

    Args:
        embedder: The pretrained embedder.
        parts: Samples of identities that are not those of the report; the parts have no identity in common.

    Returns:
        The embedder, joined with descriptors or unchanged, and the choice with its reason.
    """
    voices = _read_voices(embedder, parts)
    identities = len(voices.labels.unique())
    if identities < FOLDS * MIN_IDENTITIES_PER_FOLD or not can_fit_discriminant(voices.labels):
        reason = f"{identities} identities are too few to tell whether descriptors of the spectrum help"
        return embedder, Choice("descriptors", "none", reason)
    eers = _cross_validate_voices(embedder, voices)
    if eers is None:
        return embedder, Choice("descriptors", "none", "too few identities have several recordings")
    network_alone, joined = eers
    reason = (
        f"in cross-validation over {identities} identities the EER is {100 * joined:.3g} % with covariances of mel bands and "
        f"{100 * network_alone:.3g} % without"
    )
    if joined >= network_alone:
        return embedder, Choice("descriptors", "none", reason)
    fitted = _fit_voice_descriptors(embedder, voices.spectra, voices.labels[voices.recordings])
    center = voices.features.new_zeros(voices.features.shape[1])
    ensemble = _build_ensemble([embedder], [center], fitted.network, VOICE_NETWORK_WEIGHT)
    return ensemble, Choice("descriptors", f"row covariances (weight {1 - VOICE_NETWORK_WEIGHT:.2g})", reason)


def embed_directions(
    embedder: Embedder, samples: Samples, rows: Int[Tensor, "k"], mirror: bool = False
) -> Float[Tensor, "k d"]:
    """Return the features of samples or of their mirror images, scaled to length 1; never both, whatever the preprocessing."""
    preprocessing = embedder.preprocessing
    if preprocessing.mirror:
        preprocessing = dataclasses.replace(preprocessing, mirror=False)  # type: ignore[type-var]
    single_view = Embedder(embedder.network, preprocessing)

    def read(index: Tensor) -> Any:
        stored = read_samples(samples, rows[index])
        return stored.flip(-1) if mirror else stored

    return normalize(
        extract_features(embed_with(lambda stored: single_view(stored, 64), samples), read, len(rows), 256)
    )


def compute_min_gain(labels: Int[Tensor, "n"]) -> float:
    """Return the relative decrease of the EER that chance does not explain, about a quarter for four identities."""
    return max(0.02, 0.5 / math.sqrt(len(labels.unique())))


def compute_eer(features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> float:
    """Return the EER of the cosines of all pairs."""
    return float(all_pairs(features, labels, worst=1).roc.eer)


def can_fit_discriminant(labels: Int[Tensor, "n"]) -> bool:
    """Return whether there are two classes or more, one of them with several samples."""
    counts = labels.unique(return_counts=True)[1]
    return len(counts) > 1 and int(counts.max()) > 1


class _Voices(NamedTuple):
    """Windows of recordings, and the recordings.

    Attributes:
        spectra: The spectrum of each window.
        features: The direction of each window.
        recordings: The recording of each window.
        labels: The identity of each recording.
    """

    spectra: Float[Tensor, "w frames bands"]
    features: Float[Tensor, "w d"]
    recordings: Int[Tensor, "w"]
    labels: Int[Tensor, "n"]


def _read_voices(embedder: Embedder, parts: Sequence[Samples]) -> _Voices:
    """Read and embed the windows of recordings; identities of different parts get different labels."""
    spectra, features, recordings, labels = [], [], [], []
    count = identities = 0
    for samples in parts:
        rows = first_identities(samples.labels, MAX_RECORDINGS // len(parts))
        inputs, owner = _read_inputs(embedder, samples, rows)
        spectra.append(inputs)
        with torch.no_grad():
            embedded = [embedder.of_inputs(block.to(embedder.device)).cpu() for block in inputs.split(64)]
        features.append(normalize(torch.cat(embedded)))
        recordings.append(owner + count)
        labels.append(samples.labels[rows] + identities)
        count, identities = count + len(rows), identities + len(samples.classes)
    return _Voices(torch.cat(spectra), torch.cat(features), torch.cat(recordings), torch.cat(labels))


def _cross_validate_voices(embedder: Embedder, voices: _Voices) -> tuple[float, float] | None:
    """Return the EER of the network alone and joined with descriptors, or None if no fold has enough recordings."""
    names = voices.labels.unique()
    cosines: list[tuple[Tensor, Tensor]] = []
    same: list[Tensor] = []
    for i in range(FOLDS):
        tested = torch.isin(voices.labels, names[i::FOLDS])
        if not can_fit_discriminant(voices.labels[~tested]) or not can_fit_discriminant(voices.labels[tested]):
            continue
        windows = tested[voices.recordings]
        train_labels = voices.labels[voices.recordings[~windows]]
        fitted = _fit_voice_descriptors(embedder, voices.spectra[~windows], train_labels)
        with torch.no_grad():
            described = torch.cat([fitted.network(block) for block in voices.spectra[windows].split(256)])
        labels = voices.labels[tested]
        owner = torch.unique(voices.recordings[windows], return_inverse=True)[1]
        joined = _concatenate_weighted(voices.features[windows], described, VOICE_NETWORK_WEIGHT)
        first, second = torch.triu_indices(len(labels), len(labels), 1)
        means = [mean_directions(x, owner, len(labels)) for x in (voices.features[windows], joined)]
        cosines.append(((means[0][first] * means[0][second]).sum(1), (means[1][first] * means[1][second]).sum(1)))
        same.append(labels[first] == labels[second])
    if not cosines:
        return None
    network_alone, joined = (torch.cat(blocks) for blocks in zip(*cosines, strict=True))
    return float(roc_curve(network_alone, torch.cat(same)).eer), float(roc_curve(joined, torch.cat(same)).eer)


def _fit_voice_descriptors(embedder: Embedder, spectra: Tensor, labels: Tensor) -> FittedDescriptors:
    preprocessing = cast(AudioPreprocessing, embedder.preprocessing)
    return fit_descriptors(spectra[:, None], labels, names=VOICE_DESCRIPTORS, logarithm=not preprocessing.logarithm)


def _concatenate_weighted(first: Tensor, second: Tensor, weight: float) -> Tensor:
    """Concatenate directions so that the cosine is the weighted mean of their cosines; ``weight`` is that of the first."""
    return torch.cat([math.sqrt(weight) * first, math.sqrt(1 - weight) * second], 1)


def _find_obstacle(inputs: Tensor, labels: Tensor, images: int) -> str | None:
    """Return the reason why descriptors cannot be fitted or are not needed, or None."""
    if inputs.ndim not in (3, 4) or min(inputs.shape[-2:]) < MIN_SIDE:
        return f"the input is not a picture of at least {MIN_SIDE}×{MIN_SIDE} pixels"
    if images > MAX_DESCRIBED_TRAINING_SET:
        return f"{images} training pictures are enough for a network alone"
    if not can_fit_discriminant(labels):
        return "fitting them needs two identities, one of them with two pictures"
    return None


def _measure_weights(
    embedder: Embedder, fitted: FittedDescriptors, center: Tensor, selection: Samples
) -> dict[float, float]:
    """Return the EER of the selection identities for each weight of the network."""
    rows = torch.arange(len(selection))
    views: list[tuple[Tensor, Tensor]] = []
    for mirror in (False, True) if embedder.preprocessing.mirror else (False,):
        inputs, owner = _read_inputs(embedder, selection, rows, mirror)
        with torch.no_grad():
            described = torch.cat([fitted.network(block.to(center.device)) for block in inputs.split(128)])
        described = mean_directions(described, owner, len(selection))
        views.append((normalize(embed_directions(embedder, selection, rows, mirror) - center), described))
    eers = {}
    for weight in WEIGHTS:
        parts = [_concatenate_weighted(embedded, described, weight) for embedded, described in views]
        eers[weight] = compute_eer(torch.cat(parts, 1), selection.labels)
    return eers


def _build_ensemble(
    embedders: Sequence[Embedder],
    centers: Sequence[Tensor],
    descriptors: Descriptors | None = None,
    weight: float = 1.0,
) -> Embedder:
    """Return an embedder that joins networks, which share ``weight``, and descriptors; descriptors alone if ``weight`` is 0."""
    first = embedders[0]
    modules: list[nn.Module] = [embedder.network for embedder in embedders]
    calls = [embedder.call for embedder in embedders]
    dims, weights = [len(center) for center in centers], [weight / len(embedders)] * len(embedders)
    if descriptors is not None:
        names = ("in_channels", "input_size", "dims", "filters", "logarithm")
        arguments = {name: getattr(descriptors, name) for name in names}
        call = Call(Descriptors, {**arguments, "weights": descriptors.shares})
        if weight == 0:
            return Embedder(descriptors, first.preprocessing, call, first.card)
        modules, calls = [*modules, descriptors], [*calls, call]
        dims, weights = [*dims, descriptors.feature_dim], [*weights, 1 - weight]
    network = Joined(modules, dims, weights)
    network.centers[: sum(map(len, centers))] = torch.cat(list(centers))
    arguments = {"networks": tuple(calls), "dims": tuple(dims), "weights": tuple(weights)}
    return Embedder(network, first.preprocessing, None if None in calls else Call(Joined, arguments), first.card)


def _read_inputs(
    embedder: Embedder, samples: Samples, rows: Int[Tensor, "k"], mirror: bool = False
) -> tuple[Tensor, Int[Tensor, "m"]]:
    """Return samples as inputs of the network, all windows of each, and the index in ``rows`` of each input."""
    prepare = embedder.preprocessing.normalize
    if not isinstance(samples, WindowSamples):
        inputs = torch.cat([prepare(samples.batch(block)[0]).float().cpu() for block in rows.split(256)])
        return inputs.flip(-1) if mirror else inputs, torch.arange(len(rows))
    windows = samples.list_windows(rows)
    inputs = torch.cat([prepare(block).float().cpu() for block in torch.cat(windows).split(256)])
    return inputs, torch.arange(len(rows)).repeat_interleave(torch.tensor([len(part) for part in windows]))


def _add_channel(inputs: Tensor) -> Tensor:
    """Return pictures as they are and spectra with a channel axis."""
    return inputs if inputs.ndim == 4 else inputs[:, None]


def _count_windows_per_sample(samples: Samples) -> int:
    """Return the mean number of windows, rounded up."""
    return math.ceil(sum(map(len, samples.windows)) / len(samples)) if isinstance(samples, WindowSamples) else 1
