import os

import pytest
import torch

from hypersphere import models
from hypersphere.config import call
from hypersphere.data import MissingDataError, OneShotRun
from hypersphere.evaluation import unseen_classes
from hypersphere.training import Config, Experiment, OpenSet, Selection, build_task, replace
from hypersphere.training.tasks import open_set as module
from studies.liu2020.claims.objectives_openset import CLAIM
from tests.training.contracts import TaskContract

CONFIG = Config(
    task=call(OpenSet),
    monitor="rank1",
    size=16,
    samples=Selection(validation=0.4),
    batch_size=32,
    backbone=call(models.sphereface4, width=0.1, feature_dim=8),
)


class TestOpenSet(TaskContract):
    config = CONFIG


def test_the_measured_classes_are_not_trained_on():
    task = build_task(CONFIG)
    assert len(task.train_samples.classes) == 6
    assert len(task.measured_samples.classes) == 4
    assert not set(task.train_samples.classes) & set(task.measured_samples.classes)


def test_percentages_are_those_of_the_report():
    task = build_task(CONFIG).eval()
    with torch.no_grad():
        found, features = task.evaluate(), task.embed(task.measured_samples)
    report = unseen_classes(features, task.measured_samples.labels, ways=4)
    assert found["eer"] == pytest.approx(100 * report.verification.eer)
    assert found["tar"] == pytest.approx(100 * float(report.verification.tar(1e-3)))
    assert found["rank1"] == pytest.approx(100 * float(report.identification.rank(1)))
    assert found["one_shot"] == pytest.approx(100 * float(report.few_shot.accuracy))


def test_published_runs_are_measured_where_asked_for(monkeypatch):
    support = build_task(CONFIG).measured_samples.data[:5]
    runs = (
        OneShotRun(support, support.flip(0), torch.tensor([4, 3, 2, 1, 0])),
        OneShotRun(support, support, torch.tensor([1, 2, 3, 4, 0])),
    )
    sizes = []
    monkeypatch.setattr(module, "one_shot_runs", lambda size: sizes.append(size) or runs)
    task = build_task(replace(CONFIG, {"task.published_runs": True})).eval()
    with torch.no_grad():
        assert task.evaluate()["published_runs"] == 50.0  # one run is all correct, the other all wrong
    assert sizes == [16]


def test_refuses():
    with pytest.raises(ValueError, match="ways must be an integer ≥ 2, got 1"):
        build_task(replace(CONFIG, {"task.ways": 1}))


@pytest.mark.slow
def test_a_margin_is_ahead_of_softmax_on_unseen_characters(tmp_path):
    """The recorded claim with real data and a third of its steps. Takes minutes."""
    found = {}
    for name in ("softmax", "A-Softmax m = 4", "AM-Softmax"):
        config = replace(CLAIM.arms("laptop")[name].config, steps=700, evaluate_every=700, threads=os.cpu_count() or 1)
        try:
            found[name] = Experiment(config, tmp_path / name).run()
        except MissingDataError as missing:
            pytest.skip(str(missing))
    for name in ("A-Softmax m = 4", "AM-Softmax"):
        assert found[name]["eer"] < found["softmax"]["eer"]
        assert found[name]["tar"] > found["softmax"]["tar"]
        assert found[name]["rank1"] > found["softmax"]["rank1"]
        assert found[name]["one_shot"] > found["softmax"]["one_shot"]
