import pathlib
import re

import pytest

from hypersphere._extras import require

ROOT = pathlib.Path(__file__).parent.parent
FILES = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md")]


def test_a_module_that_is_there():
    assert require("json").dumps([1]) == "[1]"
    assert require("os.path").join("a", "b")


def test_a_missing_extra_is_one_sentence_with_the_install_line():
    with pytest.raises(
        ImportError, match=r"this needs nowhere, which is not installed: pip install 'torch-hypersphere\[train\]'"
    ):
        require("nowhere.inside")


def test_a_broken_module_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_extra.py").write_text("import not_there_either\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_either"):
        require("broken_extra")


def test_every_extra_that_is_named_is_declared():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = set(re.findall(r"torch-hypersphere\[([\w,]+)\]", "".join(p.read_text() for p in FILES)))
    assert named
    assert {extra for group in named for extra in group.split(",")} <= declared.keys()
    used = re.findall(r"""require\(\s*"[\w.]+",\s*"(\w+)"\s*\)""", "".join(p.read_text() for p in FILES))
    assert used
    assert set(used) <= declared.keys()
    assert not [p for p in FILES if re.search(r"pip install '?hypersphere", p.read_text())]
