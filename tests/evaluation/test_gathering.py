import pytest
import torch

from hypersphere.evaluation import gather_features, open_set_report
from tests.distributed import run

FEATURES = torch.randn(25, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(25) % 5


def worker(rank):
    """Gather 17 and 8 rows, then rows of a single process, then the rows of a distributed sampler."""
    shard = slice(0, 17) if rank == 0 else slice(17, 25)
    uneven = gather_features(FEATURES[shard], LABELS[shard])
    empty = gather_features(FEATURES[: 25 * rank], LABELS[: 25 * rank])
    dealt = torch.arange(26)[rank::2] % 25  # 26 positions for 25 samples: the first sample occurs twice
    sampled = gather_features(FEATURES[dealt].half(), LABELS[dealt], index=dealt)
    return {"uneven": uneven, "empty": empty, "sampled": sampled}


def test_two_processes_get_all_features():
    for result in run(worker):
        for name in ("uneven", "empty"):
            assert torch.equal(result[name][0], FEATURES)
            assert torch.equal(result[name][1], LABELS)
        assert torch.equal(result["sampled"][0], FEATURES.half())
        assert torch.equal(result["sampled"][1], LABELS)
        assert open_set_report(*result["uneven"]).json() == open_set_report(FEATURES, LABELS).json()


def test_a_single_process_gets_its_own_features():
    features, labels = gather_features(FEATURES, LABELS)
    assert torch.equal(features, FEATURES)
    assert torch.equal(labels, LABELS)
    assert not gather_features(FEATURES.clone().requires_grad_(True), LABELS)[0].requires_grad


@pytest.mark.untyped
def test_refuses():
    with pytest.raises(ValueError, match="one entry for each of 25 features"):
        gather_features(FEATURES, LABELS[:-1])
    with pytest.raises(ValueError, match="index must be integers"):
        gather_features(FEATURES, LABELS, index=torch.rand(25))
