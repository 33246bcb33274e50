import pytest

from hypersphere.experiments.recipes import chapter4
from tests.experiments.recipes.smoke import names_of, run_whole


@pytest.mark.parametrize("name", names_of(chapter4))
def test_runs_to_its_end(name, tmp_path):
    run_whole(name, tmp_path)
    assert (tmp_path / "metrics.json").exists()


def test_the_setting_is_the_texts():
    config = chapter4.adversarial_cifar10("paper")
    assert (config.attack.epsilon, config.attack.step, config.attack.iterations) == (8 / 255, 2 / 255, 20)
    assert (config.model.table, config.model.norm) == ("C.1 adversarial", "none")
