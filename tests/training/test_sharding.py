"""A head that is divided among the processes of a run trains as a whole one, and the run goes on as one process."""

import json
import pathlib

import pytest
import torch
from torch import nn

from hypersphere.config import call
from hypersphere.energy import MHE
from hypersphere.objectives import ArcFace, RowSGD
from hypersphere.training import Experiment, Settings, to_json
from hypersphere.training.sharding import shard_heads, unshard_heads, whole_states
from tests.training.group import plain, run_group
from tests.training.runs import small
from tests.training.test_distributed import TOLERANCE, launch, losses


@pytest.mark.slow
def test_two_processes_with_a_divided_and_drawn_head_give_the_losses_of_one(tmp_path: pathlib.Path) -> None:
    head = call(ArcFace, parallel=True, sample=0.5, sub_centers=2, scale=10.0)
    optimizer = call(RowSGD, lr=0.05, momentum=0.9, weight_decay=5e-4)
    options = {"evaluate_every": 12, "checkpoint_every": 6, "pictures": False}
    config = small({"backbone.norm": "none"}, steps=12, head=head, optimizer=optimizer, energy=None, **options)
    Experiment(config, tmp_path / "one").run()
    (tmp_path / "config.json").write_text(to_json(config))
    launch(tmp_path, 2, "two")
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=TOLERANCE)
    found = [json.loads((tmp_path / name / "metrics.json").read_text())["accuracy"] for name in ("one", "two")]
    assert found[1] == pytest.approx(found[0], abs=1.0)
    launch(tmp_path, 2, "elastic", stop=6)
    Experiment(config, tmp_path / "elastic").run()
    assert losses(tmp_path / "elastic") == pytest.approx(losses(tmp_path / "one"), rel=TOLERANCE)


def test_one_process_has_nothing_to_divide() -> None:
    net = nn.Sequential(ArcFace(4, 5, parallel=True))
    shard_heads(net, torch.device("cpu"), 1)
    unshard_heads(net)
    assert net[0].shards is None
    states = {"task": net.state_dict()}
    assert whole_states(net, states) is states


@pytest.mark.parametrize("processes", [2, 3])
def test_divided_sphereface_plus_with_clipping_trains_as_one_process(processes: int, tmp_path: pathlib.Path) -> None:
    settings = Settings(steps=3, evaluate_every=3, checkpoint_every=3, log_every=1, threads=1, pictures=False)
    assert run_group(1, plain, settings, tmp_path / "one", plus=True)[0] == [0]
    assert run_group(processes, plain, settings, tmp_path / "run", plus=True, shards=True)[0] == [0] * processes
    texts = [(tmp_path / name / "log.jsonl").read_text() for name in ("one", "run")]
    rows = [[json.loads(line) for line in text.splitlines()] for text in texts]
    assert {"objective", "hidden", "output"} < rows[0][1].keys()
    assert "energy/classifier" in rows[0][-1]
    for one, run in zip(*rows, strict=True):
        assert run == pytest.approx(one, rel=TOLERANCE, abs=2e-5)


def test_a_head_that_is_divided_drawn_and_regularised_is_refused() -> None:
    net = nn.Sequential(nn.Linear(3, 4), ArcFace(4, 5, parallel=True, sample=0.5))
    task = nn.ModuleList([net, MHE(net)])
    with pytest.raises(
        ValueError, match=r"sample must be none for a divided head whose classes are regularized \(MHE\)"
    ):
        shard_heads(task, torch.device("cpu"), 2)
