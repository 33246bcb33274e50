import torch
from torch import nn

from hypersphere.training.gradient_checkpointing import checkpoint_blocks


def network() -> nn.Module:
    torch.manual_seed(0)
    block = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.3)) for _ in range(3)]
    return nn.Sequential(*block)


def test_gradients_and_statistics_are_those_without():
    plain, saving = network(), network()
    assert checkpoint_blocks(saving) == 3
    x = torch.randn(8, 4)
    for model in (plain, saving):
        for _ in range(2):
            torch.manual_seed(1)
            model(x).square().sum().backward()
    for one, other in zip(plain.parameters(), saving.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    for (name, one), (_, other) in zip(plain.named_buffers(), saving.named_buffers(), strict=True):
        torch.testing.assert_close(one, other, msg=name)


def test_activations_are_computed_again():
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls = nn.Linear(4, 4), 0

        def forward(self, x):
            self.calls += 1
            return self.layer(x)

    model = nn.Sequential(Counting(), Counting())
    checkpoint_blocks(model)
    model(torch.randn(2, 4)).sum().backward()
    assert [block.calls for block in model] == [2, 2]
    with torch.no_grad():
        model.eval()(torch.randn(2, 4))
    assert [block.calls for block in model] == [3, 3]


def test_models_of_transformers_do_it_themselves():
    class Like(nn.Module):
        def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs):
            self.asked = gradient_checkpointing_kwargs

    model = Like()
    assert checkpoint_blocks(model) == 1
    assert model.asked == {"use_reentrant": False}
