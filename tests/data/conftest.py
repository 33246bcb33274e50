"""Real data from HYPERSPHERE_DATA or from ``shared/data`` beside the repository. Tests are skipped if their data is missing."""

import os
from pathlib import Path

import pytest

from hypersphere.data.roots import VARIABLE, data_roots, locate


@pytest.fixture
def real():
    """``real("mnist")`` returns the data roots with the dataset."""
    roots = _roots()

    def have(name: str) -> tuple[Path, ...]:
        if locate(name, roots) is None:
            pytest.skip(
                f"{name} is not in {', '.join(map(str, roots))}: set {VARIABLE}, or `hypersphere data get {name}`"
            )
        return roots

    return have


@pytest.fixture
def real_file():
    """``real_file("spoken_digits/spoken_digits_48.npz")`` returns the path of the file below the first data root that contains it."""

    def have(name: str) -> Path:
        found = next((root / name for root in _roots() if (root / name).is_file()), None)
        return found or pytest.skip(f"{name} is not in {', '.join(map(str, _roots()))}: set {VARIABLE}")

    return have


def _roots() -> tuple[Path, ...]:
    return data_roots() if os.environ.get(VARIABLE) else (Path(__file__).parents[3] / "shared" / "data",)
