"""Spectrograms in torch: short-time Fourier transform, mel filter banks, logarithm, mean normalization."""

import functools
import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

MIN_POWER = 1e-8  # lower powers are raised to it before the logarithm; about the noise of 16-bit samples
MelScale = Literal["slaney", "htk"]


def short_time_power(
    samples: Float[Tensor, "*n t"], *, fft: int = 400, window: int = 400, hop: int = 160
) -> Float[Tensor, "*n bins frames"]:
    """Return |STFT|², the power of each frequency in overlapping frames.

    Frame j covers samples j·hop … j·hop + fft. It is multiplied by a periodic Hann window of ``window`` samples in its
    center. There is no padding: pad the samples by fft/2 on both sides to center frame j at sample j·hop.

    Args:
        samples: The waveform.
        fft: Length of a frame in samples.
        window: Length of the Hann window, at most ``fft``.
        hop: Samples from one frame to the next.

    Returns:
        fft/2 + 1 frequencies from 0 to half the sample rate, and 1 + (t − fft)/hop frames.

    >>> short_time_power(torch.zeros(16000)).shape
    torch.Size([201, 98])
    """
    # Multiply by cosines and sines instead of calling an FFT. For 400 samples this is as fast, and exported graphs compute the
    # same numbers, although the Fourier transforms of their runtimes have a low precision.
    frames = samples.unfold(-1, fft, hop)
    cosines, sines = _build_fourier_matrices(fft, window, samples.dtype, samples.device)
    return ((frames @ cosines).square() + (frames @ sines).square()).transpose(-1, -2)


def mel_spectrogram(
    samples: Float[Tensor, "*n t"],
    *,
    rate: int = 16000,
    fft: int = 400,
    window: int = 400,
    hop: int = 160,
    bands: int = 80,
    low: float = 0.0,
    high: float | None = None,
    scale: MelScale = "slaney",
    logarithm: bool = True,
    center: bool = False,
) -> Float[Tensor, "*n bands frames"]:
    """Return the power, or its natural logarithm, in mel bands.

    Args:
        samples: The waveform in −1 … 1.
        rate: Samples per second.
        fft: Length of a frame in samples.
        window: Length of the Hann window in samples.
        hop: Samples from one frame to the next.
        bands: Number of mel bands.
        low: The lowest frequency in Hz.
        high: The highest frequency in Hz; half the sample rate by default.
        scale: See :func:`mel_filters`.
        logarithm: Return log(max(power, 10⁻⁸)) instead of the power.
        center: Subtract the mean over frames from each band, which removes the response of the microphone and the room if
            ``logarithm`` is true.

    >>> mel_spectrogram(torch.randn(2, 16000)).shape
    torch.Size([2, 80, 98])
    """
    power = short_time_power(samples, fft=fft, window=window, hop=hop)
    filters = mel_filters(rate, fft, bands, low, high, scale).to(power)
    result = filters @ power
    if logarithm:
        # Not result + MIN_POWER, because the optimizer of exported graphs removes such a small addition.
        result = result.clamp(min=MIN_POWER).log()
    return result - result.mean(-1, keepdim=True) if center else result


@functools.lru_cache(maxsize=16)
def mel_filters(
    rate: int, fft: int, bands: int, low: float = 0.0, high: float | None = None, scale: MelScale = "slaney"
) -> Float[Tensor, "bands bins"]:
    """Return triangular filters whose centers are equally spaced on a mel scale.

    Args:
        rate: Samples per second.
        fft: Length of a frame in samples.
        bands: Number of filters.
        low: The lower edge of the first filter in Hz.
        high: The upper edge of the last filter in Hz; half the sample rate by default.
        scale: ``"slaney"`` (Slaney, 1998) is linear below 1 kHz, and its filters have area 1; it is the default of librosa.
            ``"htk"`` is 2595·log₁₀(1 + f/700), and its filters have height 1.

    Raises:
        ValueError: An argument is out of range.

    >>> mel_filters(16000, 400, 40).shape
    torch.Size([40, 201])
    """
    top = rate / 2 if high is None else high
    if scale not in ("slaney", "htk"):
        raise ValueError(f"scale must be 'slaney' or 'htk', got {scale!r}")
    if not 0 <= low < top <= rate / 2:
        raise ValueError(f"low and high must satisfy 0 ≤ low < high ≤ {rate / 2:g} Hz, got {low:g} and {top:g}")
    ends = _to_mel(torch.tensor([low, top], dtype=torch.double), scale)
    edges = _to_hertz(torch.linspace(float(ends[0]), float(ends[1]), bands + 2, dtype=torch.double), scale)
    frequencies = torch.linspace(0, rate / 2, fft // 2 + 1, dtype=torch.double)
    left, center, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (frequencies - left) / (center - left), (right - frequencies) / (right - center)
    filters = torch.minimum(rising, falling).clamp(min=0)
    if scale == "slaney":
        filters = filters * 2 / (right - left)
    return filters.float()


def _to_mel(hertz: Tensor, scale: MelScale) -> Tensor:
    if scale == "htk":
        return 2595 * torch.log10(1 + hertz / 700)
    return torch.where(hertz < 1000, hertz * 3 / 200, 15 + torch.log(hertz.clamp(min=1000) / 1000) * 27 / math.log(6.4))


def _to_hertz(mel: Tensor, scale: MelScale) -> Tensor:
    if scale == "htk":
        return 700 * (10 ** (mel / 2595) - 1)
    return torch.where(mel < 15, mel * 200 / 3, 1000 * torch.exp((mel.clamp(min=15) - 15) * math.log(6.4) / 27))


@functools.lru_cache(maxsize=16)
def _build_fourier_matrices(fft: int, window: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosines and sines (fft, bins) times the Hann window."""
    hann = torch.hann_window(window, periodic=True, dtype=torch.double)
    left = (fft - window) // 2
    hann = torch.nn.functional.pad(hann, (left, fft - window - left))[:, None]
    # The product is reduced modulo fft as integers, so that large angles lose no precision.
    turns = (torch.arange(fft)[:, None] * torch.arange(fft // 2 + 1)) % fft
    angles = turns.double() * (2 * math.pi / fft)
    return (hann * angles.cos()).to(device, dtype), (hann * angles.sin()).to(device, dtype)
