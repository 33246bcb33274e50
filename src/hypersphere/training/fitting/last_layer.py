"""The choice of the last layer of a trained embedder: a linear discriminant, and the features of mirror images."""

import dataclasses

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...config import Call
from ...evaluation import TooFewIdentitiesError, compare_embedders, fit_discriminant
from ...geometry import normalize
from ...models import WithDiscriminant
from ...models.descriptors import MIN_ELONGATION
from ...recognition import Embedder
from ...recognition.baselines import first_identities
from ..datasets import Samples
from .choices import Choice
from .ensemble import can_fit_discriminant, compute_eer, compute_min_gain, embed_directions

SHRINKS = (0.03, 0.1, 0.3, 1.0)  # candidates for the shrinkage of the discriminant
MAX_PICTURES = 10_000  # training pictures that the discriminant is fitted to


def choose_last_layer(
    embedder: Embedder, train: Samples, selection: Samples, *, pretrained: bool = False
) -> tuple[Embedder, Choice]:
    """Return the embedder that is best on the selection identities, and the reason.

    Candidates are the embedder as it is, the embedder with a linear discriminant behind it
    (:class:`~hypersphere.models.WithDiscriminant`) of several strengths, and each of them with the features of the mirror
    image. A candidate is preferred to a simpler one only if it lowers the EER by more than chance would. The discriminant is
    fitted to the training identities.

    Args:
        embedder: The trained or pretrained embedder.
        train: Samples of the training identities, as its preprocessing stores them.
        selection: Samples of other identities, which are not those of the report.
        pretrained: Whether the embedder stays as it is unless the 95 % interval of the difference excludes zero, because a
            pretrained network must not become worse. The identities of the selection are resampled for the interval.
    """
    train_rows = first_identities(train.labels, MAX_PICTURES)
    features, labels = embed_directions(embedder, train, train_rows), train.labels[train_rows]
    rows = torch.arange(len(selection))
    is_mirrored = embedder.preprocessing.mirror
    views = [embed_directions(embedder, selection, rows)]
    if is_mirrored or _can_mirror(embedder):
        views.append(embed_directions(embedder, selection, rows, mirror=True))
    unchanged = torch.cat(views[: 1 + is_mirrored], 1)
    unchanged_eer = compute_eer(unchanged, selection.labels)

    best, best_eer = unchanged, unchanged_eer
    shrink, mirror = None, is_mirrored
    gain = compute_min_gain(selection.labels)
    shrinks: tuple[float | None, ...] = (None, *SHRINKS) if can_fit_discriminant(labels) else (None,)
    for use_mirror in sorted({is_mirrored, len(views) > 1}):
        for candidate in shrinks:
            layer = nn.Identity() if candidate is None else fit_discriminant(features, labels, candidate)
            with torch.no_grad():
                mapped = torch.cat([normalize(layer(view)) for view in views[: 1 + use_mirror]], 1)
            eer = compute_eer(mapped, selection.labels)
            if eer < (1 - gain) * best_eer:
                best, best_eer, shrink, mirror = mapped, eer, candidate, use_mirror

    identities = len(selection.labels.unique())
    if best is unchanged:
        tried = "neither a linear discriminant nor mirror images clearly lower"
        if is_mirrored or len(views) == 1:
            tried = "a linear discriminant does not clearly lower"
        reason = f"{tried} the EER of the {identities} selection identities ({100 * unchanged_eer:.3g} %)"
        return embedder, Choice("last_layer", "none", reason)
    reason = f"the EER of the {identities} selection identities falls from {100 * unchanged_eer:.3g} % to {100 * best_eer:.3g} %"
    parts = [] if shrink is None else [f"a linear discriminant (shrinkage {shrink:g})"]
    if mirror and not is_mirrored:
        parts.append("mirror images")
    value = " and ".join(parts)
    if pretrained and not _is_clearly_better(best, unchanged, selection.labels):
        reason = f"with {value} {reason}, but this may be chance, so the pretrained features are not changed"
        return embedder, Choice("last_layer", "none", reason)
    result = embedder
    if mirror != is_mirrored:
        preprocessing = dataclasses.replace(embedder.preprocessing, mirror=mirror)  # type: ignore[type-var]
        result = Embedder(result.network, preprocessing, result.call, result.card)
    if shrink is not None:
        result = _append_layer(result, fit_discriminant(features, labels, shrink))
    return result, Choice("last_layer", value, reason)


def _is_clearly_better(first: Float[Tensor, "n d"], second: Float[Tensor, "n e"], labels: Int[Tensor, "n"]) -> bool:
    """Return whether the EER of the first features is lower and the 95 % interval of the difference excludes zero."""
    try:
        return compare_embedders(first, second, labels).difference.high < 0
    except TooFewIdentitiesError:
        return False


def _append_layer(embedder: Embedder, layer: nn.Linear) -> Embedder:
    """Return the embedder with the layer appended to its network."""
    network = WithDiscriminant(embedder.network, layer.in_features, layer.out_features)
    network.projection.load_state_dict(layer.state_dict())
    arguments = {"network": embedder.call, "in_features": layer.in_features, "feature_dim": layer.out_features}
    call = None if embedder.call is None else Call(WithDiscriminant, arguments)
    return Embedder(network, embedder.preprocessing, call, embedder.card)


def _can_mirror(embedder: Embedder) -> bool:
    """Return whether mirror images make sense, unlike those of long pictures such as spectra."""
    shape = embedder.preprocessing.shape
    return len(shape) == 3 and max(shape[1:]) < MIN_ELONGATION * min(shape[1:])
