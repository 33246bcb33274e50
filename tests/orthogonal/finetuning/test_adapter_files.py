import copy

import pytest
import torch
from torch import nn

from hypersphere.files import save_tree
from hypersphere.orthogonal import (
    Int8Linear,
    finetune,
    load_adapters,
    merge,
    overparameterize,
    redraw,
    save_adapters,
    use_task,
)
from tests.orthogonal.finetuning.contracts import shake

METHODS = [("oft", {}), ("oft", {"terms": 4}), ("coft", {"eps": 0.1}), ("boft", {}), ("hra", {}), ("poet", {})]


def network():
    torch.manual_seed(1)
    body = [nn.Conv2d(3, 8, (3, 1)), nn.Flatten(), nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 64)]
    return nn.Sequential(*body, nn.ReLU(), nn.Linear(64, 5))


X = torch.randn(2, 3, 4, 2, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("method", "options"), METHODS)
def test_adapters_go_from_one_base_to_a_fresh_one(tmp_path, method, options):
    model = shake(finetune(network(), method, block=8, **options))
    nn.init.normal_(model[6].bias)  # the classifier is trained as usual and is saved too
    save_adapters(model, tmp_path / "a.safetensors")
    fresh = load_adapters(network(), tmp_path / "a.safetensors")
    assert torch.equal(fresh(X), model(X))
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {name for name, p in fresh.named_parameters() if p.requires_grad} == trained
    assert {name for name, p in merge(fresh).named_parameters() if p.requires_grad} == set(
        dict(network().named_parameters())
    )


def test_the_file_is_small(tmp_path):
    model = finetune(nn.Sequential(nn.Linear(768, 3072), nn.Linear(3072, 768)), block=32, classifier=False)
    save_adapters(model, tmp_path / "a.safetensors")
    assert (tmp_path / "a.safetensors").stat().st_size < 4 * (24 + 96) * 496 + 4000  # the model has 19 MB


def test_another_base_is_refused_by_name(tmp_path):
    save_adapters(shake(finetune(network(), block=8)), tmp_path / "a")
    other = network()
    with torch.no_grad():
        other[2].weight[0, 0] += 1e-6
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(ValueError, match="was learned on another base: 2 differ"):
        load_adapters(other, tmp_path / "a")
    assert all(torch.equal(v, before[k]) for k, v in other.state_dict().items())
    load_adapters(other, tmp_path / "a", check=False)


def test_several_are_kept_and_switched(tmp_path):
    first, second = shake(finetune(network(), block=8)), shake(finetune(network(), block=8))
    save_adapters(first, tmp_path / "1")
    save_adapters(second, tmp_path / "2")
    model = load_adapters(load_adapters(network(), tmp_path / "1", task="one"), tmp_path / "2", task="two")
    assert torch.equal(model(X), first(X))
    assert torch.equal(use_task(model, "two")(X), second(X))
    assert torch.equal(use_task(model, "one")(X), first(X))
    with pytest.raises(ValueError, match="has a task 'two' already"):
        load_adapters(model, tmp_path / "2", task="two")


def test_refuses(tmp_path):
    with pytest.raises(ValueError, match="no over-parameterized or finetuned layer"):
        save_adapters(network(), tmp_path / "a")
    with pytest.raises(ValueError, match="has no finetuned layer"):
        save_adapters(overparameterize(network()), tmp_path / "a")
    with pytest.raises(ValueError, match="was redrawn"):
        save_adapters(redraw(finetune(network(), "poet", block=8)), tmp_path / "a")
    save_tree({"a": 1}, tmp_path / "a")
    with pytest.raises(ValueError, match="holds no adapters"):
        load_adapters(network(), tmp_path / "a")
    save_adapters(finetune(network(), block=8), tmp_path / "a")
    with pytest.raises(ValueError, match="tunes '0', which Linear does not have"):
        load_adapters(_headed(), tmp_path / "a")
    with pytest.raises(ValueError, match=r"has '6.weight' of shape \(5, 64\)"):
        load_adapters(network()[:6], tmp_path / "a")
    with pytest.raises(ValueError, match="must be a name of letters"):
        load_adapters(network(), tmp_path / "a", task="a b")
    with pytest.raises(ValueError, match="merge\\(model\\) first"):
        load_adapters(finetune(network(), block=8, only=["2"]), tmp_path / "a")
    with pytest.raises(ValueError, match="is tuned by"):
        load_adapters(finetune(network(), block=4), tmp_path / "a", task="b")


def _headed():
    """Return a model that has the classifier "6" of the file, but none of its tuned layers."""

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.add_module("6", nn.Linear(64, 5))

    return Linear()


def test_quantized_bases(tmp_path):
    def base():
        torch.manual_seed(0)
        return nn.Sequential(Int8Linear.of(nn.Linear(16, 64)), nn.ReLU(), nn.Linear(64, 3))

    model, x = shake(finetune(base(), block=4)), torch.randn(2, 16)
    save_adapters(model, tmp_path / "a")
    assert torch.equal(load_adapters(base(), tmp_path / "a")(x), model(x))
    other = base()
    other[0].weight[0, 0] += 1
    with pytest.raises(ValueError, match="another base: 0 differ"):
        load_adapters(other, tmp_path / "a")
