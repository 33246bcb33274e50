import pytest

from hypersphere.training import fit

from .drawn import QUICK, folder


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("drawn") / "people", identities=12)


@pytest.fixture(scope="session")
def fitted(pictures, tmp_path_factory):
    """Return one run that many tests share, and every line that it printed."""
    lines = []
    run = fit(pictures, tmp_path_factory.mktemp("runs") / "run", settings=[*QUICK, "steps=60"], say=lines.append)
    return run, lines
