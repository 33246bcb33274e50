"""Augmentation of recordings: crops, gain, noise, speed and reverberation of samples, and masks in spectrograms.

Everything is synthetic, so no other data is needed; :class:`AddNoise` can also draw from a folder of noises.
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

COLORS = 3  # exponents of synthetic noise: white, pink, brown


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
        """Return one, for the start of the crop."""
        return 1

    def __call__(self, batch: Float[Tensor, "b n"], u: Uniforms) -> Float[Tensor, "b m"]:
        """Return the parts; recordings that are not longer stay whole."""
        room = batch.shape[1] - self.samples
        if room <= 0:
            return batch
        starts = (u[:, :1] * (room + 1)).long().to(batch.device)
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
        """One, for the level."""
        return 1

    def __call__(self, batch: Float[Tensor, "b n"], u: Uniforms) -> Float[Tensor, "b n"]:
        """Return the louder or quieter recordings."""
        return batch * (10 ** ((2 * u[:, :1] - 1) * self.decibels / 20)).to(batch)


class AddNoise(Augmentation):
    """Noise at a random ratio of signal to noise: synthetic (white, pink or brown), or from a folder of recordings.

    Args:
        low: The lowest ratio in decibels.
        high: The highest ratio in decibels.
        share: The share of recordings that get noise.
        folder: Recordings of noise, searched with all sub-folders; None for synthetic noise.
        rate: Samples per second of the batch, to which noises are resampled.

    Raises:
        ValueError: An argument is out of range.
        DataError: When first used, the folder holds no recording.

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
        """Samples of the noises in the folder, read at first use; None without a folder."""
        return None if self.folder is None else _read_noises(self.folder, self.rate)

    def draws(self, shape: torch.Size) -> int:
        """Return four: whether to add noise, its level, its kind, and the position in it."""
        return 4

    def __call__(self, batch: Float[Tensor, "b n"], u: Uniforms) -> Float[Tensor, "b n"]:
        """Return the noisy recordings."""
        noise = torch.stack([self._noise(batch.shape[1], row) for row in u]).to(batch)
        ratio = 10 ** (-(self.low + (self.high - self.low) * u[:, 1:2]) / 20)
        loud = batch.square().mean(1, keepdim=True).sqrt()
        used = (u[:, :1] < self.share).to(batch)
        unit = noise / noise.square().mean(1, keepdim=True).sqrt().clamp(min=1e-8)
        return batch + used * ratio.to(batch) * loud * unit

    def _noise(self, count: int, u: Tensor) -> Tensor:
        if self.noises is not None:
            noise = self.noises[min(int(u[2] * len(self.noises)), len(self.noises) - 1)]
            start = int(u[3] * len(noise))
            return noise[(start + torch.arange(count)) % len(noise)]
        generator = torch.Generator().manual_seed(int(u[3] * (1 << 48)))
        spectrum = torch.fft.rfft(torch.randn(count, generator=generator))
        exponent = min(int(u[2] * COLORS), COLORS - 1) / 2
        return torch.fft.irfft(spectrum / torch.arange(1, len(spectrum) + 1) ** exponent, n=count)


class Speed(Augmentation):
    """A random change of speed, which also changes the pitch; the length stays, the end is cut or repeated.

    >>> Speed(0.1)(torch.rand(2, 100), torch.rand(2, 1)).shape
    torch.Size([2, 100])
    """

    def __init__(self, amount: float = 0.1):
        if not 0 <= amount < 1:
            raise ValueError(f"amount must lie in 0 … 1, got {amount}")
        self.amount = amount

    def draws(self, shape: torch.Size) -> int:
        """One, for the speed."""
        return 1

    def __call__(self, batch: Float[Tensor, "b n"], u: Uniforms) -> Float[Tensor, "b n"]:
        """Return the faster or slower recordings, interpolated linearly."""
        count = batch.shape[1]
        places = torch.arange(count) * (1 + self.amount * (2 * u[:, :1] - 1))
        low = places.floor()
        index = (low.long() % count).to(batch.device)
        fraction = (places - low).to(batch)
        return batch.gather(1, index) * (1 - fraction) + batch.gather(1, (index + 1) % count) * fraction


class Reverberate(Augmentation):
    """A synthetic room: noise that decays exponentially, after the direct sound.

    Args:
        seconds: The longest reverberation time (60 dB).
        share: The share of recordings that are changed.
        rate: Samples per second.

    >>> Reverberate(0.1)(torch.rand(2, 2000), torch.rand(2, 4)).shape
    torch.Size([2, 2000])
    """

    def __init__(self, seconds: float = 0.5, share: float = 0.3, rate: int = 16000):
        if seconds <= 0 or not 0 <= share <= 1:
            raise ValueError(f"seconds must be positive and share in 0 … 1, got {seconds} and {share}")
        self.seconds, self.share, self.rate = seconds, share, rate

    def draws(self, shape: torch.Size) -> int:
        """Return four: whether to add reverberation, its duration, its level, and its noise."""
        return 4

    def __call__(self, batch: Float[Tensor, "b n"], u: Uniforms) -> Float[Tensor, "b n"]:
        """Return the recordings in rooms, at their former level."""
        length = int(self.seconds * self.rate)
        times = torch.arange(length) / self.rate
        seeds = [torch.Generator().manual_seed(int(row[3] * (1 << 48))) for row in u]
        noise = torch.stack([torch.randn(length, generator=generator) for generator in seeds])
        decay = torch.exp(-3 * math.log(10) * times / (self.seconds * (0.1 + 0.9 * u[:, 1:2])))
        tail = noise * decay
        tail = tail / tail.square().sum(1, keepdim=True).sqrt() * (0.1 + 0.9 * u[:, 2:3])
        tail[:, 0] = 1
        room = tail.to(batch)
        size = batch.shape[1] + length
        wet = torch.fft.irfft(torch.fft.rfft(batch, size) * torch.fft.rfft(room, size), size)[:, : batch.shape[1]]
        wet = wet * (batch.square().mean(1, keepdim=True) / wet.square().mean(1, keepdim=True).clamp(min=1e-12)).sqrt()
        return torch.where((u[:, :1] < self.share).to(batch.device), wet, batch)


class SpecAugment(Augmentation):
    """Bands and stretches of time of a spectrogram set to its mean (Park et al., 2019, without warping).

    Args:
        bands: The widest mask of bands.
        frames: The longest mask of frames.
        masks: Masks of each kind.

    >>> SpecAugment(2, 3)(torch.rand(2, 8, 20), torch.rand(2, 8)).shape
    torch.Size([2, 8, 20])
    """

    def __init__(self, bands: int = 10, frames: int = 30, masks: int = 2):
        if bands < 0 or frames < 0 or masks < 1:
            raise ValueError(f"bands and frames must be ≥ 0 and masks ≥ 1, got {bands}, {frames} and {masks}")
        self.bands, self.frames, self.masks = bands, frames, masks

    def draws(self, shape: torch.Size) -> int:
        """Return two per mask: width and position."""
        return 4 * self.masks

    def __call__(self, batch: Float[Tensor, "b bands frames"], u: Uniforms) -> Float[Tensor, "b bands frames"]:
        """Return the masked spectrograms."""
        mean = batch.mean((1, 2), keepdim=True)
        for i in range(self.masks):
            for axis, widest, at in ((1, self.bands, 4 * i), (2, self.frames, 4 * i + 2)):
                size = batch.shape[axis]
                width = (u[:, at] * (min(widest, size) + 1)).floor()
                start = u[:, at + 1] * (size - width)
                place = torch.arange(size)
                hidden = (place >= start[:, None]) & (place < (start + width)[:, None])
                batch = torch.where(hidden.to(batch.device).unsqueeze(3 - axis), mean, batch)
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
