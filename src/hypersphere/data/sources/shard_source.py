"""Tar shards in the layout of WebDataset: the files of one sample share their name up to the first dot."""

import json
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import CorruptDataError, DataError, MissingDataError, make_corrupt_error
from ..images import MAX_BYTES
from ..media import SAMPLE_ENDINGS
from .source import Record, Source, make_time_region

MAX_LABEL_BYTES = 1 << 20  # of a sample's label or description
_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
_LABELS = ("cls", "cls.txt", "label", "label.txt", "txt")


class _Position(NamedTuple):
    """Position of an image: a shard and a range of bytes in it."""

    shard: str
    start: int
    size: int


class ShardSource(Source):
    """Samples ``<key>.jpg`` (or another picture or recording) in tar files, with a label in ``<key>.cls`` or ``<key>.json``.

    The label may also be in ``<key>.label`` or ``<key>.txt``. ``<key>.json`` is an object with ``label`` and optionally the
    other fields of :class:`Record`. Opening the source scans the shards once and records the position and the label of each
    sample. Samples can then be read in any order, which allows shuffling and exact resumption of a run. Compressed tar files
    are refused, because they cannot be read from the middle.

    Args:
        shards: A tar file, a folder of tar files, or a name with a range, such as ``train-{000..127}.tar``.

    Raises:
        MissingDataError: A shard does not exist.
        CorruptDataError: A shard is damaged or compressed, or a sample has no image or no label.

    >>> import pathlib, shutil, tempfile
    >>> with tempfile.TemporaryDirectory() as files, tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(files, "0001.pgm").write_bytes(b"P5 2 2 255 1234")
    ...     _ = pathlib.Path(files, "0001.cls").write_text("ann")
    ...     source = ShardSource(shutil.make_archive(f"{folder}/train-000", "tar", files))
    ...     source.records[0].label, source.fetch(0)
    ('ann', b'P5 2 2 255 1234')
    """

    description = "tar shards (.tar)"
    endings = (".tar",)
    fills_folders = True

    def __init__(self, shards: str | os.PathLike[str]):
        paths = list_shards(shards)
        records: list[Record] = []
        self._positions: list[_Position] = []
        for path in paths:
            for record, position in _index_shard(path):
                records.append(record)
                self._positions.append(position)
        super().__init__(str(shards), records)

    def fetch(self, index: int) -> bytes:
        """Return the bytes of the image in its shard."""
        position = self._positions[index]
        with open(position.shard, "rb") as file:
            file.seek(position.start)
            content = file.read(position.size)
        if len(content) != position.size:
            raise make_corrupt_error(position.shard, "fewer bytes than before", "a shard that does not change")
        return content

    def files(self) -> list[str]:
        """Return the shards."""
        return [position.shard for position in self._positions]


def list_shards(shards: str | os.PathLike[str]) -> list[Path]:
    """Return the tar files that ``shards`` names, sorted."""
    text = os.fspath(shards)
    range_match = _BRACES.search(text)
    if range_match:
        low, high = range_match[1], range_match[2]
        if int(high) - int(low) >= 10**6:
            raise ValueError(f"shards must name fewer than a million files, got {text}")
        numbers = [f"{i:0{len(low)}d}" for i in range(int(low), int(high) + 1)]
        paths = [Path(text[: range_match.start()] + number + text[range_match.end() :]) for number in numbers]
    else:
        paths = sorted(Path(text).glob("*.tar")) if Path(text).is_dir() else [Path(text)]
    absent = next((path for path in paths if not path.is_file()), None)
    if absent is not None or not paths:
        raise MissingDataError(f"there is no shard {absent or text}")
    return paths


def _index_shard(path: Path) -> Iterator[tuple[Record, _Position]]:
    """Yield the samples of one shard in its order."""
    try:
        size = path.stat().st_size
        with path.open("rb") as raw, tarfile.open(fileobj=raw, mode="r:") as tar:
            key, sample = "", dict[str, Any]()
            for member in tar:
                if not member.isreg():
                    if member.isdir():
                        continue
                    raise make_corrupt_error(
                        path, f"the link or device file {member.name!r}", "regular files and folders only"
                    )
                if member.offset_data + member.size > size:
                    raise make_corrupt_error(path, f"{member.name!r} cut off", "a whole tar file")
                folder, _, base = member.name.rpartition("/")
                stem, _, ending = base.partition(".")
                if f"{folder}/{stem}" != key:
                    if sample:
                        yield _build_record(path, key, sample)
                    key, sample = f"{folder}/{stem}", {}
                if f".{ending.lower().rpartition('.')[2]}" in SAMPLE_ENDINGS:
                    _check_size(path, member, MAX_BYTES)
                    sample["image"] = (member.name, _Position(str(path), member.offset_data, member.size))
                elif ending in (*_LABELS, "json"):
                    _check_size(path, member, MAX_LABEL_BYTES)
                    content = tar.extractfile(member)
                    assert content is not None
                    sample[ending] = content.read()
                tar.members = []  # type: ignore[attr-defined]  # otherwise tarfile keeps all headers in memory
            if sample:
                yield _build_record(path, key, sample)
    except DataError:
        raise
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        raise make_corrupt_error(
            path, f"no plain tar file ({error})", "a whole tar file that is not compressed"
        ) from error


def _check_size(path: Path, member: tarfile.TarInfo, limit: int) -> None:
    if member.size > limit:
        raise make_corrupt_error(path, f"{member.name!r} of {member.size} bytes", f"at most {limit}")


def _build_record(path: Path, key: str, sample: dict[str, Any]) -> tuple[Record, _Position]:
    key = key.removeprefix("/")
    if "image" not in sample:
        raise make_corrupt_error(
            path, f"the sample {key} without a picture or recording", f"a file {key}.jpg, {key}.wav or the like"
        )
    name, position = sample["image"]
    fields = _read_description(path, key, sample["json"]) if "json" in sample else {}
    label = next((sample[ending] for ending in _LABELS if ending in sample), None)
    if label is not None:
        fields["label"] = label.decode("utf-8", "replace").strip()
    if not fields.get("label"):
        raise make_corrupt_error(
            path, f"the sample {key} without a label", f"a file {key}.cls, or a label in {key}.json"
        )
    return Record(f"{path}: {name}", **fields), position


def _read_description(path: Path, key: str, content: bytes) -> dict[str, Any]:
    """Return the fields of a record in a sample's JSON; other fields are ignored."""
    try:
        values = json.loads(content)
        fields = {name: str(values[name]) for name in ("label", "split", "category") if values.get(name) is not None}
        flags = {name: bool(values[name]) for name in ("is_query", "is_gallery") if values.get(name) is not None}
        box = _read_box(values)
        return {**fields, **flags, **({"box": box} if box else {})}
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise CorruptDataError(f"{path}: {key}.json does not describe a sample: {error}") from error


def _read_box(values: dict[str, Any]) -> Sequence[float] | None:
    if isinstance(values.get("start"), int | float) and isinstance(values.get("end"), int | float):
        return make_time_region(values["start"], values["end"])
    corners = [values.get(name) for name in ("x_1", "y_1", "x_2", "y_2")]
    if all(corner is None for corner in corners):
        return None
    box = tuple(int(corner) for corner in corners if isinstance(corner, int | float))
    if len(box) != 4 or not (0 <= box[0] < box[2] and 0 <= box[1] < box[3]):
        raise ValueError(f"the crop box must be whole numbers with 0 ≤ x_1 < x_2 and 0 ≤ y_1 < y_2, got {corners}")
    return box
