import pytest
import torch
from torch import nn

from hypersphere.orthogonal import add_task, finetune, use_task
from tests.orthogonal.finetuning.contracts import shake


@pytest.mark.parametrize(
    ("neurons", "method", "expected"),
    [
        (40, "oft", True),
        (12, "oft", False),
        (60, "boft", True),
        (30, "boft", False),
        (60, "hra", True),
        (20, "hra", False),
    ],
)
def test_inputs_are_rotated_if_that_is_cheaper(neurons, method, expected):
    layer = finetune(nn.Linear(16, neurons), method, block=8)
    assert layer.parametrizations.weight[0].rotates_inputs(nn.Linear(16, neurons)) is expected
    assert (type(layer).forward is not nn.Linear.forward) is expected


def test_a_layer_with_a_forward_of_its_own_keeps_it():
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    layer, x = Doubled(16, 64), torch.randn(3, 16)
    y = layer(x)
    assert torch.equal(finetune(layer, block=4)(x), y)
    shake(layer)
    assert torch.allclose(layer(x), 2 * nn.functional.linear(x, layer.weight, layer.bias), atol=1e-6)


def test_code_that_reads_the_weight_gets_the_effective_weight():
    """In evaluation mode an encoder layer reads the weights directly and skips its submodules; both paths agree."""
    encoder = nn.TransformerEncoderLayer(16, 2, 64, batch_first=True, dropout=0.0)
    shake(finetune(encoder, block=4, classifier=False))
    x = torch.randn(2, 5, 16)
    slow = encoder.train()(x)
    with torch.no_grad():
        fast = encoder.eval()(x)
    assert torch.allclose(slow, fast, atol=1e-5)


def test_tasks_start_from_the_identity():
    layer, x = nn.Linear(16, 64), torch.randn(3, 16)
    y = layer(x)
    add_task(shake(finetune(layer, block=4)), "b")
    assert not torch.allclose(layer(x), y)
    assert torch.equal(use_task(layer, "b")(x), y)
    with pytest.raises(ValueError, match="has no meaning for fine-tuning"):
        add_task(layer, "c", start="normal")


def test_one_r_for_each_projection_of_an_attention():
    attention = shake(finetune(nn.MultiheadAttention(16, 2), block=4, classifier=False, skip=["out_proj"]))
    turn = attention.parametrizations.in_proj_weight[0].change.inputs
    assert turn.raw.shape == (3, 4, 6)
    base = attention.parametrizations.in_proj_weight.original
    for part, r, acting in zip(base.chunk(3), turn.matrix(), attention.in_proj_weight.chunk(3), strict=True):
        assert torch.allclose(acting, part @ r.T, atol=1e-5)


def test_a_merged_model_refuses_training():
    from hypersphere.orthogonal import merge, unmerge

    layer = merge(finetune(nn.Linear(16, 64), block=4), keep=True)
    with pytest.raises(RuntimeError, match="unmerge"):
        layer(torch.randn(2, 16))
    with pytest.raises(ValueError, match="merged with keep=True"):
        use_task(layer, "default")
    assert layer.eval()(torch.randn(2, 16)).shape == (2, 64)
    unmerge(layer).train()(torch.randn(2, 16)).sum().backward()
