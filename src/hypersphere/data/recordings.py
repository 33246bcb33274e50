"""Decode sound files from untrusted sources: named formats only, limits on size, one kind of error.

libsndfile (``soundfile``) decodes WAV, FLAC, Ogg with Vorbis or Opus, MP3 and AIFF files with any sample rate, number of
channels and number format. Integer samples are scaled to −1 … 1 by the range of their format.
"""

import io
import math
import os
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from .._extras import require
from .errors import make_corrupt_error
from .images import MAX_BYTES, read_bytes

RECORDING_ENDINGS = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif")
FORMATS = ("WAV", "WAVEX", "RF64", "FLAC", "OGG", "MP3", "AIFF")
MAX_SAMPLES = 1 << 26  # of all channels, a quarter of a gigabyte; 70 minutes of one channel at 16 kHz
MIN_RATE, MAX_RATE = 1000, 768_000  # Hz
MAX_SILENT_PEAK = 1e-4  # highest absolute value in a silent recording, −80 dB
FILTER_HALF_LENGTH = 32  # zero crossings of the resampling filter on each side
FILTER_BETA = 12.0  # of its Kaiser window: about 118 dB of attenuation outside the passband


@dataclass(frozen=True, eq=False)
class Recording:
    """The samples of a recording.

    Args:
        samples: Samples in −1 … 1, one column per channel.
        rate: Sample rate in Hz.

    Raises:
        ValueError: There is no sample, a sample is not finite, or the rate is out of range.

    >>> recording = Recording(np.zeros((8000, 2), dtype=np.float32), 16000)
    >>> recording.seconds, recording.channels
    (0.5, 2)
    """

    samples: Float32[np.ndarray, "n channels"]
    rate: int

    def __post_init__(self) -> None:
        if self.samples.ndim != 2 or not self.samples.size:
            raise ValueError(f"a recording must have the shape (samples, channels), got {self.samples.shape}")
        if not MIN_RATE <= self.rate <= MAX_RATE:
            raise ValueError(f"rate must lie in {MIN_RATE} … {MAX_RATE} Hz, got {self.rate!r}")
        if not np.isfinite(self.samples).all():
            raise ValueError("a recording must be finite, got NaN or infinity")

    @property
    def channels(self) -> int:
        """Number of channels."""
        return self.samples.shape[1]

    @property
    def seconds(self) -> float:
        """Duration."""
        return len(self.samples) / self.rate

    def cut(self, start: float, end: float) -> "Recording":
        """Return the part from ``start`` to ``end`` in seconds.

        Raises:
            ValueError: The part is empty or ends more than 0.1 s after the end of the recording.

        >>> Recording(np.zeros((16000, 1), dtype=np.float32), 16000).cut(0.25, 0.5).seconds
        0.25
        """
        if not 0 <= start < end or end > self.seconds + 0.1:
            raise ValueError(
                f"start and end must lie in 0 … {self.seconds:.2f} s in this order, got {start:g}, {end:g}"
            )
        return Recording(self.samples[round(start * self.rate) : round(end * self.rate)], self.rate)

    def resample(self, rate: int) -> Float32[np.ndarray, "n"]:
        """Return the mean of the channels at another sample rate, resampled by a polyphase filter.

        >>> Recording(np.ones((48000, 2), dtype=np.float32), 48000).resample(16000).shape
        (16000,)
        """
        mono = self.samples.mean(1, dtype=np.float32)
        if rate == self.rate:
            return mono
        common = math.gcd(rate, self.rate)
        up, down = rate // common, self.rate // common
        signal = require("scipy.signal", "audio")
        taps = signal.firwin(
            2 * FILTER_HALF_LENGTH * max(up, down) + 1, 1 / max(up, down), window=("kaiser", FILTER_BETA)
        )
        return signal.resample_poly(mono, up, down, window=taps.astype(np.float32)).astype(np.float32)


def decode_recording(content: bytes, where: str, max_samples: int = MAX_SAMPLES) -> Recording:
    """Decode a sound file.

    Args:
        content: The bytes of the file.
        where: The name of the file in errors.
        max_samples: Maximum number of samples of all channels, checked before decoding.

    Raises:
        CorruptDataError: The file is empty, damaged, too long or of another format. The message contains the reason.

    >>> decode_recording(b"no sound", "noise.wav")
    Traceback (most recent call last):
    hypersphere.data.errors.CorruptDataError: noise.wav: ...
    """
    soundfile = require("soundfile", "audio")
    try:
        if len(content) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        _check_riff_length(content)
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            if file.format not in FORMATS:
                raise ValueError(f"the format {file.format}")
            if file.frames * file.channels > max_samples:
                raise TooManySamplesError(f"{file.frames}×{file.channels} samples, more than {max_samples}")
            declared_length = file.frames
            samples = file.read(dtype="float32", always_2d=True)
            if len(samples) == 0:
                raise ValueError("no samples")
            if len(samples) < declared_length and file.format != "MP3":  # an MP3 header only estimates the length
                raise ValueError(f"{len(samples)} of {declared_length} samples")
            return Recording(samples, file.samplerate)
    except ImportError:
        raise
    except Exception as error:  # a damaged file can raise any exception; its reason becomes part of the message
        reason = f"{type(error).__name__}: {error}".replace("\n", " ")
        if isinstance(error, soundfile.LibsndfileError):
            reason = error.error_string.rstrip(". ")  # str(error) would contain the address of a buffer
        found = f"{len(content)} bytes that do not decode ({reason})" if content else "an empty file"
        raise make_corrupt_error(where, found, "a whole sound file (WAV, FLAC, Ogg, MP3, AIFF)") from error


class TooManySamplesError(ValueError):
    """Raised if a sound file declares more samples than may be decoded."""


def _check_riff_length(content: bytes) -> None:
    """Raise an error for a truncated WAV file, which libsndfile would accept. Streams of unknown length declare 0 or 2³² − 1."""
    declared_length = int.from_bytes(content[4:8], "little")
    if content[:4] == b"RIFF" and declared_length not in (0, 0xFFFFFFFF) and declared_length + 8 > len(content) + 1:
        raise ValueError(f"{len(content)} of {declared_length + 8} bytes")


def read_recording(path: str | os.PathLike[str]) -> Recording:
    """Read a sound file.

    Args:
        path: The file.

    Raises:
        MissingDataError: There is no such file.
        CorruptDataError: The file cannot be decoded.

    >>> read_recording("no such file.wav")
    Traceback (most recent call last):
    hypersphere.data.errors.MissingDataError: ...
    """
    return decode_recording(read_bytes(path), str(path))
