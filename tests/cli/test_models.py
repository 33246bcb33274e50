import json

import pytest

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
        (["models", "--fetch"], "--fetch needs the name of a model"),
        (["models", "w600k-mbf", "--fetch"], "--accept-licence w600k-mbf"),
    ],
)
def test_wrong_uses_end_in_one_sentence(arguments, message, capsys):
    assert main(arguments) == 1
    assert message in capsys.readouterr().err
