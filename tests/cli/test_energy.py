import json

import pytest
import torch
from safetensors.torch import save_file

from hypersphere.cli.main import main


@pytest.fixture
def state():
    weight = torch.randn(12, 3, 3, 3)
    weight[4] = weight[2]
    weight[7] = 0
    return {"conv.weight": weight, "conv.bias": torch.zeros(12), "fc.weight": torch.randn(5, 12)}


def test_a_table_of_either_format(tmp_path, state, capsys):
    torch.save(state, tmp_path / "a.pt")
    save_file(state, tmp_path / "a.safetensors")
    assert main(["energy", str(tmp_path / "a.pt")]) == 0
    table = capsys.readouterr().out
    assert main(["energy", str(tmp_path / "a.safetensors")]) == 0
    assert capsys.readouterr().out == table
    header, conv, fc = table.rstrip().splitlines()
    assert header.split()[:3] == ["layer", "what", "neurons"]
    assert conv.split()[:5] == ["conv.weight", "–", "12", "×", "27"]
    assert conv.rstrip().endswith("2-4")
    assert " 7 " in conv
    assert fc.split()[:5] == ["fc.weight", "output", "5", "×", "12"]
    assert header.split()[5:8] == ["energy", "random", "separation"]


def test_json_and_nested_states(tmp_path, state, capsys):
    torch.save({"model": state, "epoch": 3, "empty": torch.zeros(4, 4)}, tmp_path / "a.pt")
    assert main(["energy", str(tmp_path / "a.pt"), "--json", "--half-space", "--s", "0", "--pairs", "1"]) == 0
    conv, fc, empty = json.loads(capsys.readouterr().out)
    assert (conv["name"], conv["neurons"], conv["dim"], conv["dead"]) == ("model.conv.weight", 12, 27, [7])
    assert len(fc["nearest"]) == 1
    assert empty["energy"] is None


def test_a_picture(tmp_path, state, capsys):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    torch.save(state, tmp_path / "a.pt")
    assert main(["energy", str(tmp_path / "a.pt"), "--plot", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "name", ["bad.pt", "bad.safetensors", "empty.pt", "missing.pt", "list.pt", "code.pt", "biases.pt"]
)
def test_what_cannot_be_read_is_one_line(tmp_path, capsys, name):
    (tmp_path / "bad.pt").write_text("nothing")
    (tmp_path / "bad.safetensors").write_text("nothing" * 20)
    (tmp_path / "empty.pt").touch()
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "code.pt")
    torch.save({"bias": torch.zeros(3)}, tmp_path / "biases.pt")
    assert main(["energy", str(tmp_path / name)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("hypersphere energy: ")
    assert len(err.strip().splitlines()) == 1


def test_what_changed_since_another(tmp_path, state, capsys):
    torch.save(state, tmp_path / "a.pt")
    torch.save(state | {"fc.weight": 2 * state["fc.weight"]}, tmp_path / "b.pt")
    assert main(["energy", str(tmp_path / "b.pt"), "--against", str(tmp_path / "a.pt")]) == 0
    last = capsys.readouterr().out.rstrip().splitlines()[-1].split()
    assert (last[0], last[3]) == ("fc.weight", "2.0000")
    assert main(["energy", str(tmp_path / "b.pt"), "--against", str(tmp_path / "a.pt"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["changes"][1]["length"] == pytest.approx(2)
    torch.save({"other": torch.randn(3, 3)}, tmp_path / "c.pt")
    assert main(["energy", str(tmp_path / "b.pt"), "--against", str(tmp_path / "c.pt")]) == 1
    assert "share no layer" in capsys.readouterr().err
