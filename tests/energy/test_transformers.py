"""Energies of torch's encoder and of GPT-2 and BERT, built from a config without downloads."""

import copy

import pytest
import torch
from torch import nn

from hypersphere.energy import MHE, CoMHE, RandomProjection, hyperspherical_energy, layer_energies
from hypersphere.neurons import get_change_report
from hypersphere.operators import convert

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def gpt2():
    config = transformers.GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=2, n_head=2)
    return transformers.GPT2LMHeadModel(config)


@pytest.fixture(scope="module")
def bert():
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
    )
    return transformers.BertForMaskedLM(config)


def test_every_projection_of_torch_s_encoder_is_found():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    parts = ("self_attn.in_proj_weight", "self_attn.out_proj", "linear1", "linear2")
    names = [f"layers.{i}.{part}" for i in range(2) for part in parts]
    mhe = MHE(encoder, classifier=False)
    assert list(mhe.per_layer()) == names
    assert mhe.skipped == {}
    before = mhe().item()
    convert(encoder)  # the converted layers have the same neurons
    assert list(MHE(encoder, classifier=False).per_layer()) == names
    assert MHE(encoder, classifier=False)().item() == pytest.approx(before, rel=1e-6)


class TestGPT2:
    def test_projections_are_found_as_columns(self, gpt2):
        values = MHE(gpt2).per_layer()
        parts = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
        assert list(values) == [*(f"transformer.h.{i}.{part}" for i in range(2) for part in parts), "lm_head"]
        block = gpt2.transformer.h[0]
        thirds = [hyperspherical_energy(w.T, half_space=True) for w in block.attn.c_attn.weight.chunk(3, dim=1)]
        assert values["transformer.h.0.attn.c_attn"].item() == pytest.approx(sum(thirds).item() / 3, rel=1e-5)
        up = hyperspherical_energy(block.mlp.c_fc.weight.T, half_space=True)
        assert values["transformer.h.0.mlp.c_fc"].item() == pytest.approx(up.item(), rel=1e-5)

    def test_the_tied_table_is_regularised_once_and_named(self, gpt2):
        assert gpt2.lm_head.weight is gpt2.transformer.wte.weight
        mhe = MHE(gpt2, 0.0)
        assert mhe.classifier == "lm_head"
        assert mhe.skipped["transformer.wte"].endswith("its weight is tied to that of lm_head")
        assert "tied" not in mhe.skipped["transformer.wpe"]
        assert mhe().item() == pytest.approx(hyperspherical_energy(gpt2.lm_head.weight).item(), rel=1e-5)

    def test_the_loss_reaches_every_layer(self, gpt2):
        gpt2.zero_grad()
        loss = gpt2(input_ids=torch.zeros(1, 4, dtype=torch.long), labels=torch.ones(1, 4, dtype=torch.long)).loss
        (loss + MHE(gpt2)()).backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in gpt2.parameters())

    def test_conversion_names_what_it_cannot_convert(self, gpt2):
        report = get_change_report(convert(copy.deepcopy(gpt2)))
        assert list(report.changed) == ["lm_head"]
        assert "neurons as columns" in report.skipped["transformer.h.0.attn.c_attn"]

    def test_comhe(self, gpt2):
        assert torch.isfinite(CoMHE(gpt2, RandomProjection(4))())

    def test_energies_by_name(self, gpt2):
        energies = layer_energies(gpt2)
        assert len(energies) == 9
        assert "lm_head" in energies


class TestBERT:
    def test_projections_are_found(self, bert):
        names = list(MHE(bert).per_layer())
        layer = "bert.encoder.layer.0."
        assert [name.removeprefix(layer) for name in names if name.startswith(layer)] == [
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
            "attention.output.dense",
            "intermediate.dense",
            "output.dense",
        ]

    def test_the_tied_table_is_regularised_once_and_named(self, bert):
        mhe = MHE(bert)
        assert mhe.classifier == "cls.predictions.decoder"
        table = mhe.skipped["bert.embeddings.word_embeddings"]
        assert table.endswith("its weight is tied to that of cls.predictions.decoder")
        assert {name for name in mhe.skipped if "tied" in mhe.skipped[name]} == {"bert.embeddings.word_embeddings"}

    def test_operators_have_the_same_neurons(self, bert):
        converted = copy.deepcopy(bert)
        report = get_change_report(convert(converted))
        assert "bert.encoder.layer.0.attention.self.query" in report.changed
        assert list(MHE(converted).per_layer()) == list(MHE(bert).per_layer())
        tokens = torch.arange(4)[None]
        assert not torch.allclose(converted(tokens).logits, bert(tokens).logits, atol=1e-3)

    def test_comhe(self, bert):
        assert torch.isfinite(CoMHE(bert, RandomProjection(4))())


def test_a_hidden_layer_tied_to_the_output_is_the_output():
    net = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 4), nn.Linear(4, 5))
    net[2].weight = net[0].weight
    mhe = MHE(net)
    assert list(mhe.per_layer()) == ["1", "2"]
    assert mhe.skipped == {"0": "its weight is tied to that of 2"}
