import argparse
import logging

import numpy as np
import pytest
from PIL import Image

from hypersphere.cli.main import COMMANDS, build_parser, main
from hypersphere.cli.terminal import add_verbosity, escape_controls, log_messages


def test_controls_are_shown_and_text_stays():
    assert escape_controls("Zoë\t1\n") == "Zoë\t1\n"
    assert escape_controls("\x1b]0;title\x07\x9b2J") == "\\x1b]0;title\\x07\\x9b2J"
    assert escape_controls("\u202egnp.exe") == "\\u202egnp.exe"


def test_names_of_folders_cannot_control_the_terminal(tmp_path, capsys):
    for person in ("a\x1b[2J", "b"):
        (tmp_path / person).mkdir()
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / person / "1\x1b[31m.png")
    main(["data", "check", str(tmp_path)])
    main(["data", "check", str(tmp_path / "missing\x1b[2J")])
    said = "".join(capsys.readouterr())
    assert "\x1b" not in said
    assert "\\x1b[2J" in said


@pytest.mark.parametrize(
    ("options", "written"),
    [([], ["warning"]), (["-q"], []), (["-v"], ["info", "warning"]), (["-vv"], ["debug", "info", "warning"])],
)
def test_messages_of_the_library_follow_the_options(options, written, capsys):
    parser = argparse.ArgumentParser()
    add_verbosity(parser)
    logger = logging.getLogger("hypersphere.training")
    with log_messages(parser.parse_args(options)):
        logger.debug("debug")
        logger.info("info")
        logger.warning("warning")
    assert [line.rpartition(": ")[2] for line in capsys.readouterr().err.splitlines()] == written
    assert not logging.getLogger("hypersphere").handlers


def test_every_action_of_a_command_has_both_options():
    parser, _ = build_parser(COMMANDS)
    for words in (["gallery", "list", "a.db", "-q"], ["data", "list", "-v"], ["models", "-vv"]):
        args = parser.parse_args(words)
        assert args.quiet or args.verbose
