import pytest

from hypersphere.training import fit

from .drawn import QUICK, folder


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("drawn") / "people", identities=12)


@pytest.fixture(scope="session")
def fitted(pictures, tmp_path_factory):
    """One run that many tests look at, with every line that it said."""
    lines = []
    run = fit(pictures, tmp_path_factory.mktemp("runs") / "run", settings=[*QUICK, "steps=60"], say=lines.append)
    return run, lines
