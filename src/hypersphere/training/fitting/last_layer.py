"""The last layer of an embedder, fitted in closed form to training features and kept only if other identities say it helps."""

import dataclasses
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...config import Call
from ...data import PicturePreprocessing
from ...evaluation import all_pairs, discriminant
from ...geometry import normalize
from ...models import WithDiscriminant
from ...recognition import Embedder, extract_features
from ...recognition.baselines import first_identities
from ..datasets import Samples
from .choices import Choice

SHRINKS = (0.03, 0.1, 0.3, 1.0)  # of the discriminant; larger ones trust few training pictures less
MAX_PICTURES = 10_000  # training pictures that the discriminant is fitted to
MIN_GAIN = 0.02  # by which part the EER must fall for a more complicated embedder
ELONGATED = 1.8  # longer over shorter side from which on pictures are not mirrored


def choose_last_layer(embedder: Embedder, train: Samples, selection: Samples) -> tuple[Embedder, Choice]:
    """Return the embedder that is best on the selection identities, and the reason.

    Candidates are the embedder as it is, with a linear discriminant behind it (:class:`~hypersphere.models.WithDiscriminant`)
    of several strengths, and each with the features of the mirror image. A candidate must lower the EER by at least 2 % of
    its value to be preferred to a simpler one. The discriminant is fitted to the training identities; the chosen one is
    fitted again to training and selection identities together.

    Args:
        embedder: The trained or pretrained embedder.
        train: Samples of the training identities, as its preprocessing stores them.
        selection: Samples of other identities, which are not those of the report.
    """
    known = first_identities(train.labels, MAX_PICTURES)
    fitted, labels = _directions(embedder, train, known), train.labels[known]
    rows = torch.arange(len(selection))
    mirrored = embedder.preprocessing.mirror
    views = [_directions(embedder, selection, rows)]
    if mirrored or _can_mirror(embedder):
        views.append(_directions(embedder, selection, rows, mirror=True))
    plain = _eer(torch.cat(views[: 1 + mirrored], 1), selection.labels)
    best: tuple[float, float | None, bool] = (plain, None, mirrored)
    strengths: Sequence[float | None] = (None, *SHRINKS) if _can_discriminate(labels) else (None,)
    for mirror in sorted({mirrored, len(views) > 1}):
        for shrink in strengths:
            layer = torch.nn.Identity() if shrink is None else discriminant(fitted, labels, shrink)
            with torch.no_grad():
                eer = _eer(torch.cat([normalize(layer(view)) for view in views[: 1 + mirror]], 1), selection.labels)
            if eer < (1 - MIN_GAIN) * best[0]:
                best = (eer, shrink, mirror)
    eer, shrink, mirror = best
    result = embedder
    if mirror != mirrored:
        preprocessing = dataclasses.replace(embedder.preprocessing, mirror=mirror)  # type: ignore[type-var]
        result = Embedder(result.network, preprocessing, result.call, result.card)
    if shrink is not None:
        every = torch.cat([fitted, views[0]])
        whose = torch.cat([labels, selection.labels + int(labels.max()) + 1])
        result = _append(result, discriminant(every, whose, shrink))
    return result, _explain(shrink, mirror and not mirrored, plain, eer, len(selection.labels.unique()))


def _append(embedder: Embedder, layer: torch.nn.Linear) -> Embedder:
    """The embedder with the layer behind its network."""
    network = WithDiscriminant(embedder.network, layer.in_features, layer.out_features)
    network.projection.load_state_dict(layer.state_dict())
    arguments = {"network": embedder.call, "in_features": layer.in_features, "feature_dim": layer.out_features}
    call = None if embedder.call is None else Call(WithDiscriminant, arguments)
    return Embedder(network, embedder.preprocessing, call, embedder.card)


def _directions(
    embedder: Embedder, samples: Samples, rows: Int[Tensor, "k"], mirror: bool = False
) -> Float[Tensor, "k d"]:
    """Features of one view of samples, scaled to length 1."""
    preprocessing = embedder.preprocessing
    if preprocessing.mirror:
        preprocessing = dataclasses.replace(preprocessing, mirror=False)  # type: ignore[type-var]
    single = Embedder(embedder.network, preprocessing)

    def read(index: Tensor) -> Tensor:
        stored = samples.batch(rows[index])[0]
        return stored.flip(-1) if mirror else stored

    return normalize(extract_features(lambda stored: single(stored, 64), read, len(rows), 256))


def _can_mirror(embedder: Embedder) -> bool:
    """Whether mirror images are tried: of pictures that are not as long as spectra."""
    prepared = embedder.preprocessing
    if not isinstance(prepared, PicturePreprocessing):
        return False
    return max(prepared.size) < ELONGATED * min(prepared.size)


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
