import pytest

from hypersphere.experiments.recipes import chapter7
from tests.experiments.recipes.smoke import names_of, run_whole


@pytest.mark.parametrize("name", names_of(chapter7))
def test_runs_to_its_end(name, tmp_path):
    run_whole(name, tmp_path)
    assert (tmp_path / "metrics.json").exists()


def test_the_setting_is_the_texts():
    config = chapter7.opt_mlp_mnist("paper")
    assert (config.steps * config.data.batch_size, config.optimizer.lr) == (100 * 60000, 0.01)
    clouds = chapter7.opt_pointnet("paper")
    assert (clouds.data.points, clouds.data.batch_size, clouds.optimizer.lr) == (1024, 32, 1e-3)
    assert clouds.steps * 32 // 9840 == 249  # whole batches of 250 epochs
