import pytest

from hypersphere.recipes import chapter6
from tests.recipes.smoke import names_of, run_whole


@pytest.mark.parametrize("name", names_of(chapter6))
def test_runs_to_its_end(name, tmp_path):
    run_whole(name, tmp_path)
    assert (tmp_path / "metrics.json").exists()
