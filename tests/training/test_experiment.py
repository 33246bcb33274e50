import json

import pytest
import torch

from hypersphere.energy import hyperspherical_energy
from hypersphere.neurons import neuron_layers, neurons
from hypersphere.training import Config, Experiment, build_task, call
from tests.training.own import Net
from tests.training.runs import small


def test_the_seed_decides_where_training_starts(tmp_path):
    def start(seed):
        return dict(Experiment(small(seed=seed), tmp_path / "run").task.named_parameters())

    torch.manual_seed(99)
    first = start(3)
    torch.manual_seed(5)
    second, other = start(3), start(4)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    assert not list(tmp_path.iterdir())  # nothing is written before run


def test_a_stored_run_of_ones_own_code_is_resumed_only_with_trust(tmp_path):
    config = small(steps=2, evaluate_every=1, pictures=False, energy=None, channels=3, backbone=call(Net, dim=4))
    Experiment(config, tmp_path).run()
    with pytest.raises(
        ValueError, match=r"backbone is 'tests.training.own:Net', code outside hypersphere: it is imported"
    ):
        Experiment.resume(tmp_path)
    assert Experiment.resume(tmp_path, trust=True).run()["accuracy"] >= 0


def test_the_task_is_that_of_the_config(tmp_path):
    experiment = Experiment(small(), tmp_path)
    assert experiment.config == small()
    assert type(experiment.task) is type(build_task(Config()))


def test_runs_of_fit_and_of_python_say_how_they_continue(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"fit": {}, "source": {"source": "people"}}))
    with pytest.raises(ValueError, match=r"holds a run of fit, .*: hypersphere fit people -o "):
        Experiment.resume(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"settings": {}, "task": {}}))
    with pytest.raises(ValueError, match=r"a task made in Python: resume it with Trainer\(task, folder, settings\)"):
        Experiment.resume(tmp_path)


def test_logged_energies_have_the_space_and_s_of_the_settings(tmp_path):
    config = small(steps=1, pictures=False, energy_s=1.0, energy_half_space=True)
    experiment = Experiment(config, tmp_path)
    name, layer = next(iter(neuron_layers(experiment.task.model).items()))
    expected = hyperspherical_energy(neurons(layer).detach(), 1.0, True).item()
    assert experiment.task.measures()[f"energy/{name}"] == expected
