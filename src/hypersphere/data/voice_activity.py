"""Detection of speech by its energy, and removal of long silences."""

import numpy as np
from jaxtyping import Bool, Float32

FRAME_SECONDS = 0.03
SMOOTHED_FRAMES = 8  # each decision is replaced by the majority of this number of decisions around it
KEPT_SILENT_FRAMES = 6  # shorter silences are kept, so that words stay separated
LOUD_QUANTILE = 0.95  # quantile of the power of all frames that is used as the level of speech


def trim_silence(
    samples: Float32[np.ndarray, "n"], rate: int, decibels: float = 35.0, frames: Bool[np.ndarray, "k"] | None = None
) -> Float32[np.ndarray, "m"]:
    """Return a recording without its long silences.

    A frame of 30 ms is speech if its power is at most ``decibels`` below the 95 % quantile of all frames. Decisions are
    smoothed over 8 frames, and 3 silent frames on each side of speech are kept.

    Args:
        samples: The recording.
        rate: Sample rate in Hz.
        decibels: Maximum difference of speech from the 95 % quantile.
        frames: Whether each frame is speech, for example from a trained detector. None uses :func:`detect_speech`.

    Returns:
        The samples of the remaining frames; the whole recording if no frame is speech.

    >>> tone = np.sin(np.arange(16000, dtype=np.float32))
    >>> silence = np.zeros(32000, dtype=np.float32)
    >>> bool(16000 <= len(trim_silence(np.concatenate([silence, tone, silence]), 16000)) < 24000)
    True
    """
    speech = detect_speech(samples, rate, decibels) if frames is None else frames
    length = round(FRAME_SECONDS * rate)
    if not speech.any():
        return samples
    padded = np.concatenate([np.zeros(SMOOTHED_FRAMES // 2), speech, np.zeros(SMOOTHED_FRAMES // 2 - 1)])
    smooth = np.convolve(padded, np.full(SMOOTHED_FRAMES, 1 / SMOOTHED_FRAMES), "valid") >= 0.5
    kept = np.convolve(smooth, np.ones(KEPT_SILENT_FRAMES + 1), "same") > 0.5
    return samples[np.repeat(kept, length)[: len(samples)]] if kept.any() else samples


def detect_speech(samples: Float32[np.ndarray, "n"], rate: int, decibels: float = 35.0) -> Bool[np.ndarray, "k"]:
    """Return for each frame of 30 ms whether its power is at most ``decibels`` below the 95 % quantile.

    >>> detect_speech(np.concatenate([np.zeros(960), np.ones(960)]).astype(np.float32), 16000).tolist()
    [False, False, True, True]
    """
    length = round(FRAME_SECONDS * rate)
    count = -(-len(samples) // length)
    framed = np.pad(samples, (0, count * length - len(samples))).reshape(count, length)
    power = np.square(framed, dtype=np.float64).mean(1)
    return power > max(np.quantile(power, LOUD_QUANTILE) * 10 ** (-decibels / 10), 1e-12)
