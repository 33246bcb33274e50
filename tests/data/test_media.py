import io

import numpy as np
import pytest
import torch
from PIL import Image

from hypersphere.data import CorruptDataError
from hypersphere.data.media import (
    MAX_HASH_DISTANCE,
    MEDIA,
    SAMPLE_ENDINGS,
    Pictures,
    Recordings,
    decode_sample,
    difference_hash,
    find_medium,
    group_equal,
    group_similar,
    pixel_digest,
)
from hypersphere.data.recordings import Recording
from tests.data.voices import RATE, voice


def wav(samples, rate=RATE):
    soundfile = pytest.importorskip("soundfile")
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV", subtype="FLOAT")
    return file.getvalue()


def png(pixels):
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


GRAY = np.arange(64, dtype=np.uint8).reshape(8, 8)


def test_kinds_are_recognized_by_content_and_endings_do_not_overlap():
    assert find_medium(wav(voice(0))).noun == "recording"
    assert find_medium(png(GRAY)).noun == "picture"
    assert find_medium(Recording(np.zeros((10, 1), dtype=np.float32), RATE)).noun == "recording"
    assert len(set(SAMPLE_ENDINGS)) == len(SAMPLE_ENDINGS) == sum(len(medium.endings) for medium in MEDIA)


def test_samples_are_decoded_by_content_whatever_their_name():
    assert isinstance(decode_sample(wav(voice(0)), "voice.png"), Recording)
    assert decode_sample(png(GRAY), "picture.wav.png").size == (8, 8)


def test_the_ending_determines_the_kind_of_unknown_bytes():
    with pytest.raises(CorruptDataError, match=r"call\.wav.*sound file"):
        decode_sample(b"nothing", "call.wav")
    with pytest.raises(CorruptDataError, match=r"ann\.jpg"):
        decode_sample(b"nothing", "ann.jpg")


@pytest.mark.parametrize(
    ("samples", "findings"),
    [
        (voice(0), ()),
        (np.zeros(RATE, dtype=np.float32), ("silent",)),
        (voice(0)[: RATE // 4], ("shorter than 0.5 s",)),
        (np.sign(voice(0)), ("clipped",)),
    ],
)
def test_findings_about_recordings(samples, findings):
    found = Recordings().inspect(Recording(samples[:, None], RATE))
    assert found.findings == findings
    assert found.size == (len(samples), RATE, 1)
    assert found.near_hash is None


def test_digests_are_equal_for_equal_content_only():
    first, again, other = (Recordings().digest(Recording(voice(person)[:, None], RATE)) for person in (0, 0, 1))
    assert first == again != other
    slower = Recordings().digest(Recording(voice(0)[:, None], RATE // 2))
    assert slower != first
    pixels = torch.from_numpy(GRAY)[None]
    same, changed = (Pictures().digest(x) for x in (pixels.clone(), pixels.flip(2)))
    assert Pictures().digest(pixels) == same != changed


def test_only_the_part_of_a_recording_is_inspected():
    recording = Recording(np.concatenate([voice(0), np.zeros(RATE, dtype=np.float32)])[:, None], RATE)
    assert Recordings().inspect(recording, (1.5, 2.5)).findings == ("silent",)
    assert Recordings().inspect(recording, (0.0, 1.5)).findings == ()


def test_summaries_name_every_rate_channel_and_size():
    found = [
        Recordings().inspect(Recording(np.ones((n, channels), dtype=np.float32) / 2, rate))
        for n, rate, channels in ((16000, 16000, 1), (16000, 8000, 2), (48000, 16000, 1))
    ]
    line, values = Recordings().summarize(found)
    assert "1.00 to 3.00 s, 2.00 s at the median" in line
    assert values["rates"] == {"16000": 2, "8000": 1}
    assert values["channels"] == {"1": 2, "2": 1}
    assert values["seconds"]["total"] == 6.0
    pictures = [Pictures().inspect(torch.zeros(1, h, 8, dtype=torch.uint8)) for h in (4, 6, 6)]
    line, values = Pictures().summarize(pictures)
    assert line.startswith("sizes, height × width × channels: 6×8×1 (2 images), 4×8×1 (1 images)")
    assert values["median_size"] == [6, 8]


def smooth(seed, size=64, channels=3):
    """A picture of waves, which is more like a photograph than noise."""
    draw = np.random.default_rng(seed)
    y, x = np.mgrid[0:size, 0:size] / size
    waves = sum(
        np.sin(2 * np.pi * (draw.uniform(-4, 4) * x + draw.uniform(-4, 4) * y) + draw.uniform(0, 6)) for _ in range(6)
    )
    gray = np.interp(waves, (waves.min(), waves.max()), (0, 255)).astype(np.uint8)
    return torch.from_numpy(np.stack([gray] * channels))


def saved_again(pixels, quality=60, size=None):
    image = Image.fromarray(pixels.permute(1, 2, 0).numpy())
    stream = io.BytesIO()
    (image if size is None else image.resize((size, size))).save(stream, "JPEG", quality=quality)
    return torch.from_numpy(np.array(Image.open(stream))).permute(2, 0, 1)


def bits(one, other):
    return sum(bin(a ^ b).count("1") for a, b in zip(one, other, strict=True))


def test_digests_are_equal_for_equal_pixels_only():
    picture = smooth(0)
    changed = picture.clone()
    changed[0, 3, 3] ^= 1
    assert pixel_digest(picture) == pixel_digest(picture.clone())
    assert pixel_digest(picture) != pixel_digest(changed)
    assert pixel_digest(picture[:, :, ::2]) == pixel_digest(picture[:, :, ::2].contiguous())


@pytest.mark.parametrize("change", [{}, {"size": 48}, {"quality": 30}, {"size": 128}])
def test_a_picture_saved_again_has_a_similar_hash(change):
    for seed in range(5):
        picture = smooth(seed)
        assert bits(difference_hash(picture), difference_hash(saved_again(picture, **change))) <= MAX_HASH_DISTANCE


def test_different_pictures_have_different_hashes():
    hashes = [difference_hash(smooth(seed)) for seed in range(20)]
    assert min(bits(a, b) for i, a in enumerate(hashes) for b in hashes[:i]) > 4 * MAX_HASH_DISTANCE


def test_groups_are_those_of_brute_force():
    draw = np.random.default_rng(0)
    hashes = []
    for _ in range(60):
        base = draw.integers(0, 256, 32, dtype=np.uint8)
        hashes.append(base.tobytes())
        for flips in draw.integers(0, 12, 3):
            changed = np.unpackbits(base)
            changed[draw.choice(256, flips, replace=False)] ^= 1
            hashes.append(np.packbits(changed).tobytes())
    expected = {frozenset([i]) for i in range(len(hashes))}
    for i, one in enumerate(hashes):
        for j, other in enumerate(hashes[:i]):
            if bits(one, other) <= MAX_HASH_DISTANCE:
                a, b = (next(group for group in expected if k in group) for k in (i, j))
                expected = (expected - {a, b}) | {a | b}
    assert {frozenset(group) for group in group_similar(hashes)} == {group for group in expected if len(group) > 1}


def test_nearly_empty_pictures_are_not_similar():
    one, other = (bytearray(32) for _ in range(2))
    one[0], other[9] = 7, 7
    assert group_similar([bytes(one), bytes(other), bytes(32), bytes(32)]) == []


def test_group_equal():
    assert group_equal([]) == []
    assert group_equal([b"x"] * 3) == [[0, 1, 2]]
