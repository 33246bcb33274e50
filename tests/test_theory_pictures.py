"""The pictures of the theory pages are drawn by the library: ``docs/theory_pictures.py``."""

import importlib.util

import pytest

from tests.test_package import ROOT

SCRIPT = ROOT / "docs" / "theory_pictures.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("theory_pictures", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_kept_and_shown(script):
    for name in script.PICTURES:
        assert f"](assets/{name}.png)" in (ROOT / "docs" / f"{name}.md").read_text()
        assert 10_000 < (ROOT / "docs" / "assets" / f"{name}.png").stat().st_size < 200_000


@pytest.mark.parametrize(
    "name", ["objectives", *(pytest.param(n, marks=pytest.mark.slow) for n in ("operators", "energy", "orthogonal"))]
)
def test_it_is_drawn_alike_every_time(script, name, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "STEPS", 5)
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        script.PICTURES[name](folder)
    assert (tmp_path / "a" / f"{name}.png").read_bytes() == (tmp_path / "b" / f"{name}.png").read_bytes()
