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
        assert tf.find_damaged(np.frombuffer(bytes(changed), records.dtype)).tolist() == [0]
    assert tf.find_damaged(records).tolist() == []


def test_what_is_appended_is_mapped(records, tmp_path):
    path = tf.TemplateFile(tmp_path / "features", "0123456789abcdef" * 2, 3)
    assert tf.append(path, 0, [records[:4], records[4:6]]) == 6
    with open(path.path, "ab") as file:
        file.write(b"left by a killed writer")
    assert tf.append(path, 6, [records[6:]]) == 4
    mapped = tf.map_records(path, 6, 10)
    assert isinstance(mapped, np.memmap)
    assert mapped.tobytes() == records.tobytes()
    mapped["feature"][0] = 0  # the change stays in this process
    assert path.path.read_bytes() == path.header() + records.tobytes()
    assert os.stat(path.path).st_mode & 0o777 == 0o600
    assert tf.append(path, 0, [records[:1]]) == 1
    assert path.path.stat().st_size == 32 + 40


def test_files_that_are_too_short_or_gone(records, tmp_path):
    path = tf.TemplateFile(tmp_path / "features", "0123456789abcdef" * 2, 3)
    for use in (lambda: tf.map_records(path, 6, 1), lambda: tf.append(path, 1, [records])):
        with pytest.raises(DamagedGalleryError, match="is missing"):
            use()
    tf.append(path, 0, [records[:2]])
    for use in (lambda: tf.map_records(path, 6, 3), lambda: tf.append(path, 3, [records])):
        with pytest.raises(DamagedGalleryError, match="shorter"):
            use()
    assert len(tf.map_records(path, 6, 0)) == 0


def test_wiped_records_keep_only_their_numbers(records, tmp_path):
    path = tf.TemplateFile(tmp_path / "features", "0123456789abcdef" * 2, 3)
    tf.append(path, 0, [records])
    tf.wipe(path, 6, [1, 8])
    mapped = tf.map_records(path, 6, 10)
    assert tf.find_damaged(mapped).tolist() == [1, 8]
    assert not mapped["feature"][[1, 8]].any()
    assert mapped["number"].tolist() == records["number"].tolist()


def test_records_are_found_by_their_numbers(records):
    for slot, number in enumerate(records["number"].tolist()):
        assert tf.find_slot(records, number) == slot
        assert tf.find_slot(records, number + 1) is None
    assert tf.find_slot(records[:0], 3) is None


def test_chunks_keep_what_they_are_told(records, monkeypatch):
    monkeypatch.setattr(tf, "CHUNK", 3)
    keep = np.arange(10) % 2 == 0
    assert np.concatenate(list(tf.split_records(records, keep)))["number"].tolist() == records["number"][keep].tolist()
    assert np.concatenate(list(tf.split_records(records))).tobytes() == records.tobytes()


def test_a_file_of_another_gallery_or_generation_is_refused(records, tmp_path):
    own = tf.TemplateFile(tmp_path / "features", "0123456789abcdef" * 2, 3)
    tf.append(own, 0, [records[:2]])
    assert len(own.header()) == tf.HEADER_BYTES
    for other in (own._replace(gallery="f" * 32), own._replace(generation=4)):
        for use in (lambda o=other: tf.map_records(o, 6, 2), lambda o=other: tf.append(o, 2, [records[2:]])):
            with pytest.raises(DamagedGalleryError, match="belongs to another gallery"):
                use()
    content = own.path.read_bytes()
    for byte in range(tf.HEADER_BYTES):
        own.path.write_bytes(content[:byte] + bytes([content[byte] ^ 1]) + content[byte + 1 :])
        with pytest.raises(DamagedGalleryError, match="its header is damaged"):
            tf.map_records(own, 6, 2)
