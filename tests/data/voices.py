"""Recordings for tests: synthetic voices that differ in pitch and resonance, and the real ones if they are here."""

import os
import pathlib
import tarfile

import numpy as np
import pytest
import soundfile

RATE = 16000


def voice(person, take=0, seconds=1.5, rate=RATE):
    """Return a synthetic voice: the pitch and two resonances depend on the person, the melody on the take."""
    draw = np.random.default_rng(1000 * person + take)
    time = np.arange(round(seconds * rate)) / rate
    pitch = (90 + 23 * person) * (1 + 0.03 * np.sin(2 * np.pi * draw.uniform(2, 4) * time + draw.uniform(0, 6)))
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    peaks = 400 + 60 * person, 1400 + 110 * person
    sound = sum(
        np.sin(k * phase) * sum(np.exp(-(((90 + 23 * person) * k - peak) ** 2) / 2e5) for peak in peaks)
        for k in range(1, 20)
    )
    sound += 0.003 * draw.normal(size=len(time))
    return (0.3 * sound / np.abs(sound).max()).astype(np.float32)


def write_people(folder, people=4, takes=3, seconds=1.5, ending="wav"):
    """Write recordings into one folder per person."""
    for person in range(people):
        home = pathlib.Path(folder) / f"person{person}"
        home.mkdir(parents=True)
        for take in range(takes):
            soundfile.write(home / f"{take}.{ending}", voice(person, take, seconds), RATE)
    return pathlib.Path(folder)


def unpack_speakers(target):
    """Return the folder of real recordings, 48 speakers with 12 utterances each; skip the test if they are missing."""
    root = pathlib.Path(os.environ.get("HYPERSPHERE_DATA", pathlib.Path(__file__).parents[3] / "shared" / "data"))
    archive = root / "speaker_recordings" / "speakers_48.tar.xz"
    if not archive.is_file():
        pytest.skip("the speaker recordings are not here; set HYPERSPHERE_DATA")
    with tarfile.open(archive) as packed:
        packed.extractall(target, filter="data")
    return pathlib.Path(target) / "speakers_48"
