"""Divide identities into those to train on, those to select by, and those of the report."""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from ...data import DataError, Source, identity_split

MIN_TRAINING, MAX_SELECTION = 15, 200  # identities
MIN_INTERVAL = 3  # identities of a report that can be resampled for an interval
TRAINED = ("train", "training")
MEASURED = ("test", "testing", "val", "valid", "validation")


class Division(NamedTuple):
    """Positions of the samples to train on and to measure, with the reason."""

    train: Int[Tensor, "n"]
    measured: Int[Tensor, "m"]
    reason: str


def divide(source: Source, validation: float, least_images: int = 2) -> Division:
    """Divide a source by identities.

    If the source has splits, its training part is trained on. The identities of its test part, or of its validation part,
    are measured unless they are in the training part as well. Otherwise a random part of the identities is measured, always
    the same one, and at least three if there are nine. Identities with fewer than ``least_images`` samples are left out.

    Args:
        source: Labeled pictures.
        validation: The part of the identities that is measured; 0 trains on all and measures them.
        least_images: The least number of pictures of an identity.

    Raises:
        DataError: If fewer than two identities are left to train on or to measure.

    >>> from hypersphere.data import ArraySource
    >>> source = ArraySource(torch.zeros(40, 4, 4, dtype=torch.uint8), torch.arange(40) // 4)
    >>> train, measured, _ = divide(source, 0.2)
    >>> len(train), len(measured)
    (28, 12)
    """
    splits = {name.lower(): name for name in source.splits}
    trained = next((splits[name] for name in TRAINED if name in splits), None)
    measured = next((splits[name] for name in MEASURED if name in splits), None)
    if trained is not None and measured is not None and validation > 0:
        found = _divide_by_split(source, trained, measured, least_images)
        if found is not None:
            return found
    kept = _drop_small_identities(source.labels, torch.arange(len(source)), least_images)
    identities = len(source.labels[kept].unique())
    if validation == 0:
        _check(source, kept, kept, least_images)
        return Division(kept, kept, "validation=0: the report measures the training identities")
    least = MIN_INTERVAL if identities >= 3 * MIN_INTERVAL else 2
    held = min(max(round(validation * identities), least), max(identities - 2, 0))
    first, second = identity_split(source.labels[kept], [1 - held / max(identities, 1), held / max(identities, 1)])
    _check(source, kept[first], kept[second], least_images)
    return Division(
        kept[first], kept[second], f"{held} of {identities} identities are never trained on, the same every time"
    )


def separate_selection(source: Source, division: Division, part: float) -> tuple[Division, Int[Tensor, "k"], str]:
    """Take some identities out of training to select the best weights and the last layer.

    They are not those of the report, which therefore has no part in any choice. At most ``MAX_SELECTION`` identities are
    taken, and none if there are fewer than ``MIN_TRAINING``: the network would lose more than the choice gains.

    Args:
        source: Labeled pictures.
        division: Who is trained on and who is measured.
        part: The part of the training identities that is taken.

    Returns:
        The division without them, their positions, and the reason.

    >>> from hypersphere.data import ArraySource
    >>> source = ArraySource(torch.zeros(100, 4, 4, dtype=torch.uint8), torch.arange(100) // 4)
    >>> rest, selection, _ = separate_selection(source, divide(source, 0.2), 0.2)
    >>> len(rest.train) // 4, len(selection) // 4, len(rest.measured) // 4
    (16, 4, 5)
    """
    none = division.train[:0]
    labels = source.labels[division.train]
    identities = len(labels.unique())
    if part == 0 or torch.equal(division.train, division.measured):
        return division, none, "no identities choose weights: the last ones are kept"
    if identities < MIN_TRAINING:
        why = (
            f"{identities} identities to train on are too few to choose weights by some of them: the last ones are kept"
        )
        return division, none, why
    taken = min(max(round(part * identities), 3), MAX_SELECTION)
    first, second = identity_split(labels, [1 - taken / identities, taken / identities], seed=1)
    kept = len(source.labels[division.measured].unique())
    why = f"{taken} identities that are neither trained on nor among the {kept} of the report choose weights and last layer"
    return division._replace(train=division.train[first]), division.train[second], why


def _divide_by_split(source: Source, trained: str, measured: str, least: int) -> Division | None:
    places = torch.arange(len(source))
    inside = torch.tensor([record.split == trained for record in source.records])
    outside = torch.tensor([record.split == measured for record in source.records])
    train = _drop_small_identities(source.labels, places[inside], least)
    unseen = outside & ~torch.isin(source.labels, source.labels[inside])
    held = _drop_small_identities(source.labels, places[unseen], least)
    if len(source.labels[held].unique()) < 2 or len(source.labels[train].unique()) < 2:
        return None  # both splits have the same identities: they divide samples, not identities
    shared = len(source.labels[outside].unique()) - len(source.labels[unseen].unique())
    without = f", without {shared} identities that are in {trained} too" if shared else ""
    return Division(train, held, f"the source's own splits: {trained} is trained on, {measured} measured{without}")


def _drop_small_identities(labels: Int[Tensor, "n"], index: Int[Tensor, "k"], least: int) -> Int[Tensor, "m"]:
    """Return the positions in ``index`` whose identity has at least ``least`` samples among them."""
    counts = torch.bincount(labels[index], minlength=int(labels.max()) + 1)
    return index[counts[labels[index]] >= least]


def _check(source: Source, train: Tensor, measured: Tensor, least: int) -> None:
    sides = [len(source.labels[side].unique()) for side in (train, measured)]
    if min(sides) < 2:
        several = len(
            source.labels[_drop_small_identities(source.labels, torch.arange(len(source)), max(least, 2))].unique()
        )
        raise DataError(
            f"{source.name} holds {several} identities with at least {max(least, 2)} pictures; 4 are needed, 2 to train on "
            "and 2 that are never trained on to measure"
        )
