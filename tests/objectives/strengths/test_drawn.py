import copy
import math

import pytest
import torch

from hypersphere.objectives import Drawn, MarginSoftmax, Ramp
from hypersphere.objectives.engine import chunked
from hypersphere.objectives.margins import (
    AdditiveAngle,
    AdditiveCosine,
    Combined,
    Context,
    Curricular,
    Misclassified,
    Shrunk,
    TwoSided,
)
from hypersphere.objectives.margins.margin import draw_noise
from tests.objectives.contracts import gradients
from tests.objectives.parallel_cases import agree, divided_batch, on_shards, results


def test_draws_have_the_mean_and_the_deviation():
    draws = Drawn(0.5, 0.05)(Context(norms=torch.zeros(20_000)))
    assert draws.mean().item() == pytest.approx(0.5, abs=2e-3)
    assert draws.std().item() == pytest.approx(0.05, rel=0.03)
    assert draws.min() >= 0.3
    assert draws.max() <= 0.7


def test_never_below_zero_and_the_mean_in_evaluation():
    assert Drawn(0.1, 1.0)(Context(norms=torch.zeros(1000))).min() >= 0
    assert Drawn(0.3, 0.1).eval()(Context(norms=torch.zeros(5))).item() == pytest.approx(0.3)


@pytest.mark.parametrize("numbers", [(-0.1, 0.1), (0.1, -1), (math.nan, 0), (0.5, math.inf)])
def test_refuses(numbers):
    with pytest.raises(ValueError, match="mean and std must be numbers ≥ 0"):
        Drawn(*numbers)


MARGINS = {
    "both sides": lambda: TwoSided(Drawn(0.3, 0.1)),
    "the others": lambda: Shrunk(Drawn(1.6, 0.1)),
    "hard classes": lambda: Misclassified(AdditiveAngle(Drawn(0.3, 0.1)), t=1.3),
    "a curriculum": lambda: Curricular(AdditiveCosine(Drawn(0.3, 0.1))),
    "two of them": lambda: Combined(Drawn(1.4, 0.05), Drawn(0.2, 0.1), Drawn(0.1, 0.05)),
    "a ramp to one": lambda: TwoSided(Ramp(Drawn(0.3, 0.1), end=2)),
}


def head_of(name, dtype=torch.float64):
    torch.manual_seed(1)
    head = MarginSoftmax(5, 11, margin=MARGINS[name](), scale=8.0, dtype=dtype).train()
    head.step()
    return head


@pytest.mark.parametrize("keep", [0, 2**21])
@pytest.mark.parametrize("name", MARGINS)
def test_a_sample_has_one_draw_in_all_blocks_and_in_the_backward_pass(name, keep, monkeypatch):
    monkeypatch.setattr(chunked, "MAX_KEPT_LOGITS", keep)
    head, x, y = head_of(name), torch.randn(7, 5, dtype=torch.float64), torch.arange(7)
    found = []
    for chunk in (None, 1, 4, 11):
        fresh = copy.deepcopy(head)
        torch.manual_seed(3)
        found.append([*gradients(fresh, x, y, chunk=chunk), torch.get_rng_state().double()])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)
    assert not torch.equal(head(x, y), head(x, y))  # the next pass draws again


@pytest.mark.parametrize("name", ["both sides", "hard classes", "two of them"])
def test_the_gradient_is_that_of_the_draws_that_were_made(name):
    head, x, y = head_of(name), torch.randn(3, 5, dtype=torch.float64, requires_grad=True), torch.tensor([0, 4, 10])
    head.chunk = 4

    def loss(features, weight):
        torch.manual_seed(3)
        return torch.func.functional_call(head, {"weight": weight}, (features, y))

    assert torch.autograd.gradcheck(loss, (x, head.weight.detach().clone().requires_grad_()))


@pytest.mark.untyped
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_processes_share_the_draws_of_a_batch(processes, pool):
    x, y = torch.randn(7, 5, dtype=torch.float64), torch.arange(7)
    for name in MARGINS:
        head = head_of(name)
        parts = pool.run(on_shards, head, divided_batch(x, y, processes), processes=processes)
        agree(results(head, x, y), parts, 1e-12)


def test_each_strength_draws_for_itself():
    margin = Combined(Drawn(1.4, 0.05), Drawn(0.2, 0.1), 0.1)
    noise = draw_noise(margin, torch.zeros(5))
    assert list(noise) == [margin.m1, margin.m2]
    assert not torch.equal(noise[margin.m1], noise[margin.m2])
    context = Context(norms=torch.ones(5), noise=noise)
    assert torch.allclose(margin.m2(context), 0.2 + 0.1 * noise[margin.m2])
    assert draw_noise(margin.eval(), torch.zeros(5)) is None
    assert draw_noise(TwoSided(0.3), torch.zeros(5)) is None


@pytest.mark.untyped
def test_a_drawing_head_compiles_as_one_graph():
    torch._dynamo.reset()
    head = head_of("both sides", torch.float32)
    compiled = torch.compile(head, fullgraph=True, backend="aot_eager")
    x, y = torch.randn(5, 5), torch.arange(5)
    first = compiled(x, y)
    assert first.isfinite()
    assert not torch.equal(first, compiled(x, y))
