import pytest

from hypersphere.experiments.recipes import chapter5
from tests.experiments.recipes.smoke import names_of, run_whole


@pytest.mark.parametrize("name", names_of(chapter5))
def test_runs_to_its_end(name, tmp_path):
    run_whole(name, tmp_path)
    assert (tmp_path / "metrics.json").exists()


def test_the_setting_is_the_texts():
    config = chapter5.mhe_cifar10("paper")
    assert (config.steps, config.optimizer.milestones, config.optimizer.weight_decay) == (
        42500,
        (20000, 30000, 37500),
        1e-4,
    )
    assert (config.energy.half_space, config.energy.hidden, config.energy.output, config.energy.s) == (True, None, 1, 2)
    assert chapter5.imbalance_cifar10("paper").data.imbalance == "multiple"
