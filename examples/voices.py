"""Enroll two synthetic voices in a gallery and recognize them again. For real voices, use hs.load("ge2e")."""

import pathlib
import tempfile

import numpy as np
import torch

import hypersphere as hs
from hypersphere.data.audio_preprocessing import encode_wav

RATE = 16000


def speak(pitch: float, seed: int) -> torch.Tensor:
    """Return two seconds of a buzzing tone; the seed determines its vibrato and noise."""
    draw, time = np.random.default_rng(seed), np.arange(2 * RATE) / RATE
    phase = 2 * np.pi * pitch * (time + 0.002 * np.sin(2 * np.pi * draw.uniform(1, 3) * time))
    tones = sum(np.sin(k * phase) / k for k in range(1, 25))
    return torch.from_numpy((0.2 * tones + 0.01 * draw.normal(size=len(time))).astype(np.float32))


class BandStatistics(torch.nn.Module):
    """Network without parameters: the mean of each mel band over time, minus the mean over all bands."""

    def forward(self, spectrograms: torch.Tensor) -> torch.Tensor:
        return spectrograms.mean(2) - spectrograms.mean((1, 2))[:, None]


embedder = hs.Embedder(BandStatistics(), hs.data.AudioPreprocessing(frames=100, step=50, center=False))
with tempfile.TemporaryDirectory() as folder:
    for person, pitch in {"ann": 210.0, "bob": 110.0}.items():
        for take in range(2):
            pathlib.Path(folder, f"{person}{take}.wav").write_bytes(encode_wav(speak(pitch, take), RATE))
    with hs.Gallery(":memory:", embedder) as gallery:
        for person in ("ann", "bob"):
            gallery.enrol(person, f"{folder}/{person}0.wav")
        answers = gallery.identify([f"{folder}/ann1.wav", f"{folder}/bob1.wav"], threshold=0.8)
print(names := [answer.name for answer in answers])
assert names == ["ann", "bob"]
