import json

import pytest

from hypersphere.cli import main as cli
from hypersphere.cli.settings_file import read_settings
from hypersphere.config import as_call, assign
from hypersphere.training import FitSettings

YAML = """
steps: 40
head:
  call: ArcFace
  m: 0.4
optimizer.lr: 5.0e-2
augment:
  - {call: Flip}
  - {call: Affine, rotation: 0.1}
clip: null
keep_best: true
size: [24, 32]
"""
TOML = """
steps = 40
"optimizer.lr" = 5.0e-2
clip = "none"
keep_best = true
size = [24, 32]
[head]
call = "ArcFace"
m = 0.4
[[augment]]
call = "Flip"
[[augment]]
call = "Affine"
rotation = 0.1
"""
EXPECTED = {
    "steps=40", "head=ArcFace", "head.m=0.4", "optimizer.lr=0.05", "augment.0=Flip", "augment.1=Affine",
    "augment.1.rotation=0.1", "clip=none", "keep_best=true", "size=24,32",
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [("s.yaml", YAML), ("s.toml", TOML)])
def test_both_formats_give_the_same_settings(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    found = read_settings(str(tmp_path / name))
    assert set(found) == EXPECTED
    assert found.index("head=ArcFace") < found.index("head.m=0.4")
    built = assign(as_call(FitSettings()), found).build()
    assert (built.steps, built.size, built.keep_best, built.clip) == (40, (24, 32), True, None)
    assert built.head.arguments["m"] == 0.4


def test_a_file_written_as_json_is_read(tmp_path):
    (tmp_path / "s.json").write_text(json.dumps({"head": {"m": 0.3, "call": "CosFace"}}))
    assert read_settings(str(tmp_path / "s.json")) == ["head=CosFace", "head.m=0.3"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.ini", "", "must be a .yaml, .toml or .json file"),
        ("s.yaml", "steps: [", "is not valid YAML"),
        ("s.toml", "steps = ", "is not valid TOML"),
        ("s.yaml", "- 1", "must contain settings"),
        ("s.yaml", "when: 2020-01-01", "when must be a number"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_it(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_settings(str(tmp_path / name))


def test_the_command_line_has_precedence(tmp_path, capsys):
    (tmp_path / "s.yaml").write_text("steps: 40\nseed: 7\n")
    line = ["train", "lsoftmax-mnist", "--size", "smoke", "--keys", "--config", str(tmp_path / "s.yaml"), "steps=3"]
    assert cli.main(line) == 0
    shown = capsys.readouterr().out
    assert "steps=3 " in shown
    assert "seed=7 " in shown


def test_an_unknown_key_of_a_file_is_named(tmp_path, capsys):
    (tmp_path / "s.yaml").write_text("stepps: 40\n")
    assert cli.main(["train", "lsoftmax-mnist", "--keys", "--config", str(tmp_path / "s.yaml")]) == 1
    assert "there is no key stepps" in capsys.readouterr().err
