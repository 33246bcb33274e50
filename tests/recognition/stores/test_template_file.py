import os
import struct
import zlib

import numpy as np
import pytest

from hypersphere.recognition.stores import DamagedGalleryError
from hypersphere.recognition.stores import template_file as tf


@pytest.fixture
def records():
    rng = np.random.default_rng(0)
    return tf.pack(np.arange(3, 23, 2), np.arange(10) % 4, rng.normal(size=(10, 6)).astype(np.float32))


def test_the_layout_is_the_documented_one(records):
    content = records[2].tobytes()
    checksum, identity, number = struct.unpack_from("<IIq", content)
    assert (identity, number, len(content)) == (2, 7, 16 + 24)
    assert checksum == zlib.crc32(content[4:])
    assert np.frombuffer(content, "<f4", offset=16).tolist() == records["feature"][2].tolist()


def test_every_flipped_bit_is_noticed(records):
    content = records[:1].tobytes()
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        assert tf.damaged(np.frombuffer(bytes(changed), records.dtype)).tolist() == [0]
    assert tf.damaged(records).tolist() == []


def test_what_is_appended_is_mapped(records, tmp_path):
    path = tmp_path / "features"
    assert tf.append(path, 0, [records[:4], records[4:6]]) == 6
    with open(path, "ab") as file:
        file.write(b"left by a killed writer")
    assert tf.append(path, 6, [records[6:]]) == 4
    mapped = tf.mapped(path, 6, 10)
    assert isinstance(mapped, np.memmap)
    assert mapped.tobytes() == records.tobytes()
    mapped["feature"][0] = 0  # stays in this process
    assert path.read_bytes() == records.tobytes()
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert tf.append(path, 0, [records[:1]]) == 1
    assert path.stat().st_size == 40


def test_files_that_are_too_short_or_gone(records, tmp_path):
    path = tmp_path / "features"
    for use in (lambda: tf.mapped(path, 6, 1), lambda: tf.append(path, 1, [records])):
        with pytest.raises(DamagedGalleryError, match="is missing"):
            use()
    tf.append(path, 0, [records[:2]])
    for use in (lambda: tf.mapped(path, 6, 3), lambda: tf.append(path, 3, [records])):
        with pytest.raises(DamagedGalleryError, match="shorter"):
            use()
    assert len(tf.mapped(path, 6, 0)) == 0


def test_wiped_records_keep_only_their_numbers(records, tmp_path):
    path = tmp_path / "features"
    tf.append(path, 0, [records])
    tf.wipe(path, 6, [1, 8])
    mapped = tf.mapped(path, 6, 10)
    assert tf.damaged(mapped).tolist() == [1, 8]
    assert not mapped["feature"][[1, 8]].any()
    assert mapped["number"].tolist() == records["number"].tolist()


def test_records_are_found_by_their_numbers(records):
    for slot, number in enumerate(records["number"].tolist()):
        assert tf.slot_of(records, number) == slot
        assert tf.slot_of(records, number + 1) is None
    assert tf.slot_of(records[:0], 3) is None


def test_chunks_keep_what_they_are_told(records, monkeypatch):
    monkeypatch.setattr(tf, "CHUNK", 3)
    keep = np.arange(10) % 2 == 0
    assert np.concatenate(list(tf.chunks(records, keep)))["number"].tolist() == records["number"][keep].tolist()
    assert np.concatenate(list(tf.chunks(records))).tobytes() == records.tobytes()
