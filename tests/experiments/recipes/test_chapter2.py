import pytest

from hypersphere.experiments.recipes import chapter2
from tests.experiments.recipes.smoke import names_of, run_whole


@pytest.mark.parametrize("name", names_of(chapter2))
def test_runs_to_its_end(name, tmp_path):
    run_whole(name, tmp_path)
    assert (tmp_path / "metrics.json").exists()


def test_the_setting_is_the_texts():
    config = chapter2.lsoftmax_mnist("paper")
    assert (config.steps, config.optimizer.milestones, config.data.batch_size) == (18000, (12000, 15000), 256)
    faces = chapter2.sphereface_lfw("paper")
    assert (faces.steps, faces.optimizer.milestones, faces.data.batch_size, faces.head.m) == (
        28000,
        (16000, 24000),
        128,
        4,
    )
