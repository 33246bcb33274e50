from types import SimpleNamespace

import torch

from hypersphere.data import InMemory, OneShotRun
from hypersphere.training import replace
from studies.liu2020.claims import one_shot

from .contracts import ClaimContract


class TestOneShot(ClaimContract):
    claim = one_shot.CLAIM

    def test_every_training_arm_chooses_its_rate_and_the_weight_of_its_penalty(self):
        """Pilots validate on alphabets held out of the background set. They never read the evaluation set."""
        arm = self.claim.arms("laptop")[one_shot.ARM]
        held = arm.with_validation(replace(arm.config, steps=10))
        assert self.claim.tuning is None
        assert held.config.data.get("held_out") == one_shot.HELD_OUT
        assert not held.config.task.get("published_runs")
        assert held.measures == arm.validation_measures
        assert held.teacher.config.data.get("held_out") == one_shot.HELD_OUT
        assert not held.teacher.config.task.get("published_runs")


def drawn(classes, noise):
    """Return twenty drawings per character: the direction of the class plus noise."""
    torch.manual_seed(0)
    labels = torch.arange(len(classes)).repeat_interleave(one_shot.DRAWERS)
    features = torch.randn(len(classes), 16)[labels] + noise * torch.randn(len(labels), 16)
    order = torch.randperm(len(labels))
    data = InMemory(features[order], labels[order], classes)
    task = SimpleNamespace(train_samples=data, measured_samples=data, embed=lambda samples: samples.data, runs=[])
    return SimpleNamespace(task=task)


def test_runs_stay_within_an_alphabet():
    """Two alphabets have the same features. Comparing across alphabets would make half of the answers wrong."""
    classes = tuple(f"{alphabet}/character{i:02}" for alphabet in "ab" for i in range(8))
    experiment = drawn(classes, 0.0)
    samples = experiment.task.measured_samples
    samples.data[:] = torch.randn(8, 16)[samples.labels % 8]
    samples.data[:, 0] += 1e-6 * torch.randn(len(samples.data))
    assert (
        one_shot.measure_one_shot_errors(experiment)
        == one_shot.measure_one_shot_errors(experiment, shrink=0.03)
        == {"within": 0.0}
    )


def test_runs_agree_with_a_loop():
    classes = tuple(f"a/character{i:02}" for i in range(12))  # fewer than 20, so a run contains every character
    experiment = drawn(classes, 1.0)
    samples = experiment.task.measured_samples
    unit = torch.nn.functional.normalize(samples.data.double(), dim=1)
    of = [torch.nonzero(samples.labels == c).flatten() for c in range(len(classes))]
    wrong = []
    for drawer in range(20):
        for further in one_shot.DRAWER_OFFSETS:
            for c in range(len(classes)):
                query = unit[of[c][(drawer + further) % 20]]
                scores = [float(query @ unit[of[other][drawer]]) for other in range(len(classes))]
                wrong.append(scores.index(max(scores)) != c)
    found = one_shot.measure_one_shot_errors(experiment)["within"]
    assert abs(found - 100 * sum(wrong) / len(wrong)) < 1e-9
    assert 0 < found < 100


def test_turned_copies_decide_where_a_single_drawing_does_not():
    """The network sees only the first pixel. Two drawings that agree there differ in the other corners."""
    support = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]], [[[1.0, 1.0], [0.0, 0.0]]]])
    run = OneShotRun(support, support.clone(), torch.arange(2))
    task = drawn(tuple(f"a/{i}" for i in range(4)), 0.1).task
    task.embed = lambda samples: samples.data[:, :2]
    task.runs, task.embed_batch = [run], lambda x: torch.stack([x[:, 0, 0, 0], 1 - x[:, 0, 0, 0]], 1)
    for shrink in (None, 0.03):
        found = one_shot.measure_one_shot_errors(SimpleNamespace(task=task), shrink)
        assert (found["published_error"], found["turned_error"]) == (50.0, 0.0)


def test_the_last_layer_is_fitted_to_training_drawings_and_helps():
    """Noise dominates a few dimensions. Training drawings reveal which ones; plain cosines cannot know."""
    classes = tuple(f"a/character{i:02}" for i in range(40))
    experiment = drawn(classes, 0.3)
    samples = experiment.task.measured_samples
    samples.data[:, :4] += 3 * torch.randn(len(samples.data), 4)
    found = one_shot.measure_one_shot_errors(experiment, shrink=0.03)["within"]
    assert found < one_shot.measure_one_shot_errors(experiment)["within"] / 2
    del experiment.task.measured_samples
    experiment.task.measured_samples = InMemory(samples.data + 0, samples.labels, classes)
    experiment.task.train_samples = drawn(classes, 0.3).task.train_samples  # training drawings without this noise
    assert one_shot.measure_one_shot_errors(experiment, shrink=0.03)["within"] > found
