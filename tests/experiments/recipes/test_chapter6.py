import pytest

from hypersphere.experiments.recipes import chapter6
from tests.experiments.recipes.smoke import names_of, run_whole


@pytest.mark.parametrize("name", names_of(chapter6))
def test_runs_to_its_end(name, tmp_path):
    run_whole(name, tmp_path)
    assert (tmp_path / "metrics.json").exists()


def test_the_setting_is_the_texts():
    config = chapter6.comhe_cifar100("paper")
    assert (config.data.batch_size, config.optimizer.lr, config.optimizer.weight_decay, config.energy.s) == (
        128,
        0.1,
        1e-4,
        2,
    )
    assert chapter6.comhe_pointnet("paper").energy.s == 1
