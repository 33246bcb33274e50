"""The scale page quotes the reports correctly, and its formulas are those of the code."""

import importlib.util
import pathlib
import sys

import pytest
import torch

from hypersphere.objectives import Sample

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def scale():
    spec = importlib.util.spec_from_file_location("scale_page", ROOT / "benchmarks" / "scale_page.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_page_is_that_of_the_reports(scale):
    assert (ROOT / "docs" / "scale.md").read_text(encoding="utf-8") == scale.format_page(), (
        "run python benchmarks/scale_page.py"
    )


def rows_of(here, scale):
    """Return a report in which heads take exactly the time of the formulas."""
    setups = [(size, batch, part) for size, batch in (("100k", 128), ("100k", 1024), ("1M", 128)) for part in here]
    return [
        {
            "C": size,
            "processes": 1,
            "batch": batch,
            "classes drawn": part,
            "CPU s": scale.estimate_seconds(scale.SIZES[size], 1, part, here[part], batch=batch),
        }
        for size, batch, part in setups
    ]


def test_the_constants_are_those_that_made_the_times(scale):
    here = {"all": scale.Constants(40e9, 7e9), "0.1": scale.Constants(30e9, 4e9)}
    for part, expected in here.items():
        assert scale.fit_constants(rows_of(here, scale), part) == pytest.approx(expected, rel=1e-9)


def test_the_formula_of_drawn_classes_counts_what_is_drawn():
    page = pathlib.Path(ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert "if a part ρ is sampled: the classes of the batch, and ρ of the others" in page
    sample, counts = Sample(0.1), []
    for seed in range(20):
        labels = torch.randint(0, 2000, (500,), generator=torch.Generator().manual_seed(seed))
        counts.append(int(sample.draw_classes(0, 2000, labels).sum()))
        sample.step()
    expected = 2000 - 2000 * (1 - 1 / 2000) ** 500 * 0.9
    assert sum(counts) / len(counts) == pytest.approx(expected, rel=0.03)


def test_memory_and_traffic_are_those_of_the_documented_example(scale):
    assert scale.estimate_memory(10**6, 1, "all") == 3 * 4 * 512 * 10**6 + 8 * 128 * 512 * 4
    assert scale.estimate_memory(10**6, 4, "0.1") == 2.5 * 4 * 512 * 250_000 + 8 * 512 * 512 * 4
    assert scale.estimate_traffic(1) == 0
    assert scale.estimate_traffic(2) == 128 * 4 * (1024 + 8)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0012, "1.2 ms"), (0.3, "0.30 s"), (80, "80.0 s"), (100, "1.7 min"), (2e5, "2.3 days")]
)
def test_times_have_the_unit_that_fits(scale, seconds, shown):
    assert scale.format_duration(seconds) == shown
