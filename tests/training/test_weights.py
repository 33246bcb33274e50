import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from hypersphere.training import load_weights, start_from


class Dangerous:
    def __reduce__(self):
        return print, ("ran",)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"state_dict": s, "epoch": 3}, lambda s: {"model": s}])
def test_a_state_dict_of_torch(tmp_path, wrap):
    model = network()
    torch.save(wrap(model.state_dict()), tmp_path / "weights.pt")
    found = load_weights(tmp_path / "weights.pt")
    assert all(torch.equal(found[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("prefix", ["", "module.", "backbone.", "model.", "_orig_mod."])
def test_names_with_a_prefix_fit(tmp_path, prefix):
    first, second = network(), network()
    save_file({f"{prefix}{name}": tensor for name, tensor in first.state_dict().items()}, tmp_path / "w.safetensors")
    report = start_from(second, tmp_path / "w.safetensors")
    assert report == {"loaded": list(first.state_dict()), "missing": [], "unused": [], "misshapen": []}
    assert torch.equal(first[0].weight, second[0].weight)


@pytest.mark.parametrize(
    ("inside", "outside"), [("body.", "body.network.body."), ("network.", ""), ("", "model.body.")]
)
def test_a_network_that_is_wrapped_on_either_side_fits(tmp_path, inside, outside):
    first, second = network(), network()
    save_file({f"{inside}{name}": tensor for name, tensor in first.state_dict().items()}, tmp_path / "w.safetensors")
    held = second
    for part in reversed(outside.split(".")[:-1]):
        held = nn.ModuleDict({part: held})
    report = start_from(held, tmp_path / "w.safetensors")
    assert len(report["loaded"]) == 4
    assert torch.equal(first[0].weight, second[0].weight)


def test_names_that_are_alike_behind_their_wrappers_are_not_guessed(tmp_path):
    state = {f"{side}.{name}": tensor for side in ("model", "body") for name, tensor in network().state_dict().items()}
    save_file({**state, "network.1.bias": torch.zeros(2)}, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match=r"nothing in .* fits this network"):
        start_from(network(), tmp_path / "w.safetensors")


def test_what_does_not_fit_is_said(tmp_path):
    save_file(
        {"0.weight": torch.ones(3, 4), "1.weight": torch.ones(7, 3), "other": torch.ones(1)}, tmp_path / "w.safetensors"
    )
    model = network()
    before = model[1].weight.detach().clone()
    report = start_from(model, tmp_path / "w.safetensors")
    assert report == {
        **{"loaded": ["0.weight"], "missing": ["0.bias", "1.bias"]},
        **{"unused": ["other"], "misshapen": ["1.weight"]},
    }
    assert torch.equal(model[1].weight, before)
    assert torch.equal(model[0].weight, torch.ones(3, 4))


def test_no_code_is_run_and_damage_is_named(tmp_path, capsys):
    torch.save({"x": Dangerous()}, tmp_path / "code.pt")
    with pytest.raises(ValueError, match="is damaged, or holds more than tensors and plain values"):
        load_weights(tmp_path / "code.pt")
    assert "ran" not in capsys.readouterr().out
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    (tmp_path / "bad.pt").write_bytes(b"nothing")
    torch.save([1, 2], tmp_path / "list.pt")
    save_file({"else": torch.ones(1)}, tmp_path / "else.safetensors")
    for name, message in {
        "bad.safetensors": "is not a readable safetensors file",
        "bad.pt": "is damaged, or holds",
        "list.pt": "holds a list, not a state_dict",
        "nowhere": "there is no file",
        "else.safetensors": r"nothing in .* fits this network; it has 0.weight.*the file else",
    }.items():
        with pytest.raises(ValueError, match=message):
            start_from(network(), tmp_path / name)
