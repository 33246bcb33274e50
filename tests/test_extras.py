import pytest

from hypersphere._extras import require


def test_a_module_that_is_there():
    assert require("json").dumps([1]) == "[1]"
    assert require("os.path").join("a", "b")


def test_a_missing_extra_is_one_sentence_with_the_install_line():
    with pytest.raises(
        ImportError, match=r"this needs nowhere, which is not installed: pip install 'hypersphere\[train\]'"
    ):
        require("nowhere.inside")


def test_a_broken_module_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_extra.py").write_text("import not_there_either\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_either"):
        require("broken_extra")
