import argparse

import pytest

from hypersphere.cli.source_options import add_source_options, read_source_options


def test_only_given_options_are_passed_on():
    parser = argparse.ArgumentParser()
    add_source_options(parser)
    assert read_source_options(parser.parse_args([])) == {}
    given = parser.parse_args(
        ["--split", "val", "--depth", "2", "--root", "r", "--images", "x", "--labels", "y", "--skip-errors"]
    )
    assert read_source_options(given) == {
        "split": "val",
        "depth": 2,
        "root": "r",
        "images": "x",
        "labels": "y",
        "on_error": "skip",
    }


def test_a_command_may_lack_options(capsys):
    parser = argparse.ArgumentParser()
    add_source_options(parser, "split")
    assert read_source_options(parser.parse_args(["--depth", "3"])) == {"depth": 3}
    with pytest.raises(SystemExit):
        parser.parse_args(["--split", "val"])
