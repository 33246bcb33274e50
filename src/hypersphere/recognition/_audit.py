"""Audits of galleries: templates of the wrong person, near-duplicates of other people, poor pictures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..data import FaceQualityGate
from ..geometry import normalize
from .gallery import Gallery

Kind = Literal["outlier", "duplicate", "poor quality", "missing picture"]
CHUNK = 1024  # templates compared with all others at a time
MIN_FOR_STATISTICS = 8  # templates with another template of the same person; fewer do not estimate a quantile
STRANGERS_QUANTILE = 0.75  # of the cosines with the nearest other person; a template below it looks like a stranger


class Finding(NamedTuple):
    """A template that a person should review.

    Attributes:
        kind: ``"outlier"``: unlike the person's other templates. ``"duplicate"``: as similar to a template of another
            person as pictures of one person are. ``"poor quality"``: see ``text``. ``"missing picture"``: there is no file.
        identity: The person of the template.
        number: The number of the template.
        source: The path of its picture, empty if none was given.
        score: The best cosine with the person's other templates for an outlier, with the other person for a duplicate.
        other: The nearest other person.
        other_source: The nearest picture of the other person.
        text: The reason as a sentence.

    >>> Finding("outlier", "ada", 7, "7.png", 0.1, "bob", "2.png", "best cosine is 0.1").other
    'bob'
    """

    kind: Kind
    identity: str
    number: int
    source: str
    score: float | None
    other: str
    other_source: str
    text: str


class Neighbors(NamedTuple):
    """The best cosine of each template with its own person's other templates, and with those of other people."""

    own: Float[Tensor, "n"]
    """−∞ for the only template of a person"""
    other: Float[Tensor, "n"]
    other_index: Int[Tensor, "n"]


def audit(gallery: Gallery, *, threshold: float | None = None, quality: bool = True) -> list[Finding]:
    """Return the templates of a gallery that a person should review, the most doubtful first.

    A template is an *outlier* if its best cosine with the other templates of its person is below ``threshold``, low and
    below its cosine with another person, or, without a threshold, below what most templates reach with a stranger. It is a
    *duplicate* if its cosine with a template of another person reaches both ``threshold`` and the median cosine of
    pictures of one person.

    Args:
        gallery: The gallery. With an embedder that finds faces, pictures that still exist are also judged by size,
            sharpness, contrast, pose and detector score.
        threshold: The lowest cosine of one person; by default the one calibrated by FAR, or else by FPIR, if any.
        quality: Whether to read the pictures.

    Returns:
        One finding per template and kind.

    >>> with Gallery(":memory:") as gallery:
    ...     _ = gallery.enrol(["ada", "ada", "ada", "bob", "bob"], torch.eye(5)[[0, 0, 3, 3, 3]] + 0.01)
    ...     [(one.kind, one.identity) for one in audit(gallery)]
    [('outlier', 'ada'), ('duplicate', 'ada'), ('duplicate', 'bob'), ('duplicate', 'bob')]
    """
    templates = gallery.templates()
    if not templates.identities:
        return []
    if threshold is None:
        stored = gallery.calibrations
        point = stored.get("far", stored.get("fpir"))
        threshold = None if point is None else point.threshold
    numbers = {name: i for i, name in enumerate(dict.fromkeys(templates.identities))}
    owners = torch.tensor([numbers[name] for name in templates.identities])
    near = find_neighbors(templates.features, owners)
    outlier, duplicate = judge_neighbors(near, threshold)
    doubtful: list[tuple[float, Finding]] = []
    for i in (outlier | duplicate).nonzero().flatten().tolist():
        own, other, j = near.own[i].item(), near.other[i].item(), int(near.other_index[i])
        template = (templates.identities[i], templates.numbers[i], templates.sources[i])
        nearest = (templates.identities[j], templates.sources[j]) if other > -1.5 else ("", "")
        if outlier[i]:
            nearer = f"; {nearest[0]} is nearer with {other:.3f}" if other > own else ""
            text = f"best cosine with the other templates of {template[0]} is {own:.3f}{nearer}"
            doubtful.append((other - own, Finding("outlier", *template, own, *nearest, text)))
        if duplicate[i]:
            text = f"as similar to {nearest[0]} as two pictures of one person: cosine {other:.3f}"
            doubtful.append((other - 1, Finding("duplicate", *template, other, *nearest, text)))
    ordered = [finding for _, finding in sorted(doubtful, key=lambda one: -one[0])]
    if quality:
        rows = zip(templates.identities, templates.numbers, templates.sources, strict=True)
        for template in rows:
            finding = judge_picture(gallery, *template)
            if finding is not None:
                ordered.append(finding)
    return ordered


def find_neighbors(features: Float[Tensor, "n d"], owners: Int[Tensor, "n"]) -> Neighbors:
    """Return the nearest template of the same and of another person for each template.

    >>> near = find_neighbors(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0, 1]))
    >>> near.own[:2].tolist(), near.other.tolist()
    ([1.0, 1.0], [0.0, 0.0, 0.0])
    """
    unit = normalize(features.float())
    own, other, index = [], [], []
    for start in range(0, len(unit), CHUNK):
        stop = min(start + CHUNK, len(unit))
        cosines = unit[start:stop] @ unit.T
        same = owners[start:stop, None] == owners
        best = cosines.masked_fill(same, -torch.inf).max(1)
        cosines[torch.arange(stop - start), torch.arange(start, stop)] = -torch.inf
        own.append(cosines.masked_fill(~same, -torch.inf).amax(1))
        other.append(best.values)
        index.append(best.indices)
    return Neighbors(torch.cat(own), torch.cat(other), torch.cat(index))


def judge_neighbors(near: Neighbors, threshold: float | None) -> tuple[Bool[Tensor, "n"], Bool[Tensor, "n"]]:
    """Return which templates are outliers and which are duplicates of another person; see :func:`audit`."""
    several = near.own > -torch.inf
    own = near.own[several]
    typical = own.median().item() if len(own) else 1.0
    # A picture stored under the wrong name is near the person it shows, so that person's pictures also have a near
    # neighbor under another name. Only the misplaced one has a low cosine with the templates of its own name.
    middle = (typical + near.other.median().item()) / 2
    outlier = several & (near.other > near.own) & (near.own < middle)
    if threshold is not None:
        outlier |= several & (near.own < threshold)
    elif len(own) >= MIN_FOR_STATISTICS and near.other.isfinite().all():
        outlier |= several & (near.own < near.other.quantile(STRANGERS_QUANTILE))
    least = max(typical, -1.0 if threshold is None else threshold) if len(own) else (threshold or 0.95)
    return outlier, near.other >= least - 1e-6


def judge_picture(gallery: Gallery, identity: str, number: int, source: str) -> Finding | None:
    """Return a finding if the picture of a template is missing or poor, otherwise None."""
    if not source or not Path(source).is_absolute():
        return None
    if not Path(source).is_file():
        return Finding(
            "missing picture", identity, number, source, None, "", "", "the file of its picture does not exist"
        )
    problems = FaceQualityGate().find_problems(describe_face(gallery, source))
    if not problems:
        return None
    return Finding("poor quality", identity, number, source, None, "", "", "; ".join(problems))


def describe_face(gallery: Gallery, source: str) -> Mapping[str, Any]:
    """Return the properties of the largest face in a picture, none if the embedder does not detect faces."""
    preprocessing: Any = None if gallery.embedder is None else gallery.embedder.preprocessing
    if preprocessing is None or not hasattr(preprocessing, "load_all"):
        return {}
    try:
        found = preprocessing.load_all(source)
    except (ValueError, OSError):
        return {}
    return found[0].info if found else {}


def judge_new_template(gallery: Gallery, identity: str, feature: Float[Tensor, "d"]) -> str | None:
    """Return a warning if a new picture is unlike the templates that a person already has, otherwise None.

    The limit is the threshold calibrated by FAR, or else by FPIR. Without one, a picture is unlike if another person is
    nearer.

    Args:
        gallery: The gallery.
        identity: The name under which the picture is enrolled.
        feature: The feature of the picture.
    """
    if identity not in gallery:
        return None
    own = gallery.verify(identity, feature, threshold=-2.0)[0].score
    stored = gallery.calibrations
    point = stored.get("far", stored.get("fpir"))
    if point is not None and own < point.threshold:
        return f"cosine {own:.3f} with the other templates of {identity} is below the threshold {point.threshold:.3f}"
    best = gallery.identify(feature, threshold=-2.0)[0].best
    if best.identity != identity and best.score > own:
        return f"cosine {own:.3f} with {identity}, but {best.score:.3f} with {best.identity}"
    return None
