"""Adapters in peft's format, compared with the outputs of peft."""

import json
import types

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from hypersphere.orthogonal import (
    Int8Linear,
    finetune,
    load_peft_adapter,
    merge,
    rewind,
    save_peft_adapter,
)
from tests.orthogonal.finetuning.contracts import shake

peft = pytest.importorskip("peft", reason="peft computes the outputs to compare with")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.untyped]


def linear():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32, bias=False), nn.Linear(32, 3))


def convolutional(kernel=1):
    torch.manual_seed(1)
    body = [nn.Conv2d(8, 16, kernel, stride=2, padding=kernel // 2), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)]
    return nn.Sequential(*body)


X = {linear: torch.randn(5, 16), convolutional: torch.randn(2, 8, 4, 4)}
OURS = [
    ("oft", {"block": 8}, linear),
    ("oft", {"block": 8, "terms": 4}, linear),
    ("oft", {"block": 4}, convolutional),
    ("coft", {"block": 8, "eps": 0.5}, linear),
    ("boft", {"block": 4, "factors": 1}, linear),
    ("boft", {"block": 4, "factors": 1, "lengths": True}, linear),
    ("boft", {"block": 4, "factors": 2}, linear),
    ("hra", {"rank": 4}, linear),
    ("hra", {"rank": 4}, convolutional),
    ("lora", {"rank": 4, "alpha": 6.0}, linear),
    ("lora", {"rank": 4}, convolutional),
    ("nora", {"rank": 4}, linear),
    ("dora", {"rank": 4}, linear),
]


@pytest.fixture(autouse=True)
def butterflies(monkeypatch):
    """Replace peft's CUDA code for several butterfly factors by plain torch."""
    from peft.tuners.boft import layer

    def forward(blocks):
        return [torch.stack([torch.block_diag(*factor) for factor in blocks])]

    monkeypatch.setattr(layer, "get_fbd_cuda", lambda: types.SimpleNamespace(forward=forward))
    monkeypatch.setattr(layer.FastBlockDiag, "apply", lambda blocks: forward(blocks)[0])


@pytest.mark.parametrize(("method", "options", "make"), OURS)
def test_adapters_trained_here_compute_the_same_in_peft(tmp_path, method, options, make):
    model = shake(finetune(make(), method, **options))
    nn.init.normal_(model[3].bias)  # the classifier is trained as usual and is saved too
    save_peft_adapter(model, tmp_path)
    theirs = peft.PeftModel.from_pretrained(make(), str(tmp_path)).eval()
    assert torch.allclose(theirs(X[make]), model(X[make]), atol=1e-5)
    assert not torch.allclose(model(X[make]), make()(X[make]), atol=1e-2)
    again = load_peft_adapter(make(), tmp_path)
    assert torch.allclose(again(X[make]), model(X[make]), atol=1e-6)


THEIRS = [
    (lambda: peft.OFTConfig(oft_block_size=8, use_cayley_neumann=False), linear),
    (lambda: peft.OFTConfig(oft_block_size=8, num_cayley_neumann_terms=6), linear),
    (lambda: peft.OFTConfig(oft_block_size=8, use_cayley_neumann=False, block_share=True), linear),
    (lambda: peft.OFTConfig(oft_block_size=4, use_cayley_neumann=False), convolutional),
    (lambda: peft.BOFTConfig(boft_block_size=4), linear),
    (lambda: peft.BOFTConfig(boft_block_size=4, boft_n_butterfly_factor=2), linear),
    (lambda: peft.HRAConfig(r=4), linear),
    (lambda: peft.HRAConfig(r=4), convolutional),
    (lambda: peft.LoraConfig(r=4, lora_alpha=16), linear),
    (lambda: peft.LoraConfig(r=4, use_rslora=True), linear),
    (lambda: peft.LoraConfig(r=4), convolutional),
    (lambda: peft.LoraConfig(r=4, use_dora=True), linear),
    (lambda: peft.LoraConfig(r=4, use_dora=True), convolutional),
]


def saved_by_peft(folder, config, make, layers=None):
    config.target_modules = set(layers or (["0", "2"] if make is linear else ["0"]))
    config.modules_to_save = ["3"]
    config.inference_mode = False
    theirs = peft.get_peft_model(make(), config)
    with torch.no_grad():
        for name, p in theirs.named_parameters():
            if p.requires_grad:
                p += 0.2 * torch.randn(p.shape) if "hra" not in name else torch.randn(p.shape)
    theirs.eval().save_pretrained(str(folder))
    return theirs


@pytest.mark.parametrize(("config", "make"), THEIRS)
def test_adapters_trained_by_peft_compute_the_same_here(tmp_path, config, make):
    theirs = saved_by_peft(tmp_path, config(), make)
    model = load_peft_adapter(make(), tmp_path)
    expected = theirs(X[make])
    assert torch.allclose(model(X[make]), expected, atol=1e-5 * float(expected.abs().max().clamp(min=1)))
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {"3.weight", "3.bias"} < trained
    plain = make()(X[make])
    assert torch.allclose(rewind(model, 0.0)[:3](X[make]), make()[:3](X[make]), atol=1e-5)
    assert merge(model)(X[make]).shape == plain.shape


def refusal(tmp_path, config, make, **changed):
    saved_by_peft(tmp_path, config, make)
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(ValueError) as caught:
        load_peft_adapter(make(), tmp_path)
    return str(caught.value)


def test_differences_from_peft_are_refused_with_the_reason(tmp_path):
    exact = {"oft_block_size": 4, "use_cayley_neumann": False}
    assert "series of 5 terms, whose R is not orthogonal" in refusal(tmp_path, peft.OFTConfig(oft_block_size=4), linear)
    assert "projects the generators" in refusal(tmp_path, peft.OFTConfig(**exact), linear, coft=True)
    assert "biases of the base" in refusal(tmp_path, peft.OFTConfig(**exact), linear, bias="all")
    assert "orthogonalized first" in refusal(tmp_path, peft.HRAConfig(r=4), linear, apply_GS=True)
    assert "rank must be an even" in refusal(tmp_path, peft.HRAConfig(r=3), linear)
    message = refusal(tmp_path, peft.LoraConfig(r=4), linear, init_lora_weights="pissa")
    assert "also changed weights of the base" in message
    assert "different ranks" in refusal(tmp_path, peft.LoraConfig(r=4), linear, rank_pattern={"0": 2})
    assert "of the kind 'IA3'" in refusal(tmp_path, peft.LoraConfig(r=4), linear, peft_type="IA3")

    def three():
        return convolutional(3)

    X[three] = X[convolutional]
    message = refusal(tmp_path, peft.OFTConfig(oft_block_size=4, use_cayley_neumann=False), three)
    assert "layer '0': peft's OFT rotates the patches" in message


def test_peft_is_wrong_about_larger_kernels(tmp_path):
    """This is why such files are refused: peft's outputs differ from those of its own merged layer."""
    config = peft.OFTConfig(oft_block_size=4, use_cayley_neumann=False, target_modules=["0"])
    theirs = peft.get_peft_model(convolutional(3), config)
    with torch.no_grad():
        for name, p in theirs.named_parameters():
            if "oft" in name:
                p += 0.2 * torch.randn(p.shape)
    y = theirs(X[convolutional])
    assert not torch.allclose(theirs.merge_and_unload()(X[convolutional]), y, atol=1e-2)


def test_layers_and_methods_that_peft_does_not_have_are_refused(tmp_path):
    def message(model):
        with pytest.raises(ValueError) as caught:
            save_peft_adapter(model, tmp_path)
        return str(caught.value)

    assert "no adapter for 'poet'" in message(finetune(linear(), "poet", block=4))
    assert "no learned lengths for 'oft'" in message(finetune(linear(), "oft", block=4, lengths=True))
    assert "from the third on" in message(finetune(linear(), "boft", block=4, factors=3))
    assert "one block size for all layers" in message(finetune(linear(), "oft", block=32))
    assert "rotates the patches" in message(finetune(convolutional(3), "oft", block=4))
    grouped = nn.Sequential(nn.Conv2d(8, 16, 1, groups=2))
    assert "grouped convolutions" in message(finetune(grouped, "hra", classifier=False))
    oblong = nn.Sequential(nn.Conv2d(8, 16, (3, 1)))
    assert "as a square one" in message(finetune(oblong, "boft", block=4, classifier=False))
    attention = finetune(nn.Sequential(nn.MultiheadAttention(8, 2)), block=4, classifier=False, only=["0.out_proj"])
    assert "ignore peft's adapter" in message(attention)
    quantized = finetune(nn.Sequential(Int8Linear.of(nn.Linear(8, 40))), block=4, classifier=False)
    assert "got a Int8Linear" in message(quantized)
    assert not list(tmp_path.iterdir())


def test_damaged_and_foreign_folders_are_refused(tmp_path):
    def message(folder=tmp_path):
        with pytest.raises(ValueError) as caught:
            load_peft_adapter(linear(), folder)
        return str(caught.value)

    assert "has no adapter_config.json" in message()
    save_peft_adapter(shake(finetune(linear(), block=8)), tmp_path)
    tensors, config = load_file(tmp_path / "adapter_model.safetensors"), (tmp_path / "adapter_config.json").read_text()
    with pytest.raises(ValueError, match="is tuned already"):
        load_peft_adapter(finetune(linear(), block=8), tmp_path)
    (tmp_path / "adapter_config.json").write_text("{")
    assert "is not valid JSON" in message()
    (tmp_path / "adapter_config.json").write_text("[]")
    assert "must contain a JSON object" in message()
    (tmp_path / "adapter_config.json").write_text(" " * 2**21)
    assert "at most 1048576 are accepted" in message()
    (tmp_path / "adapter_config.json").write_text(config)
    save_file({**tensors, "base_model.model.9.x": torch.zeros(2)}, tmp_path / "adapter_model.safetensors")
    assert "which matches no parameter of the model" in message()
    key = "base_model.model.0.oft_R.weight"
    save_file({key: tensors[key][:1, :3].contiguous()}, tmp_path / "adapter_model.safetensors")
    assert "has shape (8, 3), the layer needs (8, 1)" in message()  # 3 × 3 blocks do not divide 16
