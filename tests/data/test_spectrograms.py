"""Comparison of spectrograms with an independent float64 implementation: explicit sums and other formulas for the scales."""

import numpy as np
import pytest
import torch

from hypersphere.data import mel_filters, mel_spectrogram
from hypersphere.data.spectrograms import MIN_POWER, short_time_power
from tests.data.voices import voice


def reference_power(samples, fft, window, hop):
    count = 1 + (len(samples) - fft) // hop
    n = np.arange(window)
    hann = np.zeros(fft)
    left = (fft - window) // 2
    hann[left : left + window] = np.sin(np.pi * n / window) ** 2
    k = np.arange(fft // 2 + 1)[:, None]
    wave = np.exp(-2j * np.pi * k * np.arange(fft)[None] / fft)
    frames = np.stack([samples[j * hop : j * hop + fft] * hann for j in range(count)], 1)
    return np.abs(wave @ frames) ** 2


def to_mel(f, scale):
    if scale == "htk":
        return 1127.01048 * np.log1p(f / 700)
    return f / (200 / 3) if f < 1000 else 15 + 27 * np.log(f / 1000) / np.log(6.4)


def reference_filters(rate, fft, bands, low, high, scale):
    """Compute filters: find the edges by bisection, then evaluate each triangle point by point."""

    def to_hertz(mel):
        a, b = 0.0, rate
        for _ in range(100):
            a, b = ((a + b) / 2, b) if to_mel((a + b) / 2, scale) < mel else (a, (a + b) / 2)
        return a

    edges = [to_hertz(m) for m in np.linspace(to_mel(low, scale), to_mel(high, scale), bands + 2)]
    filters = np.zeros((bands, fft // 2 + 1))
    for i in range(bands):
        left, center, right = edges[i : i + 3]
        for j in range(fft // 2 + 1):
            f = j * rate / fft
            if left < f < right:
                filters[i, j] = (f - left) / (center - left) if f < center else (right - f) / (right - center)
        if scale == "slaney":
            filters[i] *= 2 / (right - left)
    return filters


@pytest.mark.parametrize("scale", ["slaney", "htk"])
@pytest.mark.parametrize(
    ("rate", "fft", "bands", "low", "high"), [(16000, 400, 40, 0, 8000), (8000, 512, 23, 50, 3800)]
)
def test_filters(scale, rate, fft, bands, low, high):
    expected = reference_filters(rate, fft, bands, low, high, scale)
    found = mel_filters(rate, fft, bands, low, high, scale)
    np.testing.assert_allclose(found.double().numpy(), expected, atol=2e-6 * expected.max())


@pytest.mark.parametrize(("fft", "window", "hop"), [(400, 400, 160), (512, 400, 160), (256, 200, 80)])
@pytest.mark.parametrize("scale", ["slaney", "htk"])
@pytest.mark.parametrize("logarithm", [True, False])
@pytest.mark.parametrize("center", [True, False])
def test_mel_spectrogram(fft, window, hop, scale, logarithm, center):
    samples = voice(2, seconds=0.6).astype(np.float64)
    expected = reference_filters(16000, fft, 32, 20, 7600, scale) @ reference_power(samples, fft, window, hop)
    if logarithm:
        expected = np.log(np.maximum(expected, MIN_POWER))
    if center:
        expected = expected - expected.mean(1, keepdims=True)
    options = {"fft": fft, "window": window, "hop": hop, "bands": 32, "low": 20.0, "high": 7600.0, "scale": scale}
    for dtype, tolerance in ((torch.float64, 1e-6), (torch.float32, 1e-4)):
        given = torch.from_numpy(samples).to(dtype)
        found = mel_spectrogram(given, logarithm=logarithm, center=center, **options)
        scale_of = np.abs(expected).max()
        np.testing.assert_allclose(found.double().numpy(), expected, atol=tolerance * scale_of)


def test_a_batch_is_its_rows_and_gradients_flow():
    batch = torch.randn(3, 2000, requires_grad=True)
    found = mel_spectrogram(batch, bands=20)
    torch.testing.assert_close(found[1], mel_spectrogram(batch[1], bands=20))
    found.sum().backward()
    assert batch.grad.isfinite().all()
    assert short_time_power(torch.zeros(1000)).shape == (201, 4)


@pytest.mark.untyped
def test_refuses():
    with pytest.raises(ValueError, match="scale must be 'slaney' or 'htk', got 'bark'"):
        mel_filters(16000, 400, 40, scale="bark")
    with pytest.raises(ValueError, match="low and high must satisfy"):
        mel_filters(16000, 400, 40, high=9000.0)
