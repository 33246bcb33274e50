"""Real data: from HYPERSPHERE_DATA, else from ``shared/data`` beside the repository; a test that needs what is not there is skipped."""

import os
from pathlib import Path

import pytest

from hypersphere.data.roots import VARIABLE, data_roots, locate


@pytest.fixture
def real():
    """``real("mnist")`` gives the data roots that hold the dataset."""
    roots = data_roots() if os.environ.get(VARIABLE) else (Path(__file__).parents[3] / "shared" / "data",)

    def have(name: str) -> tuple[Path, ...]:
        if locate(name, roots) is None:
            pytest.skip(
                f"{name} is not in {', '.join(map(str, roots))}: set {VARIABLE}, or `hypersphere data get {name}`"
            )
        return roots

    return have
