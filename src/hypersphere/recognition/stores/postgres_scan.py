"""Exact search on PostgreSQL: the server compares a few probes; for many probes the templates are fetched once."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...geometry import normalize
from .._search import DenseRows, largest

CHUNK = 16384  # templates compared at a time
# Number of probes from which on fetching all templates is faster than one scan by the server per probe.
MIN_PROBES_TO_FETCH_ALL = 16
INITIAL_DEPTH = 256  # templates fetched at first; near ties and identities with many templates need more
HEADER_BYTES = 19  # bytes before the first row of a binary COPY


class Block(NamedTuple):
    """A block of templates: their numbers, the numbers of their identities, and their features."""

    numbers: Int[np.ndarray, "n"]
    owners: Int[np.ndarray, "n"]
    features: Float[Tensor, "n d"]


class Found(NamedTuple):
    """A found template: its number, the number of its identity, and its cosine in float32."""

    number: int
    owner: int
    score: float


def find_nearest_templates(
    db: Any, templates: str, identities: str, probes: Float[Tensor, "p d"], k: int
) -> list[list[Found]]:
    """Return for each probe the templates that may be the best ones of its ``k`` best identities.

    Cosines are computed in float32, on the server or here, with an error of at most (d + 8)·ε. Every template that, within
    this error, may be the best one of one of the ``k`` best identities is returned.
    """
    near = 2 * (probes.shape[1] + 8) * torch.finfo(torch.float32).eps
    kept: list[list[Found]] = [[] for _ in probes]
    blank = (probes == 0).all(1).tolist()
    for i in range(len(probes)):
        if blank[i]:
            kept[i] = _find_first_enrolled(db, templates, k)
    todo, deep, people = [i for i in range(len(probes)) if not blank[i]], max(INITIAL_DEPTH, 2 * k), None
    while todo:
        if len(todo) < MIN_PROBES_TO_FETCH_ALL:
            lists = [_scan_nearest(db, templates, probes[i], deep) for i in todo]
        else:
            lists = find_best_templates(probes[todo], read_blocks(db, templates, probes.shape[1]), deep)
        again = []
        for i, found in zip(todo, lists, strict=True):
            kept[i], whole = select_for_scoring(found, k if people is None else min(k, people), near)
            if not whole and len(found) == deep and people is None:
                people = int(db.execute(f"SELECT count(*) FROM {identities}").fetchone()[0])
                kept[i], whole = select_for_scoring(found, min(k, people), near)
            if not whole and len(found) == deep:
                again.append(i)
        todo, deep = again, 8 * deep
    return kept


def read_blocks(db: Any, templates: str, dim: int) -> Iterator[Block]:
    """Yield all templates of a table, in PostgreSQL's binary form of COPY, at most ``CHUNK`` at a time."""
    lengths = [("a", ">i4"), ("b", ">i4"), ("c", ">i4")]
    row = np.dtype(
        [
            ("fields", ">i2"), lengths[0], ("number", ">i8"), lengths[1], ("owner", ">i8"),
            lengths[2], ("dim", ">i2"), ("unused", ">i2"), ("feature", ">f4", (dim,)),
        ]
    )  # fmt: skip
    expected = (3, 8, 8, 4 + 4 * dim, dim)
    pieces: list[bytes] = []
    waiting, skipped = 0, False
    with db.cursor().copy(f"COPY (SELECT id, identity, feature FROM {templates}) TO STDOUT (FORMAT BINARY)") as copy:
        for piece in copy:
            pieces.append(bytes(piece))
            waiting += len(piece)
            if waiting < CHUNK * row.itemsize + HEADER_BYTES:
                continue
            block, pieces = _parse_block(pieces, row, expected, skipped)
            skipped, waiting = True, sum(map(len, pieces))
            yield block
    yield _parse_block(pieces, row, expected, skipped)[0]


def find_best_templates(probes: Float[Tensor, "p d"], blocks: Iterable[Block], count: int) -> list[list[Found]]:
    """Return the ``count`` templates with the highest float32 cosines for each probe, best first."""
    unit = normalize(probes)
    values, places = unit.new_empty(len(probes), 0), torch.empty(len(probes), 0, dtype=torch.long)
    known = np.empty((2, 0), dtype=np.int64)  # numbers and owners of the templates that are among the best of a probe
    for block in blocks:
        if not len(block.features):
            continue
        products = DenseRows(block.features).products(unit, 0, len(block.features))
        new, where = largest(products, min(count, products.shape[1]))
        values, places = torch.cat([values, new], 1), torch.cat([places, where + known.shape[1]], 1)
        values, order = values.topk(min(count, values.shape[1]))
        known = np.concatenate([known, np.stack([block.numbers, block.owners])], 1)
        kept, places = places.gather(1, order).unique(return_inverse=True)
        known = known[:, kept.numpy()]
    numbers, owners = (known[i][places.numpy()].tolist() for i in range(2))
    return [list(map(Found, *row)) for row in zip(numbers, owners, values.tolist(), strict=True)]


def select_for_scoring(found: Sequence[Found], k: int, near: float) -> tuple[list[Found], bool]:
    """Return templates that may be the best of one of the ``k`` best identities, and whether none beyond the last may be.

    These are the identities whose best template is within ``near`` of the k-th best identity, and of each such identity
    the templates within ``near`` of its best one.

    >>> found = [Found(7, 1, 0.9), Found(8, 2, 0.8), Found(9, 1, 0.8), Found(5, 3, 0.6)]
    >>> kept, whole = select_for_scoring(found, 2, near=0.01)
    >>> [one.number for one in kept], whole
    ([7, 8], True)
    """
    best: dict[int, float] = {}
    kept: list[Found] = []
    least = -np.inf
    for one in found:
        if one.score < least:
            return kept, True
        if one.score >= best.setdefault(one.owner, one.score) - near:
            kept.append(one)
        if len(best) == k and least == -np.inf:
            least = one.score - near
    return kept, False


def _scan_nearest(db: Any, templates: str, probe: Float[Tensor, "d"], count: int) -> list[Found]:
    """Return the ``count`` templates nearest to a probe, found by the server; among equals, the one enrolled first."""
    query = f"SELECT id, identity, 1 - (feature <=> %s) AS score FROM {templates} ORDER BY score DESC, id LIMIT %s"
    unit = normalize(probe[None])[0]  # the server squares lengths in float32
    rows = db.execute(query, (unit.numpy(), count), binary=True).fetchall()
    return [Found(int(number), int(owner), float(score)) for number, owner, score in rows]


def _find_first_enrolled(db: Any, templates: str, count: int) -> list[Found]:
    """Return the first template of each of the identities enrolled first, for a zero probe, to which all are equally near."""
    query = f"SELECT min(id), identity FROM {templates} GROUP BY identity ORDER BY 1 LIMIT %s"
    return [Found(int(number), int(owner), 0.0) for number, owner in db.execute(query, (count,)).fetchall()]


def _parse_block(
    pieces: list[bytes], row: np.dtype, expected: tuple[int, ...], skipped: bool
) -> tuple[Block, list[bytes]]:
    """Return the complete rows of the received data, and the rest of the data."""
    data = b"".join(pieces)
    start = 0 if skipped else HEADER_BYTES
    count = max(0, len(data) - start) // row.itemsize
    rows = np.frombuffer(data, row, count, start)
    for name, value in zip(("fields", "a", "b", "c", "dim"), expected, strict=True):
        if (rows[name] != value).any():
            raise OSError("the server sent templates in an unknown format")
    features = torch.from_numpy(rows["feature"].astype(np.float32))
    block = Block(rows["number"].astype(np.int64), rows["owner"].astype(np.int64), features)
    return block, [data[start + count * row.itemsize :]]
