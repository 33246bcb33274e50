import copy

import pytest
import scipy.linalg
import torch
from torch import nn

from hypersphere.orthogonal import (
    add_task,
    average_tasks,
    cayley,
    finetune,
    merge,
    merge_finetunings,
    overparameterize,
    split_finetuning,
    use_task,
)
from hypersphere.orthogonal.finetuning.finetuning_merge import average_generators
from tests.orthogonal.finetuning.contracts import Conv1D, shake


def network():
    torch.manual_seed(0)
    body = [nn.Conv2d(2, 24, (3, 1)), nn.BatchNorm2d(24), nn.MultiheadAttention(8, 2), Conv1D(9, 5), nn.Linear(4, 12)]
    return nn.ModuleList(body).double()


def random_change(model, size=0.1):
    result = copy.deepcopy(model)
    with torch.no_grad():
        for p in result.parameters():
            p += size * torch.randn_like(p)
    return result


def test_the_rotation_is_that_of_procrustes():
    base = network()
    tuned = random_change(base, 0.02)
    split = split_finetuning(base, tuned)
    assert set(split) == {"0.weight", "2.in_proj_weight", "2.out_proj.weight", "3.weight", "4.weight"}
    for name, (r, residual) in split.items():
        a, b = base.state_dict()[name], tuned.state_dict()[name]
        a, b = ((w.T if name == "3.weight" else w).flatten(1) for w in (a, b))
        parts = 3 if "in_proj" in name else 1
        for i, (x, y) in enumerate(zip(a.chunk(parts), b.chunk(parts), strict=True)):
            expected = torch.from_numpy(scipy.linalg.orthogonal_procrustes(x.numpy(), y.numpy())[0]).T
            assert torch.linalg.det(expected) > 0  # already rotations, so their sign needs no correction
            assert torch.allclose(r[i], expected, atol=1e-10), name
            assert torch.allclose(x @ r[i].T + residual[i], y, atol=1e-12)


@pytest.mark.parametrize("neurons", [3, 12])
def test_a_rotation_leaves_no_residual_and_free_directions_stay(neurons):
    base = nn.Linear(6, neurons, bias=False).double()
    tuned = shake(finetune(copy.deepcopy(base), block=6, classifier=False))
    r, residual = split_finetuning(base, merge(tuned))["weight"]
    assert residual.abs().max() < 1e-12
    eye = torch.eye(6, dtype=torch.float64)
    assert torch.allclose(r[0] @ r[0].T, eye, atol=1e-12)
    assert torch.allclose(torch.linalg.det(r), torch.ones(1, dtype=torch.float64))
    still = split_finetuning(base, base)["weight"].rotation[0]
    assert torch.allclose(still, eye, atol=1e-10)
    if neurons == 3:  # directions orthogonal to all old and new neurons stay
        seen = torch.linalg.qr(torch.cat([base.weight, tuned.weight]).T).Q
        outside = eye - seen @ seen.T
        assert torch.allclose(r[0] @ outside, outside, atol=1e-10)


def test_a_reflection_becomes_the_nearest_rotation():
    base = nn.Linear(3, 8, bias=False).double()
    mirrored = base.weight @ torch.diag(torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64))
    r = split_finetuning(base, {"weight": mirrored})["weight"].rotation[0]
    assert torch.linalg.det(r) > 0
    error = (base.weight @ r.T - mirrored).norm()
    for seed in range(200):
        x = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        other = torch.linalg.matrix_exp(0.3 * (x - x.T)) @ r
        assert error <= (base.weight @ other.T - mirrored).norm() + 1e-12


def test_rotations_are_merged_as_tasks_are_averaged():
    base = nn.Linear(6, 12).double()
    tasks = shake(add_task(finetune(copy.deepcopy(base), block=6, classifier=False), "b"))
    tuned = [merge(copy.deepcopy(use_task(tasks, task))) for task in ("default", "b")]
    expected = use_task(average_tasks(tasks, into="mean"), "mean").weight
    assert torch.allclose(merge_finetunings(base, tuned).weight, expected, atol=1e-10)


def test_equal_finetunings_are_their_own_merge():
    base = network()
    tuned = random_change(base)
    merged = merge_finetunings(base, [tuned, tuned.state_dict()])
    for (name, a), b in zip(merged.state_dict().items(), tuned.state_dict().values(), strict=True):
        assert torch.allclose(a.double(), b.double(), atol=1e-10), name


def test_the_merge_is_the_formula():
    base = nn.Linear(4, 9).double()
    tuned = [random_change(base), random_change(base, 0.2)]
    eye, generators, residuals = torch.eye(4, dtype=torch.float64), [], []
    for each in tuned:
        r = torch.from_numpy(scipy.linalg.orthogonal_procrustes(base.weight.detach(), each.weight.detach())[0]).T
        generators.append((r - eye) @ torch.linalg.inv(r + eye))
        residuals.append(each.weight - base.weight @ r.T)
    total = sum(generators)
    a = sum(g.norm() for g in generators) / total.norm() * total / 2
    r = (eye + a) @ torch.linalg.inv(eye - a)
    for share in (1.0, 0.0):
        merged = merge_finetunings(base, tuned, residual=share)
        assert torch.allclose(merged.weight, base.weight @ r.T + share * sum(residuals) / 2, atol=1e-10)
        assert torch.allclose(merged.bias, (tuned[0].bias + tuned[1].bias) / 2)


def test_refuses():
    base = nn.Linear(4, 9)
    with pytest.raises(ValueError, match="two or more fine-tunings, got 1"):
        merge_finetunings(base, [base])
    with pytest.raises(ValueError, match="the fine-tuning has no tensor of that name"):
        split_finetuning(base, {})
    with pytest.raises(ValueError, match=r"the fine-tuning has \(9, 5\)"):
        split_finetuning(base, nn.Linear(5, 9))
    with pytest.raises(ValueError, match="is computed: merge"):
        split_finetuning(overparameterize(nn.Linear(4, 9)), base)
    turned = {"weight": -base.weight, "bias": base.bias}
    with pytest.raises(ValueError, match="rotated by 180°"):
        merge_finetunings(base, [turned, turned])


def skew(raw, n):
    x = torch.zeros(n, n, dtype=raw.dtype)
    i, j = torch.triu_indices(n, n, 1)
    x[i, j] = raw
    return x - x.T


def test_the_average_of_tasks_has_the_mean_direction_and_the_mean_length():
    layer = shake(add_task(finetune(nn.Linear(6, 30, dtype=torch.float64), block=6), "b"))
    w = layer.parametrizations.weight.original
    own = layer.parametrizations.weight[0]
    a, b = (skew(own.tasks[task].inputs.raw[0, 0].detach(), 6) for task in ("default", "b"))
    mean = (a.norm() + b.norm()) / (a + b).norm() * (a + b) / 2
    use_task(average_tasks(layer, into="mean"), "mean")
    assert torch.allclose(layer.weight, w @ cayley(mean).T, atol=1e-12)
    assert torch.allclose(mean.norm(), (a.norm() + b.norm()) / 2)


def test_equal_tasks_are_their_own_average_and_opposite_ones_cancel():
    raw = torch.randn(1, 3, 6)
    assert torch.allclose(average_generators(torch.stack([raw, raw])), raw)
    assert torch.equal(average_generators(torch.stack([raw, -raw])), torch.zeros_like(raw))


def test_refused_averages_of_tasks():
    layer = add_task(finetune(nn.Linear(16, 60), block=4), "b")
    with pytest.raises(ValueError, match="two or more tasks"):
        average_tasks(layer, ["b"])
    with pytest.raises(ValueError, match="has no task 'c'; its tasks are default, b"):
        average_tasks(layer, ["b", "c"])
    with pytest.raises(ValueError, match="into must be a new name"):
        average_tasks(layer, into="b")
    with pytest.raises(ValueError, match="is tuned by 'hra', whose R is not a single Cayley transform"):
        average_tasks(add_task(finetune(nn.Linear(16, 60), "hra"), "b"))
