"""Two processes with unequal batches compute what one process computes on both."""

import torch
from torch import nn

from hypersphere.collectives import gather_rows_with_gradient, is_distributed, select_own_rows, sum_over_processes
from hypersphere.objectives import (
    HUG,
    Alignment,
    Circle,
    Contrastive,
    KoLeo,
    NTXent,
    Proxies,
    ProxyAnchor,
    SigLIP,
    SoftTriple,
    SupCon,
    Triplet,
    Uniformity,
)
from tests.distributed import run

SIZES = (5, 9)
CLASSES = 5
LOSSES = {
    "contrastive": lambda: Contrastive(),
    "triplet": lambda: Triplet(),
    "hard": lambda: Triplet(mining="hard"),
    "semihard": lambda: Triplet(mining="semihard", margin=1.0, chunk=2),
    "supcon": lambda: SupCon(),
    "ntxent": lambda: NTXent(chunk=3),
    "siglip": lambda: SigLIP(),
    "circle": lambda: Circle(),
    "koleo": lambda: KoLeo(),
    "alignment": lambda: Alignment(),
    "uniformity": lambda: Uniformity(),
    "proxy anchor": lambda: ProxyAnchor(4, CLASSES),
    "soft triple": lambda: SoftTriple(4, CLASSES, sub_centers=2),
    "hug": lambda: HUG(4, CLASSES, chunk=2),
    "proxies": lambda: Proxies(4, CLASSES, loss=Circle()),
}


def setting(name):
    """Return a network, a loss and the whole batch, the same in every process."""
    torch.manual_seed(0)
    net, loss = nn.Linear(6, 4).double(), LOSSES[name]().double()
    x, y = torch.randn(sum(SIZES), 6, dtype=torch.float64), torch.randint(0, CLASSES, (sum(SIZES),))
    return net, loss, x, y


def results(name, rows, with_references=False):
    """Return the loss and its gradients with respect to this part of the batch and all parameters."""
    net, loss, x, y = setting(name)
    x, y = x[rows].requires_grad_(), y[rows]
    features = net(x)
    value = loss(features, y, features.flip(1), y) if with_references else loss(features, y)
    value.backward()
    return [value.detach(), x.grad, *[p.grad for p in [*net.parameters(), *loss.parameters()]]]


def cases():
    return [*[(name, False) for name in LOSSES], *[(name, True) for name in ("siglip", "ntxent", "koleo")]]


def worker(rank):
    start = sum(SIZES[:rank])
    rows = slice(start, start + SIZES[rank])
    losses = {str(case): results(case[0], rows, case[1]) for case in cases()}
    gathered = gather_rows_with_gradient(torch.full((SIZES[rank],), rank))
    summed = sum_over_processes(torch.tensor([1.0, rank]))
    local = SupCon(gather=False)(torch.eye(4)[:3] + rank, torch.tensor([0, 0, 1]))
    empty = SupCon()(torch.eye(4)[: 3 * rank], torch.tensor([0, 0, 1])[: 3 * rank])  # one process has no samples
    extra = [gathered.rows, torch.tensor(gathered.start), summed, select_own_rows(torch.arange(5)), local, empty]
    return {"losses": losses, "extra": extra, "spread": is_distributed()}


def test_two_processes_are_one():
    first, second = run(worker)
    for case in cases():
        whole = results(case[0], slice(None), case[1])
        a, b = first["losses"][str(case)], second["losses"][str(case)]
        assert torch.allclose(a[0], whole[0], rtol=1e-11), case
        assert torch.equal(a[0], b[0]), case
        # Gradients are averaged over processes, as in DDP. Each row is on one process, parameters are on both.
        assert torch.allclose(torch.cat([a[1], b[1]]) / 2, whole[1], rtol=1e-8, atol=1e-11), case
        for mine, other, one in zip(a[2:], b[2:], whole[2:], strict=True):
            assert torch.allclose((mine + other) / 2, one, rtol=1e-8, atol=1e-11), case
    assert first["spread"]
    assert not is_distributed()
    rows, start, summed, share, local, empty = second["extra"]
    assert rows.tolist() == [0] * SIZES[0] + [1] * SIZES[1]
    assert start == SIZES[0]
    assert summed.tolist() == [2.0, 1.0]
    assert share.tolist() == [1, 3]
    alone = SupCon()
    assert torch.allclose(local, alone(torch.eye(4)[:3] + 1, torch.tensor([0, 0, 1])))
    assert torch.allclose(empty, alone(torch.eye(4)[:3], torch.tensor([0, 0, 1])))
    assert torch.equal(empty, first["extra"][-1])
