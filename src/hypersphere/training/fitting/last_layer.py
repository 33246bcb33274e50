"""The last layers of an embedder, fitted in closed form to training features, chosen by identities that were not trained on."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...config import Call
from ...data import AudioPreprocessing
from ...evaluation import (
    FittedDescriptors,
    TooFewIdentitiesError,
    all_pairs,
    compare_embedders,
    fit_discriminant,
    fit_descriptors,
    roc_curve,
)
from ...geometry import normalize
from ...models import Descriptors, Joined, WithDiscriminant
from ...recognition import Embedder, extract_features
from ...recognition.baselines import first_identities
from ..datasets import Samples, WindowSamples, embed_with, mean_directions, read_samples
from .choices import Choice

SHRINKS = (0.03, 0.1, 0.3, 1.0)  # of the discriminant; larger ones trust few training pictures less
MAX_PICTURES = 10_000  # training pictures that the discriminant is fitted to
MAX_DESCRIBED = 4000  # training pictures that descriptors are fitted to
MAX_TRAINING_PICTURES = 20_000  # above, a network needs no descriptors beside it
WEIGHTS = (0.0, 0.15, 0.3, 0.5, 0.7, 0.85, 1.0)  # shares of the network's cosine beside that of descriptors
USUAL_WEIGHT = 0.3  # best over several kinds of small sets (docs/log/fit.md)
SPECTRAL = ("row statistics", "row covariances")  # descriptors that do not depend on what is said when
# Descriptors beside a pretrained network of voices. A microphone multiplies each band by a constant, which adds a constant to
# its logarithm: it changes the mean of the band, but not the covariances.
MICROPHONE_FREE = ("row covariances",)
VOICE_WEIGHT = 0.8  # of a pretrained network of voices beside descriptors (docs/log/voices.md)
FOLDS = 3  # of identities, to compare embedders by cross-validation
MIN_PER_FOLD = 2  # identities
MAX_RECORDINGS = 1500  # that descriptors beside a pretrained network are fitted to
MIN_SIDE = 8  # pixels of pictures that have descriptors
MIN_ELONGATION = 1.8  # longer over shorter side from which on pictures are not mirrored


def refine_embedder(
    embedder: Embedder,
    train: Samples,
    selection: Samples | None,
    *,
    pretrained: bool = False,
    further: Sequence[Embedder] = (),
) -> tuple[Embedder, list[Choice]]:
    """Return the embedder with the last layer and the descriptors that the selection identities choose, and the reasons.

    Args:
        embedder: The trained embedder.
        train: Samples of the training identities, as its preprocessing stores them.
        selection: Samples of other identities, which are not those of the report; None if there are too few.
        pretrained: Whether the network started from pretrained weights, which descriptors rarely improve.
        further: Embedders with other networks and the same preprocessing. They were also trained on the selection identities,
            so they have no part in the choices. Their features are joined to those of the embedder.

    Returns:
        The embedder, and the choices with their reasons.
    """
    if pretrained and further:
        return join_networks([embedder, *further], train), []
    if pretrained:
        return _refine_pretrained(embedder, train, selection)
    choices = []
    if selection is not None and not further:
        embedder, choice = choose_last_layer(embedder, train, selection)
        choices.append(choice)
    embedder, choice = join_descriptors(embedder, train, selection, further=further)
    return embedder, [*choices, choice]


def join_networks(embedders: Sequence[Embedder], train: Samples) -> Embedder:
    """Return an embedder whose cosine is the mean of the cosines of several embedders with the same preprocessing.

    Args:
        embedders: Embedders that differ in their network; a single one is returned as it is.
        train: Samples of the training identities, whose mean direction is subtracted.
    """
    if len(embedders) == 1:
        return embedders[0]
    known = first_identities(train.labels, MAX_DESCRIBED)
    return _join(embedders, [_directions(embedder, train, known).mean(0) for embedder in embedders])


def _refine_pretrained(embedder: Embedder, train: Samples, selection: Samples | None) -> tuple[Embedder, list[Choice]]:
    """Choose the last layer of a pretrained network and, for recordings, descriptors beside it, both only with evidence."""
    if selection is None:
        why = "so few identities cannot tell whether a linear discriminant helps: the pretrained features stay as they are"
        choices = [Choice("last_layer", "none", why)]
    else:
        embedder, choice = choose_last_layer(embedder, train, selection, pretrained=True)
        choices = [choice]
    if isinstance(train, WindowSamples):
        embedder, choice = join_voice_descriptors(embedder, [train] if selection is None else [train, selection])
        choices.append(choice)
    return embedder, choices


def join_voice_descriptors(embedder: Embedder, known: Sequence[Samples]) -> tuple[Embedder, Choice]:
    """Put covariances of log-mel bands beside a pretrained network of voices if cross-validation over identities says so.

    The identities are divided into three folds. Descriptors fitted to two folds are joined to the network and measured on the
    third, beside the network alone. If the network was tuned on these identities, its EER is too low, so that descriptors are
    joined less often. The final fit is to all identities.

    Args:
        embedder: The pretrained embedder.
        known: Samples of identities that are not those of the report; the parts have no identity in common.

    Returns:
        The embedder, joined with descriptors or as it was, and the choice with its reason.
    """
    spectra, features, owner, labels = _read_voices(embedder, known)
    names = labels.unique()
    if len(names) < FOLDS * MIN_PER_FOLD or not _can_discriminate(labels):
        why = f"{len(names)} identities are too few to see whether descriptors of the spectrum help"
        return embedder, Choice("descriptors", "none", why)
    scores: list[tuple[Tensor, ...]] = []
    for i in range(FOLDS):
        tested = torch.isin(labels, names[i::FOLDS])
        inside = tested[owner]
        if not _can_discriminate(labels[~tested]) or not _can_discriminate(labels[tested]):
            continue
        fitted = _fit_voices(embedder, spectra[~inside], labels[owner[~inside]])
        with torch.no_grad():
            described = torch.cat([fitted.network(part) for part in spectra[inside].split(256)])
        mine, place = labels[tested], torch.unique(owner[inside], return_inverse=True)[1]
        first, second = torch.triu_indices(len(mine), len(mine), 1)
        alone = mean_directions(features[inside], place, len(mine))
        both = mean_directions(_weigh_sides(features[inside], described, VOICE_WEIGHT), place, len(mine))
        pairs = [(x[first] * x[second]).sum(1) for x in (alone, both)]
        scores.append((*pairs, mine[first] == mine[second]))
    if not scores:
        return embedder, Choice("descriptors", "none", "too few identities have several recordings")
    alone, both, same = (torch.cat(parts) for parts in zip(*scores, strict=True))
    eers = [float(roc_curve(part, same).eer) for part in (alone, both)]
    why = (
        f"with covariances of bands the EER of {len(names)} identities, each left out of the fit in turn, is "
        f"{100 * eers[1]:.3g} %, without {100 * eers[0]:.3g} %"
    )
    if eers[1] >= eers[0]:
        return embedder, Choice("descriptors", "none", why)
    fitted = _fit_voices(embedder, spectra, labels[owner])
    joined = _join([embedder], [features.new_zeros(features.shape[1])], fitted.network, VOICE_WEIGHT)
    return joined, Choice("descriptors", f"row covariances, {1 - VOICE_WEIGHT:.2g} of the cosine", why)


def _read_voices(embedder: Embedder, known: Sequence[Samples]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return spectra and directions of all windows, the recording of each window, and the identity of each recording."""
    spectra, features, owners, labels = [], [], [], []
    count = identities = 0
    for samples in known:
        rows = first_identities(samples.labels, MAX_RECORDINGS // len(known))
        inputs, owner = _inputs(embedder, samples, rows)
        spectra.append(inputs)
        with torch.no_grad():
            found = [embedder.of_inputs(part.to(embedder.device)).cpu() for part in inputs.split(64)]
        features.append(normalize(torch.cat(found)))
        owners.append(owner + count)
        labels.append(samples.labels[rows] + identities)
        count, identities = count + len(rows), identities + len(samples.classes)
    return torch.cat(spectra), torch.cat(features), torch.cat(owners), torch.cat(labels)


def _fit_voices(embedder: Embedder, spectra: Tensor, labels: Tensor) -> FittedDescriptors:
    preprocessing = cast(AudioPreprocessing, embedder.preprocessing)
    return fit_descriptors(spectra[:, None], labels, names=MICROPHONE_FREE, logarithm=not preprocessing.logarithm)


def _weigh_sides(first: Tensor, second: Tensor, weight: float) -> Tensor:
    """Return features whose cosine is a weighted mean: ``weight`` of the first directions, the rest of the second."""
    return torch.cat([math.sqrt(weight) * first, math.sqrt(1 - weight) * second], 1)


def choose_last_layer(
    embedder: Embedder, train: Samples, selection: Samples, *, pretrained: bool = False
) -> tuple[Embedder, Choice]:
    """Return the embedder that is best on the selection identities, and the reason.

    Candidates are the embedder as it is, with a linear discriminant behind it (:class:`~hypersphere.models.WithDiscriminant`)
    of several strengths, and each with the features of the mirror image. A candidate must lower the EER by more than chance
    would (:func:`_min_gain`) to be preferred to a simpler one. The discriminant is fitted to the training identities.

    Args:
        embedder: The trained or pretrained embedder.
        train: Samples of the training identities, as its preprocessing stores them.
        selection: Samples of other identities, which are not those of the report.
        pretrained: Whether the embedder stays as it is unless the 95 % interval of the difference excludes zero, because a
            pretrained network must not become worse. The identities of the selection are resampled for the interval.
    """
    known = first_identities(train.labels, MAX_PICTURES)
    fitted, labels = _directions(embedder, train, known), train.labels[known]
    rows = torch.arange(len(selection))
    mirrored = embedder.preprocessing.mirror
    views = [_directions(embedder, selection, rows)]
    if mirrored or _can_mirror(embedder):
        views.append(_directions(embedder, selection, rows, mirror=True))
    unchanged = torch.cat(views[: 1 + mirrored], 1)
    plain = _eer(unchanged, selection.labels)
    best: tuple[float, float | None, bool] = (plain, None, mirrored)
    chosen = unchanged
    gain = _min_gain(selection.labels)
    strengths: Sequence[float | None] = (None, *SHRINKS) if _can_discriminate(labels) else (None,)
    for mirror in sorted({mirrored, len(views) > 1}):
        for shrink in strengths:
            layer = torch.nn.Identity() if shrink is None else fit_discriminant(fitted, labels, shrink)
            with torch.no_grad():
                features = torch.cat([normalize(layer(view)) for view in views[: 1 + mirror]], 1)
            eer = _eer(features, selection.labels)
            if eer < (1 - gain) * best[0]:
                best, chosen = (eer, shrink, mirror), features
    eer, shrink, mirror = best
    people = len(selection.labels.unique())
    if pretrained and chosen is not unchanged and not _is_clearly_better(chosen, unchanged, selection.labels):
        why = (
            f"the EER of {people} selection identities is {100 * plain:.3g} % without a discriminant or mirror images and "
            f"{100 * eer:.3g} % with them, which may be chance: the pretrained features stay as they are"
        )
        return embedder, Choice("last_layer", "none", why)
    result = embedder
    if mirror != mirrored:
        preprocessing = dataclasses.replace(embedder.preprocessing, mirror=mirror)  # type: ignore[type-var]
        result = Embedder(result.network, preprocessing, result.call, result.card)
    if shrink is not None:
        result = _append(result, fit_discriminant(fitted, labels, shrink))
    return result, _explain(shrink, mirror and not mirrored, plain, eer, people)


def join_descriptors(
    embedder: Embedder,
    train: Samples,
    selection: Samples | None,
    *,
    usual: float = USUAL_WEIGHT,
    further: Sequence[Embedder] = (),
) -> tuple[Embedder, Choice]:
    """Put classical descriptors beside the network if that is better on the selection identities, and return the reason.

    Descriptors are fitted in closed form (:func:`~hypersphere.evaluation.fit_descriptors`). The cosine of the result is a
    weighted mean of the network's cosine and of the descriptors' cosine. A weight other than the usual one must lower the
    EER of the selection identities by more than chance would. With the weight 0 the network is left out, so that a run
    never ends with an embedder worse than its descriptors.

    Args:
        embedder: The trained embedder.
        train: Samples of the training identities, as its preprocessing stores them.
        selection: Samples of other identities, which are not those of the report; None if there are too few.
        usual: The weight of the network without evidence for another one; 1 for a pretrained network.
        further: Embedders with other networks. All networks share the weight equally.
    """
    whole = join_networks([embedder, *further], train)
    known = first_identities(train.labels, MAX_DESCRIBED // _windows_per_sample(train))
    inputs, owner = _inputs(embedder, train, known)
    labels = train.labels[known][owner]
    obstacle = _find_obstacle(inputs, labels, len(train))
    if obstacle is not None:
        return whole, Choice("descriptors", "none", obstacle)
    names = SPECTRAL if isinstance(embedder.preprocessing, AudioPreprocessing) else None
    fitted = fit_descriptors(inputs if inputs.ndim == 4 else inputs[:, None], labels, names=names)
    center = _directions(embedder, train, known).mean(0)
    weight, rates = usual, ""
    if selection is not None:
        eers = _measure_weights(embedder, fitted, center, selection)
        best = min(WEIGHTS, key=lambda w: (eers[w], abs(w - usual)))
        if eers[best] < (1 - _min_gain(selection.labels)) * eers[usual]:
            weight = best
        people = len(selection.labels.unique())
        rates = (
            f"the EER of {people} selection identities is {100 * eers[1.0]:.3g} % with "
            f"{'the first network' if further else 'the network'} alone, "
            f"{100 * eers[0.0]:.3g} % with descriptors alone and {100 * eers[weight]:.3g} % with this weight"
        )
        others, owner = _inputs(embedder, selection, torch.arange(len(selection)))
        every = torch.cat([inputs, others])
        whose = torch.cat([labels, selection.labels[owner] + int(labels.max()) + 1])
        if weight < 1:
            pictures = every if every.ndim == 4 else every[:, None]
            fitted = fit_descriptors(pictures, whose, names=names, mirror=fitted.mirrored)
    if weight == 1:
        return whole, Choice("descriptors", "none", rates or "the network is used alone")
    used = f"{', '.join(fitted.network.weights)} with PCA and LDA, {1 - weight:.2g} of the cosine"
    centers = [center, *(_directions(other, train, known).mean(0) for other in further)]
    return _join([embedder, *further], centers, fitted.network, weight), Choice(
        "descriptors",
        used,
        rates or "so few identities cannot choose a weight: this one is the best over many small sets",
    )


def _min_gain(labels: Int[Tensor, "n"]) -> float:
    """Return the relative decrease of the EER that chance does not explain, about a quarter for four identities."""
    return max(0.02, 0.5 / math.sqrt(len(labels.unique())))


def _is_clearly_better(first: Tensor, second: Tensor, labels: Int[Tensor, "n"]) -> bool:
    """Return whether the 95 % interval of the difference of EERs, over identities, says that the first is lower."""
    try:
        return compare_embedders(first, second, labels).difference.high < 0
    except TooFewIdentitiesError:
        return False


def _find_obstacle(inputs: Tensor, labels: Tensor, images: int) -> str | None:
    """Return the reason why descriptors are not fitted, or None."""
    if inputs.ndim not in (3, 4) or min(inputs.shape[-2:]) < MIN_SIDE:
        return f"the input is not a picture of at least {MIN_SIDE}×{MIN_SIDE} pixels"
    if images > MAX_TRAINING_PICTURES:
        return f"{images} training pictures are enough for a network alone"
    if not _can_discriminate(labels):
        return "two identities with two pictures are needed to fit them"
    return None


def _measure_weights(
    embedder: Embedder, fitted: FittedDescriptors, center: Tensor, selection: Samples
) -> dict[float, float]:
    """Return the EER of the selection identities for each weight of the network."""
    rows = torch.arange(len(selection))
    views: list[tuple[Tensor, Tensor]] = []
    for mirror in (False, True) if embedder.preprocessing.mirror else (False,):
        inputs, owner = _inputs(embedder, selection, rows, mirror)
        with torch.no_grad():
            described = torch.cat([fitted.network(part.to(center.device)) for part in inputs.split(128)])
        described = mean_directions(described, owner, len(selection))
        views.append((normalize(_directions(embedder, selection, rows, mirror) - center), described))
    eers = {}
    for weight in WEIGHTS:
        parts = [_weigh_sides(net, other, weight) for net, other in views]
        eers[weight] = _eer(torch.cat(parts, 1), selection.labels)
    return eers


def _join(
    embedders: Sequence[Embedder], centers: Sequence[Tensor], described: Descriptors | None = None, weight: float = 1.0
) -> Embedder:
    """Return an embedder that joins networks and descriptors; descriptors alone if the weight of the networks is 0."""
    first = embedders[0]
    modules: list[torch.nn.Module] = [embedder.network for embedder in embedders]
    calls = [embedder.call for embedder in embedders]
    dims, weights = [len(center) for center in centers], [weight / len(embedders)] * len(embedders)
    if described is not None:
        arguments = {
            name: getattr(described, name) for name in ("in_channels", "input_size", "dims", "filters", "logarithm")
        }
        call = Call(Descriptors, {**arguments, "weights": described.shares})
        if weight == 0:
            return Embedder(described, first.preprocessing, call, first.card)
        modules, calls = [*modules, described], [*calls, call]
        dims, weights = [*dims, described.feature_dim], [*weights, 1 - weight]
    network = Joined(modules, dims, weights)
    network.centers[: sum(map(len, centers))] = torch.cat(list(centers))
    parts = {"networks": tuple(calls), "dims": tuple(dims), "weights": tuple(weights)}
    whole = None if None in calls else Call(Joined, parts)
    return Embedder(network, first.preprocessing, whole, first.card)


def _inputs(
    embedder: Embedder, samples: Samples, rows: Int[Tensor, "k"], mirror: bool = False
) -> tuple[Tensor, Int[Tensor, "m"]]:
    """Return samples as inputs of the network, all windows of each, and the place in ``rows`` of each input."""
    prepare = embedder.preprocessing.normalize
    if not isinstance(samples, WindowSamples):
        inputs = torch.cat([prepare(samples.batch(part)[0]).float().cpu() for part in rows.split(256)])
        return inputs.flip(-1) if mirror else inputs, torch.arange(len(rows))
    windows = samples.list_windows(rows)
    inputs = torch.cat([prepare(part).float().cpu() for part in torch.cat(windows).split(256)])
    return inputs, torch.arange(len(rows)).repeat_interleave(torch.tensor([len(part) for part in windows]))


def _append(embedder: Embedder, layer: torch.nn.Linear) -> Embedder:
    """Return the embedder with the layer appended to its network."""
    network = WithDiscriminant(embedder.network, layer.in_features, layer.out_features)
    network.projection.load_state_dict(layer.state_dict())
    arguments = {"network": embedder.call, "in_features": layer.in_features, "feature_dim": layer.out_features}
    call = None if embedder.call is None else Call(WithDiscriminant, arguments)
    return Embedder(network, embedder.preprocessing, call, embedder.card)


def _directions(
    embedder: Embedder, samples: Samples, rows: Int[Tensor, "k"], mirror: bool = False
) -> Float[Tensor, "k d"]:
    """Return the features of one view of samples, scaled to length 1."""
    preprocessing = embedder.preprocessing
    if preprocessing.mirror:
        preprocessing = dataclasses.replace(preprocessing, mirror=False)  # type: ignore[type-var]
    single = Embedder(embedder.network, preprocessing)

    def read(index: Tensor) -> Any:
        stored = read_samples(samples, rows[index])
        return stored.flip(-1) if mirror else stored

    return normalize(extract_features(embed_with(lambda stored: single(stored, 64), samples), read, len(rows), 256))


def _can_mirror(embedder: Embedder) -> bool:
    """Return whether mirror images are tried, which excludes long pictures such as spectra."""
    shape = embedder.preprocessing.shape
    return len(shape) == 3 and max(shape[1:]) < MIN_ELONGATION * min(shape[1:])


def _windows_per_sample(samples: Samples) -> int:
    """Return the mean number of windows, rounded up."""
    return math.ceil(sum(map(len, samples.windows)) / len(samples)) if isinstance(samples, WindowSamples) else 1


def _can_discriminate(labels: Int[Tensor, "n"]) -> bool:
    counts = labels.unique(return_counts=True)[1]
    return len(counts) > 1 and int(counts.max()) > 1


def _eer(features: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> float:
    return float(all_pairs(features, labels, worst=1).roc.eer)


def _explain(shrink: float | None, mirrored: bool, plain: float, eer: float, identities: int) -> Choice:
    rates = f"the EER of {identities} selection identities is {100 * plain:.3g} % without"
    if shrink is None and not mirrored:
        return Choice("last_layer", "none", f"{rates} a discriminant or mirror images, and not lower with them")
    parts = ([] if shrink is None else [f"a linear discriminant (shrinkage {shrink:g})"]) + ["mirror images"] * mirrored
    return Choice("last_layer", " and ".join(parts), f"{rates} and {100 * eer:.3g} % with it")
