"""Sound files: all formats, rates and channels give the same sound; damaged files are named."""

import numpy as np
import pytest
import soundfile

from hypersphere.data import CorruptDataError, MissingDataError, Recording, open_source, read_recording
from hypersphere.data.media import is_recording
from hypersphere.data.recordings import MAX_SAMPLES, decode_recording
from tests.data.voices import voice


@pytest.mark.parametrize(
    ("ending", "options", "tolerance"),
    [
        ("wav", {"subtype": "PCM_16"}, 1e-4),
        ("wav", {"subtype": "PCM_U8"}, 1e-2),
        ("wav", {"subtype": "PCM_24"}, 1e-6),
        ("wav", {"subtype": "PCM_32"}, 1e-6),
        ("wav", {"subtype": "FLOAT"}, 1e-7),
        ("flac", {}, 1e-4),
        ("aiff", {}, 1e-4),
        ("ogg", {"subtype": "VORBIS"}, 0.05),
        ("ogg", {"subtype": "OPUS"}, 0.1),
        ("mp3", {}, 0.15),
    ],
)
def test_every_format_is_decoded(tmp_path, ending, options, tolerance):
    path, sound = tmp_path / f"a.{ending}", voice(1, seconds=1)
    soundfile.write(path, np.stack([sound, sound], 1), 16000, **options)
    assert is_recording(path.read_bytes())
    found = read_recording(path)
    assert (found.rate, found.channels) == (16000, 2)
    assert found.seconds == pytest.approx(1, abs=0.15)  # MP3 adds padding
    got = found.samples[: len(sound), 0]
    shift = min(range(0, 1200), key=lambda k: np.abs(got[k : k + 8000] - sound[:8000]).mean()) if ending == "mp3" else 0
    assert np.abs(got[shift : shift + 8000] - sound[:8000]).mean() < tolerance


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000])
def test_resampling_keeps_low_tones_and_removes_high_ones(rate):
    time = np.arange(2 * rate) / rate
    low = np.sin(2 * np.pi * 440 * time).astype(np.float32)
    at_16k = Recording(low[:, None], rate).resample(16000)
    expected = np.sin(2 * np.pi * 440 * np.arange(len(at_16k)) / 16000)
    middle = slice(2000, len(at_16k) - 2000)
    assert np.abs(at_16k - expected)[middle].max() < 1e-3
    if rate > 20000:
        high = np.sin(2 * np.pi * 9500 * time).astype(np.float32)  # above the Nyquist frequency of 16 kHz
        assert np.abs(Recording(high[:, None], rate).resample(16000)[middle]).max() < 1e-3


def test_channels_are_averaged_and_parts_are_cut():
    stereo = Recording(np.stack([np.ones(1000), -np.ones(1000)], 1).astype(np.float32), 1000)
    assert np.abs(stereo.resample(1000)).max() == 0
    assert stereo.cut(0.25, 0.75).seconds == 0.5
    with pytest.raises(ValueError, match=r"start and end must lie in 0 … 1\.00 s in this order, got 0\.5, 2"):
        stereo.cut(0.5, 2)


@pytest.mark.parametrize("content", [b"", b"RIFF", b"OggS" + bytes(200), b"fLaC\x00\x00\x00\x22" + bytes(60), b"text"])
def test_damaged_files_are_named(tmp_path, content):
    path = tmp_path / "ann" / "a.wav"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(CorruptDataError, match=r"a\.wav: found .*expected a whole sound file"):
        read_recording(path)
    with pytest.raises(CorruptDataError, match=r"a\.wav: found .*expected a whole sound file"):
        open_source(tmp_path, identities=1).sample(0)


def test_a_wav_file_that_was_cut_off_is_refused(tmp_path):
    path = tmp_path / "a.wav"
    soundfile.write(path, voice(0), 16000)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptDataError, match=rf"{len(whole) // 2} of {len(whole)} bytes"):
        read_recording(path)


def test_refuses_long_and_missing_files_and_invalid_values(tmp_path):
    path = tmp_path / "a.wav"
    soundfile.write(path, voice(0), 16000)
    with pytest.raises(CorruptDataError, match="24000×1 samples, more than 1000"):
        decode_recording(path.read_bytes(), "a.wav", 1000)
    assert MAX_SAMPLES * 4 <= 1 << 28
    with pytest.raises(MissingDataError, match="there is no file"):
        read_recording(tmp_path / "b.wav")
    with pytest.raises(ValueError, match="finite"):
        Recording(np.full((10, 1), np.nan, dtype=np.float32), 16000)
    with pytest.raises(ValueError, match="rate must lie in"):
        Recording(np.zeros((10, 1), dtype=np.float32), 10)
