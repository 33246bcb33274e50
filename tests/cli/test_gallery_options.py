import argparse

import pytest

from hypersphere.cli.gallery_options import add_key_option
from hypersphere.cli.main import main
from hypersphere.recognition import Album


def test_the_key_of_a_gallery_is_a_file():
    parser = argparse.ArgumentParser()
    add_key_option(parser)
    assert parser.parse_args(["--key-file", "gallery.key"]).key_file == "gallery.key"
    assert parser.parse_args([]).key_file is None


@pytest.mark.parametrize(
    "command",
    [
        ["serve", "--album", "party.album"],
        ["group", "photos", "-o", "party.album"],
        ["album", "export", "party.album", "--table", "groups.csv"],
    ],
)
def test_a_key_without_a_gallery_is_refused(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Album(tmp_path / "party.album").close()
    assert main([*command, "--key-file", "people.key"]) == 1
    assert "--key-file needs a gallery, and no gallery is given" in capsys.readouterr().err
