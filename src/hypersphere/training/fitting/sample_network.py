"""The type of networks that ``fit`` can train: one feature per sample, whatever class they are of."""

import inspect
from abc import ABCMeta
from collections.abc import Callable
from typing import Any

from torch import nn

from ...config.signatures import read_annotations

MIN_INPUT_AXES = 3  # a batch of recordings (b, bands, frames); pictures have four axes
OUTPUT_AXES = 2  # a batch of features (b, d)


class _StructuralType(ABCMeta):
    """Makes ``issubclass`` look at signatures. A subclass hook cannot, because it would also be inherited."""

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, nn.Module) and maps_samples_to_features(kind)


class SampleNetwork(metaclass=_StructuralType):
    """The type of networks from one batch of samples to one feature per sample.

    It has no instances: ``issubclass`` looks at the annotations of ``features``, or of ``forward`` if there is no
    ``features``. A network whose annotations say nothing belongs to it.

    >>> from hypersphere.models import ConvNet, GCN
    >>> issubclass(ConvNet, SampleNetwork), issubclass(GCN, SampleNetwork)
    (True, False)
    """


def maps_samples_to_features(kind: type[nn.Module]) -> bool:
    """Return whether the annotations of a network allow one batch of samples as input and features as output.

    >>> from hypersphere.models import ECAPA, Generator
    >>> maps_samples_to_features(ECAPA), maps_samples_to_features(Generator)
    (True, False)
    """
    method: Callable[..., Any] = getattr(kind, "features", kind.forward)
    _, *inputs = inspect.signature(method).parameters.values()
    required = [p for p in inputs if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    if len(required) > 1:
        return False
    annotations = read_annotations(method)
    given = _count_axes(annotations.get(required[0].name)) if required else None
    made = _count_axes(annotations.get("return"))
    return (given is None or given >= MIN_INPUT_AXES) and made in (None, OUTPUT_AXES)


def _count_axes(annotation: Any) -> int | None:
    """Return the number of axes that an annotation of jaxtyping gives a tensor, or None if it leaves it open."""
    axes = getattr(annotation, "dim_str", None)
    return None if axes is None or "*" in axes or "..." in axes else len(axes.split())
