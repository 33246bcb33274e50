"""The function ``finetune``, pretrained architectures built from configurations, and comparisons with peft."""

import copy
import warnings

import pytest
import torch
from torch import nn

from hypersphere.orthogonal import TuningMethod, finetune, merge, orthogonality_error, plan_finetune
from tests.orthogonal.finetuning.contracts import shake


def test_a_method_object_is_the_same_as_its_arguments():
    by_name = finetune(nn.Linear(16, 40), "boft", block=4, factors=3)
    by_object = finetune(nn.Linear(16, 40), TuningMethod("boft", 4, factors=3))
    assert by_name.parametrizations.weight[0].method == by_object.parametrizations.weight[0].method
    with pytest.raises(ValueError, match="to the TuningMethod instead of finetune"):
        finetune(nn.Linear(16, 40), TuningMethod("oft"), terms=4)


def test_an_error_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))
    with pytest.raises(ValueError, match="is called 'x'"):
        finetune(model, train=["x"])
    with pytest.raises(ValueError, match="is called 'x'"):
        finetune(model, skip=["x"])
    assert all(p.requires_grad for p in model.parameters())
    assert list(model.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_the_generator_decides_what_is_random():
    for method in ("hra", "poet"):
        a, b = (finetune(nn.Linear(16, 40), method, block=4, generator=torch.Generator().manual_seed(7)) for _ in "ab")
        first, second = (layer.parametrizations.weight[0].state_dict() for layer in (a, b))
        assert all(torch.equal(value, second[key]) for key, value in first.items())


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


def models(transformers):
    small = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 32, "intermediate_size": 64}
    bert = transformers.BertConfig(vocab_size=50, max_position_embeddings=16, **small)
    vit = transformers.ViTConfig(image_size=8, patch_size=4, num_labels=5, **small)
    gpt = transformers.GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=1, n_head=2)
    tokens = torch.arange(6).view(2, 3)
    return {
        "bert": (transformers.BertForMaskedLM(bert), tokens, 7),
        "vit": (transformers.ViTForImageClassification(vit), torch.randn(2, 3, 8, 8), 7),
        "gpt2": (transformers.GPT2LMHeadModel(gpt), tokens, 4),
    }


@pytest.mark.parametrize("method", ["oft", "hra"])
@pytest.mark.parametrize("name", ["bert", "vit", "gpt2"])
def test_pretrained_architectures(transformers, name, method):
    torch.manual_seed(0)
    model, x, layers = models(transformers)[name]
    model.eval()
    plain = copy.deepcopy(model)
    y = model(x).logits
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # warnings about position tables and tied decoders
        finetune(model, method, block=8)
        plan = plan_finetune(plain, TuningMethod(method, 8))
    assert len(plan.changed) == layers, str(plan)
    assert torch.equal(model(x).logits, y)
    if name != "vit":
        assert any("tied" in reason for reason in plan.skipped.values())
        assert all("raw" in key for key, p in model.named_parameters() if p.requires_grad)
    shake(model)
    model(x).logits.square().sum().backward()
    tuned = model(x).logits
    assert not torch.allclose(tuned, y, atol=1e-3)
    merge(model)
    assert torch.allclose(model(x).logits, tuned, atol=1e-5)
    assert list(model.state_dict()) == list(plain.state_dict())


@pytest.fixture(scope="module")
def peft():
    return pytest.importorskip("peft")


class TestPeer:
    """Comparisons with peft 0.21, and with formulas in float64 where peft is wrong."""

    @staticmethod
    def wrap(peft, layer, config):
        model = nn.Sequential(layer)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return peft.get_peft_model(model, config(target_modules=["0"], init_weights=False))

    def test_oft_of_a_linear_layer(self, peft):
        layer = nn.Linear(32, 100)
        ours = finetune(copy.deepcopy(layer), block=8)
        theirs = self.wrap(
            peft, layer, lambda **k: peft.OFTConfig(r=0, oft_block_size=8, num_cayley_neumann_terms=60, **k)
        )
        raw = theirs.base_model.model[0].oft_R["default"].weight
        raw.data.mul_(0.5)
        ours.parametrizations.weight[0].change.inputs.raw.data.copy_(raw[None])
        x = torch.randn(7, 32, requires_grad=True)
        assert torch.allclose(ours(x), theirs(x), atol=1e-5)
        g = torch.randn(7, 100)
        (a,) = torch.autograd.grad(ours(x), ours.parametrizations.weight[0].change.inputs.raw, g)
        (b,) = torch.autograd.grad(theirs(x), raw, g)
        assert torch.allclose(a[0], b, atol=1e-4)
        assert raw.numel() == ours.parametrizations.weight[0].change.inputs.raw.numel()

    def test_hra_of_a_linear_layer(self, peft):
        layer = nn.Linear(32, 100)
        ours = finetune(copy.deepcopy(layer), "hra", rank=4)
        theirs = self.wrap(peft, layer, lambda **k: peft.HRAConfig(r=4, **k))
        u = theirs.base_model.model[0].hra_u["default"]
        # peft computes W H₁⋯H_r, we compute W (H₁⋯H_r)ᵀ: the reverse order
        ours.parametrizations.weight[0].change.inputs.raw.data.copy_(u.detach().flip(1)[None])
        x = torch.randn(7, 32)
        assert torch.allclose(ours(x), theirs(x), atol=1e-5)

    def test_boft_with_one_factor(self, peft):
        layer = nn.Linear(32, 100)
        ours = finetune(copy.deepcopy(layer), "boft", block=8, factors=1)
        theirs = self.wrap(peft, layer, lambda **k: peft.BOFTConfig(boft_block_size=8, **k))
        tuner = theirs.base_model.model[0]
        tuner.boft_s["default"].data.fill_(1)
        full = tuner.boft_R["default"].detach()[0]
        i, j = torch.triu_indices(8, 8, 1)
        raw = ((full.mT - full) / 2)[:, i, j]  # peft's Cayley transform has the opposite sign
        ours.parametrizations.weight[0].change.inputs.raw.data.copy_(raw[None, None])
        x = torch.randn(7, 32)
        assert torch.allclose(ours(x), theirs(x), atol=1e-5)

    def test_its_butterflies_do_not_mix_further(self, peft):
        """peft's second and third permutations join the same half blocks, so its third factor adds no mixing."""
        from peft.tuners.boft.layer import BOFTLayer

        def pairs(i):
            order = BOFTLayer.block_butterfly_perm(None, 32, 8 // 2**i, 2, 3)
            return {frozenset(int(k) // 2 for k in block) for block in order.view(-1, 4)}

        assert pairs(1) == pairs(2)

    @pytest.mark.parametrize("kernel", [(3, 3), (1, 3)])
    def test_convolutions(self, peft, kernel):
        """In float64 our layer is the convolution with rotated filters; peft's unmerged and merged layers disagree."""
        torch.manual_seed(0)
        layer = nn.Conv2d(4, 6, kernel, padding=1).double()
        x = torch.randn(2, 4, 8, 8, dtype=torch.float64)
        ours = shake(finetune(copy.deepcopy(layer), block=6))
        r = torch.block_diag(*ours.parametrizations.weight[0].change.inputs.blocks()[0])
        filters = torch.stack([(r @ v.flatten()).view(v.shape) for v in layer.weight])
        expected = nn.functional.conv2d(x, filters, layer.bias, padding=1)
        assert torch.allclose(ours(x), expected, atol=1e-12)
        assert orthogonality_error(ours) < 1e-12
        assert torch.allclose(merge(ours)(x), expected, atol=1e-12)
        theirs = self.wrap(peft, layer, lambda **k: peft.OFTConfig(r=0, oft_block_size=6, **k))
        theirs.base_model.model[0].oft_R.double()
        try:
            y = theirs(x)
            theirs.merge_adapter()
            off = ((theirs(x) - y).norm() / y.norm()).item()
        except RuntimeError:
            assert kernel[0] != kernel[1]  # peft computes the filter size from one side of the kernel
        else:
            assert off > 0.1
