"""The network of the few-shot experiments (table F.3)."""

from typing_extensions import Unpack

from .blocks import Conv, Pool
from .network import ConvNet, Options, stage_widths


def cnn4(num_classes: int | None = 64, *, widths: tuple[int, ...] | None = None, **options: Unpack[Options]) -> ConvNet:
    """Build CNN-4 of table F.3: ``[3×3, 64], pool`` four times, and the classifier on the flattened map.

    Mini-ImageNet has 84×84 images (1600 features) and 64 classes to pretrain on; Omniglot ``in_channels=1,
    input_size=28`` (64 features). The classifier is new for every episode: ``cnn4(None)`` is the backbone alone.
    ``classifier=`` takes the cosine one of baseline++. ``widths`` are the filters of the four stages.

    >>> cnn4(None).feature_dim, cnn4(None, in_channels=1, input_size=28).feature_dim
    (1600, 64)
    """
    options.setdefault("input_size", 84)
    filters = stage_widths((64,) * 4, widths)
    return ConvNet([row for n in filters for row in (Conv(n), Pool())], num_classes, **options)
