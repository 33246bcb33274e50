"""Augmentation of recordings: crops, gain, noise, speed and reverberation of samples, and masks in spectrograms.

Noise and reverberation are synthetic, so no other data is needed. :class:`AddNoise` can also use recordings of noise.
"""

import functools
import math
import os
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from .augment import Augmentation, Uniforms
from .errors import DataError
from .images import read_bytes
from .recordings import RECORDING_ENDINGS, decode_recording

COLORS = 3  # kinds of synthetic noise: white, pink, brown


class RandomCrop(Augmentation):
    """A random part of a recording, of fixed length.

    Args:
        samples: Length of the part. 32000 are 2 s at 16 kHz.

    >>> RandomCrop(2)(torch.arange(4.0)[None], torch.tensor([[0.99]])).tolist()
    [[2.0, 3.0]]
    """

    def __init__(self, samples: int = 32000):
        if samples < 1:
            raise ValueError(f"samples must be an integer ≥ 1, got {samples}")
        self.samples = samples

    def draws(self, shape: torch.Size) -> int:
        """Return the number of random draws per recording: one for the start of the crop."""
        return 1

    def __call__(self, batch: Float[Tensor, "b n"], u: Uniforms) -> Float[Tensor, "b m"]:
        """Return the parts. Recordings that are not longer than a part are not cut."""
        excess = batch.shape[1] - self.samples
        if excess <= 0:
            return batch
        starts = (u[:, :1] * (excess + 1)).long().to(batch.device)
        return batch.gather(1, starts + torch.arange(self.samples, device=batch.device))


class Gain(Augmentation):
    """A random change of the level, uniform in decibels.

    >>> Gain(20.0)(torch.ones(1, 2), torch.tensor([[1.0]])).tolist()
    [[10.0, 10.0]]
    """

    def __init__(self, decibels: float = 10.0):
        if decibels < 0:
            raise ValueError(f"decibels must be ≥ 0, got {decibels}")
        self.decibels = decibels

    def draws(self, shape: torch.Size) -> int:
        """Return the number of random draws per recording: one for the level."""
        return 1

    def __call__(self, batch: Float[Tensor, "b n"], u: Uniforms) -> Float[Tensor, "b n"]:
        """Return the recordings with changed levels."""
        return batch * (10 ** ((2 * u[:, :1] - 1) * self.decibels / 20)).to(batch)


class AddNoise(Augmentation):
    """Noise at a random signal-to-noise ratio: synthetic (white, pink or brown), or from a folder of recordings.

    Args:
        low: Lowest signal-to-noise ratio in decibels.
        high: Highest signal-to-noise ratio in decibels.
        share: Share of the recordings to which noise is added.
        folder: Folder of recordings of noise, including its sub-folders; None for synthetic noise.
        rate: Sample rate of the batch in Hz. Recordings of noise are resampled to it.

    Raises:
        ValueError: An argument is out of range.
        DataError: The folder contains no recording; raised at first use.

    >>> AddNoise()(torch.ones(2, 1600), torch.rand(2, 4)).shape
    torch.Size([2, 1600])
    """

    def __init__(
        self,
        low: float = 5.0,
        high: float = 25.0,
        share: float = 0.5,
        folder: str | os.PathLike[str] | None = None,
        rate: int = 16000,
    ):
        if low > high or not 0 <= share <= 1:
            raise ValueError(f"low must be at most high, and share in 0 … 1, got {low}, {high} and {share}")
        self.low, self.high, self.share, self.folder, self.rate = low, high, share, folder, rate

    @functools.cached_property
    def noises(self) -> Sequence[Tensor] | None:
        """Samples of each recording in the folder, read at first use; None without a folder."""
        return None if self.folder is None else _read_noises(self.folder, self.rate)

    def draws(self, shape: torch.Size) -> int:
        """Return the number of random draws per recording: whether to add noise, its level, its kind, and the position in it."""
        return 4

    def __call__(self, batch: Float[Tensor, "b n"], u: Uniforms) -> Float[Tensor, "b n"]:
        """Return the recordings with noise."""
        noise = torch.stack([self._make_noise(batch.shape[1], row) for row in u]).to(batch)
        ratio = 10 ** (-(self.low + (self.high - self.low) * u[:, 1:2]) / 20)
        level, noise_level = (x.square().mean(1, keepdim=True).sqrt() for x in (batch, noise))
        is_used = (u[:, :1] < self.share).to(batch)
        return batch + is_used * ratio.to(batch) * level * (noise / noise_level.clamp(min=1e-8))

    def _make_noise(self, count: int, u: Tensor) -> Tensor:
        """Return part of a recording of noise, or white noise whose spectrum is divided by a power of the frequency."""
        if self.noises is not None:
            noise = self.noises[min(int(u[2] * len(self.noises)), len(self.noises) - 1)]
            start = int(u[3] * len(noise))
            return noise[(start + torch.arange(count)) % len(noise)]
        generator = torch.Generator().manual_seed(int(u[3] * (1 << 48)))
        spectrum = torch.fft.rfft(torch.randn(count, generator=generator))
        exponent = min(int(u[2] * COLORS), COLORS - 1) / 2
        return torch.fft.irfft(spectrum / torch.arange(1, len(spectrum) + 1) ** exponent, n=count)


class Speed(Augmentation):
    """A random change of speed, which also changes the pitch. The length does not change: the end is cut or the start repeated.

    >>> Speed(0.1)(torch.rand(2, 100), torch.rand(2, 1)).shape
    torch.Size([2, 100])
    """

    def __init__(self, amount: float = 0.1):
        if not 0 <= amount < 1:
            raise ValueError(f"amount must lie in 0 … 1, got {amount}")
        self.amount = amount

    def draws(self, shape: torch.Size) -> int:
        """Return the number of random draws per recording: one for the speed."""
        return 1

    def __call__(self, batch: Float[Tensor, "b n"], u: Uniforms) -> Float[Tensor, "b n"]:
        """Return the faster or slower recordings, interpolated linearly."""
        count = batch.shape[1]
        positions = torch.arange(count) * (1 + self.amount * (2 * u[:, :1] - 1))
        low = positions.floor()
        index = (low.long() % count).to(batch.device)
        fraction = (positions - low).to(batch)
        return batch.gather(1, index) * (1 - fraction) + batch.gather(1, (index + 1) % count) * fraction


class Reverberate(Augmentation):
    """Reverberation of a synthetic room, whose impulse response is the direct sound and exponentially decaying noise.

    Args:
        seconds: Longest reverberation time (decay by 60 dB).
        share: Share of the recordings to which reverberation is added.
        rate: Sample rate in Hz.

    >>> Reverberate(0.1)(torch.rand(2, 2000), torch.rand(2, 4)).shape
    torch.Size([2, 2000])
    """

    def __init__(self, seconds: float = 0.5, share: float = 0.3, rate: int = 16000):
        if seconds <= 0 or not 0 <= share <= 1:
            raise ValueError(f"seconds must be positive and share in 0 … 1, got {seconds} and {share}")
        self.seconds, self.share, self.rate = seconds, share, rate

    def draws(self, shape: torch.Size) -> int:
        """Return the number of random draws per recording: whether to add reverberation, its duration, level, and noise."""
        return 4

    def __call__(self, batch: Float[Tensor, "b n"], u: Uniforms) -> Float[Tensor, "b n"]:
        """Return the recordings with reverberation, at unchanged levels."""
        length = int(self.seconds * self.rate)
        times = torch.arange(length) / self.rate
        seeds = [torch.Generator().manual_seed(int(row[3] * (1 << 48))) for row in u]
        noise = torch.stack([torch.randn(length, generator=generator) for generator in seeds])
        decay = torch.exp(-3 * math.log(10) * times / (self.seconds * (0.1 + 0.9 * u[:, 1:2])))
        response = noise * decay
        response = response / response.square().sum(1, keepdim=True).sqrt() * (0.1 + 0.9 * u[:, 2:3])
        response[:, 0] = 1  # the direct sound
        response = response.to(batch)
        size = batch.shape[1] + length
        result = torch.fft.irfft(torch.fft.rfft(batch, size) * torch.fft.rfft(response, size), size)[
            :, : batch.shape[1]
        ]
        power, new_power = (x.square().mean(1, keepdim=True) for x in (batch, result))
        result = result * (power / new_power.clamp(min=1e-12)).sqrt()
        return torch.where((u[:, :1] < self.share).to(batch.device), result, batch)


class SpecAugment(Augmentation):
    """Random ranges of bands and of frames of a spectrogram are set to its mean (Park et al., 2019, without warping).

    Args:
        bands: Maximum number of bands in a mask.
        frames: Maximum number of frames in a mask.
        masks: Number of masks of each kind.

    >>> SpecAugment(2, 3)(torch.rand(2, 8, 20), torch.rand(2, 8)).shape
    torch.Size([2, 8, 20])
    """

    def __init__(self, bands: int = 10, frames: int = 30, masks: int = 2):
        if bands < 0 or frames < 0 or masks < 1:
            raise ValueError(f"bands and frames must be ≥ 0 and masks ≥ 1, got {bands}, {frames} and {masks}")
        self.bands, self.frames, self.masks = bands, frames, masks

    def draws(self, shape: torch.Size) -> int:
        """Return the number of random draws per spectrogram: width and position of each mask."""
        return 4 * self.masks

    def __call__(self, batch: Float[Tensor, "b bands frames"], u: Uniforms) -> Float[Tensor, "b bands frames"]:
        """Return the masked spectrograms."""
        mean = batch.mean((1, 2), keepdim=True)
        for i in range(self.masks):
            for axis, widest, at in ((1, self.bands, 4 * i), (2, self.frames, 4 * i + 2)):
                size = batch.shape[axis]
                width = (u[:, at] * (min(widest, size) + 1)).floor()
                start = u[:, at + 1] * (size - width)
                index = torch.arange(size)
                is_masked = (index >= start[:, None]) & (index < (start + width)[:, None])
                batch = torch.where(is_masked.to(batch.device).unsqueeze(3 - axis), mean, batch)
        return batch


def _read_noises(folder: str | os.PathLike[str], rate: int) -> Sequence[Tensor]:
    paths = sorted(
        os.path.join(home, name)
        for home, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith(RECORDING_ENDINGS)
    )
    if not paths:
        raise DataError(f"the folder {folder} holds no recording of noise ({' '.join(RECORDING_ENDINGS)})")
    return [torch.from_numpy(np.ascontiguousarray(decode_recording(read_bytes(p), p).resample(rate))) for p in paths]
