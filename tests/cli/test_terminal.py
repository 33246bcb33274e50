import numpy as np
from PIL import Image

from hypersphere.cli.main import main
from hypersphere.cli.terminal import escape_controls


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
