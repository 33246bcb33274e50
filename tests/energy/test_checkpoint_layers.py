import torch
from torch import nn

from hypersphere.energy.checkpoint_layers import Layer, checkpoint_layers


def kinds(state):
    return {layer.name: layer.kind for layer in checkpoint_layers(state) if isinstance(layer, Layer)}


def test_fused_and_single_projections_of_attention():
    state = nn.MultiheadAttention(8, 2).state_dict() | {"layer.q_proj.weight": torch.randn(8, 8)}
    found = kinds(state)
    assert found["in_proj_weight[value]"] == "attention value"
    assert found["layer.q_proj.weight"] == "attention query"
    assert found["out_proj.weight"] == ""
    rows = {layer.name: layer.rows for layer in checkpoint_layers(state)}
    assert torch.equal(rows["in_proj_weight[key]"], state["in_proj_weight"][8:16])


def test_weights_of_gpt2_are_transposed():
    state = {"h.0.attn.c_attn.weight": torch.randn(8, 24), "h.0.mlp.c_fc.weight": torch.randn(8, 32)}
    shapes = {layer.name: tuple(layer.rows.shape) for layer in checkpoint_layers(state)}
    assert shapes == {f"h.0.attn.c_attn.weight[{p}]": (8, 8) for p in ("query", "key", "value")} | {
        "h.0.mlp.c_fc.weight": (32, 8)
    }


def test_tables_that_the_output_shares():
    table = torch.randn(20, 8)
    assert kinds({"embed_tokens.weight": table, "lm_head.weight": table}) == {
        "embed_tokens.weight": "table, tied to the output",
        "lm_head.weight": "output",
    }
    assert kinds({"embed_tokens.weight": table})["embed_tokens.weight"] == "table"


def test_optimizers_are_no_layers():
    found = list(checkpoint_layers({"optimizer.state.0.exp_avg": torch.randn(4, 4), "w": torch.randn(4, 4)}))
    assert found[0] == ("optimizer.state.0.exp_avg", "state of an optimizer")
    assert isinstance(found[1], Layer)
