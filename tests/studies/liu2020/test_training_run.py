from hypersphere import models
from hypersphere.config import call
from hypersphere.training import replace
from studies.liu2020 import training_run

from .tiny import arms


def test_planar_features_and_neurons_are_kept_for_the_picture(tmp_path):
    config = replace(
        arms("laptop")["a/softmax"].config,
        backbone=call(models.lsoftmax_mnist_2d, width=0.03125),
        steps=1,
        pictures=False,
    )
    points = training_run.train_and_measure(config, (), tmp_path / "run")["points"]
    assert len(points["features"]) == len(points["labels"])
    assert len(points["features"][0]) == 2
    assert len(points["neurons"]) == 10
    other = training_run.train_and_measure(replace(config, seed=1), (), tmp_path / "other")
    assert "points" not in other


def test_a_run_whose_loss_is_not_finite_has_no_metrics(tmp_path, monkeypatch):
    def explode(self):
        raise training_run.NonFiniteLossError("the loss became nan")

    monkeypatch.setattr(training_run.Experiment, "run", explode)
    row = training_run.train_and_measure(
        replace(arms("laptop")["a/softmax"].config, pictures=False), (), tmp_path / "run"
    )
    assert row["diverged"]
    assert row["metrics"] == {}
