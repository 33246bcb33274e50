import pytest
import torch

from hypersphere.energy import AngularRiesz, Gaussian, Riesz, nearest_pairs
from hypersphere.energy import pair_measures as module
from hypersphere.energy.hyperspherical import mean_energies
from hypersphere.energy.pair_measures import measure_pairs


@pytest.mark.parametrize("half_space", [False, True])
@pytest.mark.parametrize("kernel", [Riesz(2), Riesz(1), Riesz(0), AngularRiesz(1), Gaussian(2)], ids=repr)
def test_one_pass_finds_what_several_do(kernel, half_space, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ENTRIES", 1 << 13)  # several blocks
    w = torch.randn(300, 12)
    w[7] = 3 * w[20]
    w[50] = w[51] + 1e-5 * torch.randn(12)
    found = measure_pairs(w, kernel, half_space, pairs=4)
    assert found.energy == pytest.approx(mean_energies(w[None].double(), kernel, half_space).item(), rel=1e-4)
    pairs, angles = nearest_pairs(w, 4)
    assert [entry[:2] for entry in found.pairs] == [tuple(pair) for pair in pairs.tolist()]
    assert [entry[2] for entry in found.pairs] == pytest.approx(angles.tolist(), abs=1e-7)
    assert found.duplicates == [(7, 20), (50, 51)]
    cos = torch.nn.functional.normalize(w.double(), dim=1)
    cos = (cos @ cos.T).fill_diagonal_(-2)
    assert torch.allclose(found.nearest.double(), cos.amax(1), atol=1e-6)


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_the_number_of_threads_changes_nothing(three_threads, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ENTRIES", 1 << 13)
    w = torch.randn(300, 12)
    w[50] = w[51] + 1e-5 * torch.randn(12)
    seen: list[float] = []
    first, second = (measure_pairs(w, Riesz(2), progress=seen.append) for _ in range(2))
    assert torch.get_num_threads() == 3
    for shares in (
        seen[: len(seen) // 2],
        seen[len(seen) // 2 :],
    ):  # the order of the blocks is random, their number is not
        assert shares == sorted(shares)
        assert shares[-1] == 1
    assert first.energy == second.energy  # for any order of the threads
    torch.set_num_threads(1)
    alone = measure_pairs(w, Riesz(2))
    assert first.energy == pytest.approx(alone.energy, rel=1e-6)
    assert torch.allclose(first.nearest, alone.nearest, atol=1e-6)
    assert first.pairs == alone.pairs


def test_an_error_in_a_thread_reaches_the_caller(three_threads, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ENTRIES", 1 << 13)

    def refuse(share):
        raise RuntimeError("no bar")

    with pytest.raises(RuntimeError, match="no bar"):
        measure_pairs(torch.randn(300, 12), Riesz(2), progress=refuse)
    assert torch.get_num_threads() == 3


def test_progress_ends_at_one():
    seen: list[float] = []
    measure_pairs(torch.randn(200, 5), Riesz(2), progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1


def test_many_duplicates_are_listed_up_to_the_number_of_neurons():
    found = measure_pairs(torch.ones(40, 3), Riesz(2))
    assert len(found.duplicates) == 40
    assert found.nearest.min() > 0.999
