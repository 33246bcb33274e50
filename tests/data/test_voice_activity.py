import numpy as np
import pytest

from hypersphere.data import trim_silence
from hypersphere.data.voice_activity import detect_speech
from tests.data.voices import voice


@pytest.mark.parametrize("gain", [0.01, 1.0])
@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_long_silences_are_removed_and_short_ones_kept(gain, noise):
    speech, rest = voice(1, seconds=1), np.zeros(16000, dtype=np.float32)
    pause = np.zeros(1600, dtype=np.float32)  # 100 ms
    whole = np.concatenate([rest, speech, pause, speech, rest, rest]) * gain
    whole += gain * noise * np.random.default_rng(0).normal(size=len(whole)).astype(np.float32)
    kept = trim_silence(whole, 16000)
    assert 2 * len(speech) + len(pause) <= len(kept) <= 2 * len(speech) + len(pause) + 0.4 * 16000


def test_a_recording_without_silence_is_not_changed():
    for count in (1, 479, 480, 481, 16000):
        sound = voice(0, seconds=2)[:count]
        kept = trim_silence(sound, 16000)
        assert len(kept) >= count - 480
        assert np.array_equal(kept, sound[: len(kept)])
    silent = np.zeros(4000, dtype=np.float32)
    assert len(trim_silence(silent, 16000)) == 4000
    assert not detect_speech(silent, 16000).any()
