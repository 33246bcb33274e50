"""Preprocessing of recordings: resample, trim, cut into windows, compute mel spectrograms."""

import io
import math
import os
import wave
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32, UInt8
from torch import Tensor

from .preprocessing import Preprocessing, Region
from .recordings import MAX_SILENT_PEAK, Recording, decode_recording, read_recording
from .spectrograms import mel_spectrogram
from .voice_activity import trim_silence

MAX_INPUT_SAMPLES = 1 << 24  # per window; bounds the memory that a preprocessing read from a file can allocate
MAX_WINDOWS = 10_000  # per recording
THUMBNAIL_WIDTH = 160  # pixels


@dataclass(frozen=True)
class AudioPreprocessing(Preprocessing):
    """Preprocessing of recordings for a speaker network.

    The steps are: average the channels, resample with a polyphase filter, amplify quiet recordings to ``level``, remove long
    silences, and cut the recording into windows of equal length, stored in float32. The input of the network is the mel
    spectrogram of a window, (bands, frames). The embedder averages the features of all windows of a recording.

    Args:
        rate: Sample rate of the network's input in Hz.
        frames: Frames per window. 300 frames are 3 s.
        step: Frames from the start of one window to the start of the next.
        coverage: Minimum share of the last window that lies within the recording; with less, the window is dropped.
        window: Length of the Hann window in samples. 400 samples are 25 ms.
        hop: Samples from one frame to the next. 160 samples are 10 ms.
        fft: Length of the Fourier transform in samples; by default ``window``.
        bands: Number of mel bands.
        low: Lowest frequency in Hz.
        high: Highest frequency in Hz; by default half of ``rate``.
        scale: Mel scale, "slaney" or "htk"; see :func:`~hypersphere.data.spectrograms.mel_filters`.
        logarithm: Use the logarithm of the power.
        center: Subtract the mean over time from each band of a window.
        level: Amplify recordings with a lower mean level to this level, in decibels of full scale. None keeps the level.
        trim: "energy" removes long silences (:func:`~hypersphere.data.voice_activity.trim_silence`); None keeps them.
        padding: How to extend recordings shorter than a window: "repeat" the recording or append "zero" samples.
        min_seconds: Minimum duration after trimming; shorter recordings are refused.

    Raises:
        ValueError: If an argument is out of range.

    >>> prepare = AudioPreprocessing(frames=100, step=50)
    >>> tone = np.sin(np.arange(24000) / 10)  # 1.5 s at 16 kHz
    >>> prepare.load_windows(tone).shape, prepare(tone).shape
    (torch.Size([2, 16240]), torch.Size([80, 100]))
    """

    rate: int = 16000
    frames: int = 300
    step: int = 150
    coverage: float = 0.75
    window: int = 400
    hop: int = 160
    fft: int | None = None
    bands: int = 80
    low: float = 20.0
    high: float | None = None
    scale: Literal["slaney", "htk"] = "slaney"
    logarithm: bool = True
    center: bool = True
    level: float | None = None
    trim: Literal["energy"] | None = "energy"
    padding: Literal["repeat", "zero"] = "repeat"
    min_seconds: float = 0.3

    medium = "recording"
    plural = "recordings"
    dtype = torch.float32
    averages_windows = True
    input_name = "samples"

    def __post_init__(self) -> None:
        _check_arguments(self)

    @property
    def frame_length(self) -> int:
        """Length of a frame in samples."""
        return self.fft or self.window

    @property
    def shape(self) -> tuple[int]:
        """Shape of one window, (samples,)."""
        return ((self.frames - 1) * self.hop + self.frame_length,)

    def load(self, sample: Any, box: Region | None = None) -> Float[Tensor, "samples"]:
        """Return the central window of a recording.

        Args:
            sample: A path, the bytes of a file, a :class:`Recording`, or an array or tensor (samples,) or (samples, channels)
                at ``rate``: floating point in −1 … 1, or integers.
            box: The part of the recording to use, (start, end) in seconds.

        Raises:
            ValueError: If the recording is silent or too short.
        """
        windows = self.load_windows(sample, box)
        return windows[len(windows) // 2]

    def load_windows(self, sample: Any, box: Region | None = None) -> Float[Tensor, "k samples"]:
        """Return all windows of a recording in temporal order."""
        samples = self.prepare(sample, box)
        starts = self._window_starts(len(samples))
        length = self.shape[0]
        # Frame j is centered at sample j·hop of the recording, so pad half a frame of zeros before the first sample.
        left = self.frame_length // 2
        right = max(0, starts[-1] * self.hop + length - left - len(samples))
        padded = torch.from_numpy(np.pad(samples, (left, right)))
        return torch.stack([padded[start * self.hop : start * self.hop + length] for start in starts])

    def prepare(self, sample: Any, box: Region | None = None) -> Float32[np.ndarray, "n"]:
        """Return the samples of a recording, resampled, amplified and trimmed, before it is cut into windows."""
        recording = self._read(sample)
        name = f"{os.fspath(sample)}: " if isinstance(sample, str | os.PathLike) else ""
        if box is not None:
            if len(box) != 2:
                raise ValueError(f"{name}the part of a recording must be (start, end) in seconds, got {box!r}")
            recording = recording.cut(*box)
        if float(np.abs(recording.samples).max()) < MAX_SILENT_PEAK:
            raise ValueError(f"{name}the recording is silent ({recording.seconds:.2f} s)")
        samples = recording.resample(self.rate)
        if self.level is not None:
            rms = max(float(np.sqrt(np.square(samples, dtype=np.float64).mean())), 1e-12)
            samples = samples * np.float32(max(1.0, 10 ** (self.level / 20) / rms))
        if self.trim == "energy":
            samples = trim_silence(samples, self.rate)
        if len(samples) < self.min_seconds * self.rate:
            kind = "" if self.trim is None else " of speech"
            raise ValueError(
                f"{name}the recording is too short: {len(samples) / self.rate:.2f} s{kind}, "
                f"at least {self.min_seconds:g} s are needed"
            )
        shortage = self.frames * self.hop - len(samples)
        return np.pad(samples, (0, shortage), mode="wrap") if shortage > 0 and self.padding == "repeat" else samples

    def normalize(self, stored: Float[Tensor, "*n samples"]) -> Float[Tensor, "*n bands frames"]:
        """Return the mel spectrograms of windows of any length."""
        return mel_spectrogram(
            stored,
            rate=self.rate,
            fft=self.frame_length,
            window=self.window,
            hop=self.hop,
            bands=self.bands,
            low=self.low,
            high=self.high,
            scale=self.scale,
            logarithm=self.logarithm,
            center=self.center,
        )

    def draw_stored(self, count: int, generator: torch.Generator) -> Float[Tensor, "n samples"]:
        """Return random windows, noise of increasing level, for comparing the outputs of two networks."""
        return torch.randn(count, *self.shape, generator=generator) * torch.linspace(0.02, 0.2, self.shape[0])

    def describe_input(self) -> str:
        """Return one sentence about the input of an exported graph."""
        return (
            f"samples: float32 (batch, {self.shape[0]}), windows of a recording of one channel at {self.rate} Hz in −1 … 1 "
            f"that begin every {self.step * self.hop} samples, after {self.frame_length // 2} zeros; the mel spectrogram is in "
            "the graph; average the directions of the features of all windows"
        )

    def encode_example(self) -> bytes:
        """Return a WAV file with a tone of two seconds, the warm-up request of a service."""
        return encode_wav(torch.sin(torch.arange(2 * self.rate) / 10) / 2, self.rate)

    def thumbnails(self, stored: Float[Tensor, "n samples"]) -> UInt8[Tensor, "n 1 height width"]:
        """Return spectrograms as 8-bit pictures: low frequencies at the bottom, high power bright."""
        power = self.normalize(stored)
        image = power if self.logarithm else (power + 1e-8).log()
        low, high = image.flatten(1).quantile(0.05, 1), image.flatten(1).amax(1)
        scaled = (image - low[:, None, None]) / (high - low).clamp(min=1e-6)[:, None, None]
        pixels = scaled.clamp(0, 1).flip(1)[:, None]
        if pixels.shape[3] > 2 * THUMBNAIL_WIDTH:
            pixels = F.adaptive_avg_pool2d(pixels, (pixels.shape[2], THUMBNAIL_WIDTH))
        return pixels.mul(255).round().to(torch.uint8)

    def _read(self, sample: Any) -> Recording:
        if isinstance(sample, Recording):
            return sample
        if isinstance(sample, str | os.PathLike):
            return read_recording(sample)
        if isinstance(sample, bytes):
            return decode_recording(sample, "the recording")
        if isinstance(sample, Tensor):
            sample = sample.detach().cpu().numpy()
        if not isinstance(sample, np.ndarray) or sample.dtype.kind not in "iuf":
            raise ValueError(
                f"a recording must be a path, bytes, a Recording, an array or a tensor of samples, "
                f"got {type(sample).__name__}"
            )
        if sample.ndim not in (1, 2) or not sample.size:
            raise ValueError(f"samples must have the shape (n,) or (n, channels), got {sample.shape}")
        return Recording(_to_float(sample).reshape(len(sample), -1), self.rate)

    def _window_starts(self, count: int) -> list[int]:
        """Return the first frame of each window of a recording with ``count`` samples."""
        total = math.ceil((count + 1) / self.hop)
        starts = list(range(0, max(1, total - self.frames + self.step + 1), self.step))
        covered = (count - starts[-1] * self.hop) / (self.frames * self.hop)
        if len(starts) > 1 and covered < self.coverage:
            starts.pop()
        if len(starts) > MAX_WINDOWS:
            raise ValueError(f"the recording has {len(starts)} windows, more than {MAX_WINDOWS}; give parts of it")
        return starts


def encode_wav(samples: Float[Tensor, "n"], rate: int) -> bytes:
    """Encode samples in −1 … 1 as a 16-bit mono WAV file.

    >>> encode_wav(torch.zeros(4), 16000)[:4]
    b'RIFF'
    """
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(samples.mul(32767).round().clamp(-32768, 32767).numpy().astype("<i2").tobytes())
    return file.getvalue()


def _to_float(samples: np.ndarray) -> Float32[np.ndarray, "..."]:
    if samples.dtype.kind == "f":
        return samples.astype(np.float32)
    limits = np.iinfo(samples.dtype)
    middle = (limits.max + 1) // 2 if samples.dtype.kind == "u" else 0  # silence in unsigned formats
    return ((samples.astype(np.float64) - middle) / (limits.max + 1 - middle)).astype(np.float32)


def _check_arguments(self: AudioPreprocessing) -> None:
    for name, low, high in (
        ("rate", 1000, 768_000),
        ("frames", 2, 1 << 16),
        ("step", 1, self.frames),
        ("window", 16, 1 << 16),
        ("hop", 1, self.window),
        ("bands", 1, 1024),
    ):
        value = getattr(self, name)
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"{name} must be an integer in {low} … {high}, got {value!r}")
    if self.fft is not None and (type(self.fft) is not int or not self.window <= self.fft <= 1 << 16):
        raise ValueError(f"fft must be an integer in {self.window} … {1 << 16}, got {self.fft!r}")
    if self.shape[0] > MAX_INPUT_SAMPLES:
        raise ValueError(f"a window must have at most {MAX_INPUT_SAMPLES} samples, got {self.shape[0]}")
    top = self.rate / 2 if self.high is None else self.high
    if not 0 <= self.low < top <= self.rate / 2:
        raise ValueError(
            f"low and high must satisfy 0 ≤ low < high ≤ {self.rate / 2:g} Hz, got {self.low}, {self.high}"
        )
    for name, accepted in (
        ("scale", ("slaney", "htk")),
        ("trim", ("energy", None)),
        ("padding", ("repeat", "zero")),
        ("logarithm", (True, False)),
        ("center", (True, False)),
    ):
        if getattr(self, name) not in accepted:
            raise ValueError(f"{name} must be one of {', '.join(map(str, accepted))}, got {getattr(self, name)!r}")
    if not 0 < self.coverage <= 1:
        raise ValueError(f"coverage must lie in 0 … 1 and not be 0, got {self.coverage!r}")
    if not 0 < self.min_seconds <= 3600:
        raise ValueError(f"min_seconds must lie in 0 … 3600 and not be 0, got {self.min_seconds!r}")
    if self.level is not None and not -100 <= self.level <= 0:
        raise ValueError(f"level must lie in −100 … 0 decibels, got {self.level!r}")
