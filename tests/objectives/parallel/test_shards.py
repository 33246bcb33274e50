import copy

import pytest
import torch
import torch.distributed as dist

from hypersphere.collectives import GLOO_HAS_REDUCE_SCATTER
from hypersphere.objectives import ArcFace, MarginSoftmax, SphereFace
from hypersphere.objectives.margins import InterTopK
from hypersphere.objectives.parallel import Shards
from tests.objectives.parallel_cases import agree, divided_batch, on_shards, results

pytestmark = pytest.mark.untyped


def list_bounds(group, num_classes):
    mesh = dist.device_mesh.DeviceMesh.from_group(group, "cpu")
    shards = Shards(mesh, num_classes)
    return [list(shards.get_bounds(rank)) for rank in range(shards.processes)]


@pytest.mark.parametrize(
    ("num_classes", "expected"),
    [(6, [[0, 2], [2, 2], [4, 2]]), (4, [[0, 2], [2, 2], [4, 0]]), (2, [[0, 1], [1, 1], [2, 0]])],
)
def test_classes_are_divided_as_torch_divides_rows(num_classes, expected, pool):
    assert pool.run(list_bounds, num_classes, processes=3)[0] == expected
    chunks = [len(part) for part in torch.arange(num_classes).chunk(3)]
    assert [size for _, size in expected if size] == chunks


@pytest.mark.parametrize("num_classes", [2, 3, 4])
@pytest.mark.parametrize("sub_centers", [1, 3])
def test_more_processes_than_classes_in_a_shard(num_classes, sub_centers, pool):
    head = MarginSoftmax(5, num_classes, margin=InterTopK(k=2), bias=True, sub_centers=sub_centers).double()
    x, y = torch.randn(6, 5, dtype=torch.float64), torch.arange(6) % num_classes
    parts = pool.run(on_shards, head, divided_batch(x, y, 3), processes=3)
    agree(results(head, x, y), parts, 1e-12)


@pytest.mark.parametrize("reduction", ["none", "sum"])
def test_other_reductions_with_gradients_that_nobody_averages(reduction, pool):
    head = ArcFace(5, 11, reduction=reduction, dtype=torch.float64)
    x, y = torch.randn(7, 5, dtype=torch.float64), torch.randint(0, 11, (7,))
    parts = pool.run(on_shards, head, divided_batch(x, y, 3), {"average": False}, processes=3)
    agree(results(head, x, y), parts, 1e-12, average=False)


def refused(group, head, batches):
    head = copy.deepcopy(head).shard(group)
    with pytest.raises((ValueError, TypeError)) as error:
        head(*batches[dist.get_rank(group)])
    x, y = torch.ones(2, 5), torch.tensor([0, 1])
    assert head(x, y).isfinite()  # the processes are still synchronized
    return str(error.value)


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (torch.ones(2, 5), torch.tensor([0, 11]), r"labels must be in [0, 10] or ignore_index=-100, got 11"),
        (torch.ones(2, 5), torch.tensor([-7, 1]), r"got -7"),
        (torch.ones(2, 5), torch.tensor([0]), "one per feature, but they are not on process 1"),
        (torch.ones(2, 5), torch.tensor([0.0, 1.0]), "n integers"),
        (torch.ones(2, 5).double(), torch.tensor([0, 1]), "must agree in d and dtype"),
        (torch.ones(2, 4), torch.tensor([0, 1]), "must agree in d and dtype over the processes, got d = [5, 4]"),
    ],
)
def test_what_is_wrong_with_one_process_is_raised_on_every_one(x, y, words, pool):
    good = (torch.ones(3, 5), torch.tensor([0, 1, 2]))
    for message in pool.run(refused, ArcFace(5, 11), [good, (x, y)], processes=2):
        assert words in message


def traffic(group, head, n):
    """Return the operation and the size of every message of one step, forward and backward."""
    head = copy.deepcopy(head).shard(group)
    sizes, real = [], {name: getattr(dist, name) for name in ("all_reduce", "all_gather", "reduce_scatter")}

    def counted(name):
        def call(first, *args, **options):
            sizes.append((name, (first if isinstance(first, torch.Tensor) else first[0]).numel()))
            return real[name](first, *args, **options)

        return call

    for name in real:
        setattr(dist, name, counted(name))
    try:
        x = torch.randn(n, head.in_features, requires_grad=True)
        head(x, torch.arange(n)).backward()
    finally:
        for name, function in real.items():
            setattr(dist, name, function)
    return sizes


@pytest.mark.parametrize(
    ("head", "vectors"),
    [
        (ArcFace(64, 1000), 4),  # the target's product and cosine, the maximum, the sum
        (ArcFace(64, 1000, sub_centers=2, bias=True), 5),
        (SphereFace(64, 1000, label_smoothing=0.1), 5),
        (MarginSoftmax(64, 1000, margin=InterTopK(k=3)), 8),  # two per process for the hardest; the target's slope
    ],
)
@pytest.mark.skipif(not GLOO_HAS_REDUCE_SCATTER, reason="gloo sends whole sums before PyTorch 2.8")
def test_what_travels_is_a_few_vectors_of_the_batchs_length(head, vectors, pool):
    n, processes = 20, 2
    sizes = pool.run(traffic, head, n, processes=processes)[0]
    features = [size for name, size in sizes if size == n * 64]
    assert [name for name, size in sizes if size == n * 64] == ["all_gather", "reduce_scatter"]
    others = sum(size for _, size in sizes) - sum(features) - 4 - n  # the header and the labels
    assert others <= vectors * n * processes
    if head.margin.hardest == 0:
        assert others == vectors * n * processes
