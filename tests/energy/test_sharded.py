"""A sharded head has the energy and the gradient of the whole head, on any number of processes."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn

from hypersphere.collectives import get_first_row, sum_shares
from hypersphere.energy import MHE, CoMHE, Orthonormality, layer_energies
from hypersphere.energy.kernels import AngularRiesz, Riesz
from hypersphere.energy.pair_sums import dense_sums
from hypersphere.energy.projections import RandomProjection
from hypersphere.energy.sharded import sharded_energy
from hypersphere.objectives import ArcFace, SphereFace

pytestmark = pytest.mark.untyped


def regularizer(kind, head, options):
    torch.manual_seed(5)
    body = nn.Linear(7, 5).double()
    return kind(body, classifier=head, **copy.deepcopy(options))


def values(group, kind, head, options, labels, sharded):
    """Return the terms and the gathered gradient of the head's rows, where each process has different labels."""
    head = copy.deepcopy(head)
    found = regularizer(kind, head, options)
    if sharded:
        head.shard(group)
        labels = None if labels is None else labels[dist.get_rank(group)]
    else:
        labels = None if labels is None else torch.cat(labels)
    terms = found.terms(labels)
    sum(terms.values()).backward()
    gradient = head.weight.grad.full_tensor() if sharded else head.weight.grad
    found.step()
    return {name: term.detach() for name, term in terms.items()} | {"gradient": gradient.flatten(0, -2)}


CASES = {
    "SphereFace+": (MHE, {}, {}),
    "sub-centres": (MHE, {}, {"sub_centers": 2}),
    "angular": (MHE, {"distance": "angular"}, {}),
    "logarithmic": (MHE, {"s": 0}, {}),
    "all pairs": (MHE, {"data_dependent": False}, {}),
    "importance": (MHE, {"importance": {"classifier": torch.linspace(0.5, 2, 11).tolist()}}, {}),
    "compressive": (CoMHE, {"projection": RandomProjection(dim=3, count=2)}, {"sub_centers": 3}),
    "orthonormal": (Orthonormality, {"output": 0.3}, {"sub_centers": 2}),
}


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_shards_have_the_energy_of_the_whole(case, processes, pool):
    kind, options, of_head = CASES[case]
    torch.manual_seed(1)
    head = SphereFace(5, 11, dtype=torch.float64, **of_head)
    with torch.no_grad():  # two classes that the Gram matrix cannot tell apart, on different processes
        head.weight[9] = head.weight[0] + 1e-5 * head.weight[9]
    labels = [torch.tensor([0, 3, 3, -100, 9]), torch.tensor([10, 0]), torch.tensor([], dtype=torch.int64)][:processes]
    for given in (labels, None):
        whole = values(None, kind, head, options, given, False)
        for part in pool.run(values, kind, head, options, given, True, processes=processes):
            assert part.keys() == whole.keys()
            for name, expected in whole.items():
                reach = 1 + expected.abs().max()
                assert ((part[name] - expected).abs().max() / reach).item() <= 1e-12, name


@pytest.mark.parametrize("labels", [[0, 1], None])
def test_a_process_without_classes_participates(labels, pool):
    """With 4 classes on three processes the last process has none."""
    head = SphereFace(5, 4, dtype=torch.float64)
    given = None if labels is None else [torch.tensor(labels)] * 3
    whole = values(None, MHE, head, {}, given, False)
    for part in pool.run(values, MHE, head, {}, given, True, processes=3):
        assert all(torch.allclose(part[name], whole[name], rtol=1e-12, atol=1e-13) for name in whole)


def twice(group, head, kernel, rows, counts, vector):
    """The second derivative along a vector, gathered."""
    head = copy.deepcopy(head).shard(group)
    energy = sharded_energy(head.weight, rows, counts, kernel)
    (first,) = torch.autograd.grad(energy, head.weight, create_graph=True)
    # Each process has a part of the product: Σ over processes of ⟨g_r, v_r⟩.
    mine = vector[get_first_row(head.weight) :][: len(first.to_local())]
    (second,) = torch.autograd.grad(sum_shares((first.to_local() * mine).sum(), group), head.weight)
    return second.full_tensor()


@pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="DTensors of PyTorch 2.6 have no second derivative")
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_the_second_derivative_is_that_of_the_whole(processes, pool):
    head, vector = ArcFace(4, 7, dtype=torch.float64), torch.randn(7, 4, dtype=torch.float64)
    rows, counts = torch.tensor([0, 2, 6]), torch.tensor([1.0, 3.0, 1.0])
    for kernel in (Riesz(2), AngularRiesz(1)):
        weight = head.weight.detach().clone().requires_grad_()
        energy = dense_sums(weight[None], kernel, rows=rows, counts=counts).squeeze()
        (first,) = torch.autograd.grad(energy, weight, create_graph=True)
        (expected,) = torch.autograd.grad((first * vector).sum(), weight)
        for found in pool.run(twice, head, kernel, rows, counts, vector, processes=processes):
            assert torch.allclose(found, expected, rtol=1e-10, atol=1e-10)


def refused(group, head):
    head = copy.deepcopy(head).shard(group)
    with pytest.raises(ValueError, match="labels must be classes of the head"):
        MHE(nn.Linear(7, 5), classifier=head).terms(torch.tensor([11 if dist.get_rank(group) else 0]))
    assert MHE(nn.Linear(7, 5), classifier=head).terms(torch.tensor([-100]))["output"].item() == 0
    return layer_energies(nn.Linear(7, 5), classifier=head)["classifier"]


def test_a_bad_label_is_raised_on_every_process_and_logs_see_all_classes(pool):
    head = SphereFace(5, 11)
    for energy in pool.run(refused, head, processes=2):
        assert energy == pytest.approx(layer_energies(nn.Linear(7, 5), classifier=head)["classifier"], rel=1e-6)


def traffic(group, head, labels):
    """Return the sizes of all messages for the energy, forward and backward."""
    head = copy.deepcopy(head).shard(group)
    energy, sizes, real = MHE(nn.Linear(7, 64), classifier=head), [], dist.all_reduce

    def counted(tensor, *args, **options):
        sizes.append(tensor.numel())
        return real(tensor, *args, **options)

    dist.all_reduce = counted
    try:
        energy.terms(labels)["output"].backward()
    finally:
        dist.all_reduce = real
    return sorted(sizes)


def test_only_the_rows_of_the_batchs_classes_are_communicated(pool):
    labels = torch.tensor([3, 999, 3, 500])
    for sizes in pool.run(traffic, ArcFace(64, 1000), labels, processes=2):
        assert sizes == [1, 2, 3 * 64, 3 * 64]  # the sum, the batch sizes, three rows forward and three rows backward
