import pytest

from hypersphere.experiments.recipes import chapter3
from tests.experiments.recipes.smoke import names_of, run_whole


@pytest.mark.parametrize("name", names_of(chapter3))
def test_runs_to_its_end(name, tmp_path):
    run_whole(name, tmp_path)
    assert (tmp_path / "metrics.json").exists()


def test_the_setting_is_the_texts():
    config = chapter3.spherenet_cifar10("paper")
    assert (config.steps, config.optimizer.milestones, config.data.batch_size) == (64000, (34000, 54000), 128)
    assert (config.optimizer.name, config.optimizer.lr, config.optimizer.weight_decay) == ("adam", 1e-3, 0)
