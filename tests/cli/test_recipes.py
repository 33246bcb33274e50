import json

from hypersphere import recipes
from hypersphere.cli.main import main


def test_lists_every_recipe(capsys):
    assert main(["recipes"]) == 0
    out = capsys.readouterr().out
    for entry in recipes.RECIPES.values():
        assert f"  {entry.name} " in out
        assert entry.tables in out
        assert entry.data in out


def test_a_size_shows_its_settings(capsys):
    assert main(["recipes", "--size", "paper"]) == 0
    out = capsys.readouterr().out
    assert "42,500" in out
    assert "cnn9" in out


def test_one_recipe_in_full(capsys):
    assert main(["recipes", "mhe-cifar10", "--size", "paper"]) == 0
    text, _, settings = capsys.readouterr().out.partition("\n{")
    assert "Liu (2020, 5.5.1, D.1)" in text
    assert json.loads("{" + settings)["steps"] == 42500


def test_an_unknown_one_is_an_error(capsys):
    assert main(["recipes", "mhe"]) == 1
    assert "there is no recipe 'mhe'" in capsys.readouterr().err
    assert main(["recipes", "opt-mpl-mnist"]) == 1
    assert "did you mean opt-mlp-mnist?" in capsys.readouterr().err
