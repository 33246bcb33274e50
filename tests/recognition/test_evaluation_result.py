import json

import pytest

from hypersphere.recognition import evaluate
from tests.recognition.drawn import draw_folder, small_embedder


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = draw_folder(tmp_path_factory.mktemp("people"), 6, 5, noise=120)
    return evaluate(small_embedder(), folder, against=small_embedder(1), resamples=20, fars=(0.1,), worst=3)


def test_json_holds_every_figure_and_fact(found):
    content = json.loads(found.json())
    assert list(content["figures"]) == [figure.name for figure in found.figures()]
    entry = content["figures"]["TAR@FAR=1e-1"]
    assert entry["unit"] == "fraction"
    assert entry["interval"][0] <= entry["value"] <= entry["interval"][1]
    assert entry["count"] == 60
    assert content["recommended thresholds"]["FAR=1e-1"] == found.report.threshold(far=0.1)
    assert content["calibration"]["slope"] == found.report.calibration.slope
    assert content["facts"]["embedder"] == small_embedder().fingerprint


def test_the_worst_pairs_are_named(found):
    worst = json.loads(found.json())["worst pairs"]
    for kind, same in (("false accepts", False), ("false rejects", True)):
        assert len(worst[kind]) == 3
        for pair in worst[kind]:
            people = [pair[side].rsplit("/", 2)[1] for side in ("first", "second")]
            assert (people[0] == people[1]) is same


def test_the_confused_are_named(found):
    confused = json.loads(found.json())["confused"]
    wrong = int((found.report.ranking.mated & (found.report.ranking.rank > 1)).sum())
    assert wrong > 0
    assert sum(row["times"] for row in confused) == wrong
    assert all(row["identity"] != row["taken for"] for row in confused)


def test_prints_figures_comparisons_and_thresholds(found):
    text = str(found)
    assert "two embedders on the same pairs" in text
    assert f"at FAR=1e-1: {found.report.threshold(far=0.1):.4f} cosine" in text
    assert len({figure.name for figure in found.figures()}) == len(found.figures())


def test_draws_the_roc(found, tmp_path):
    figure, _ = found.plot()
    figure.savefig(tmp_path / "roc.png")
    assert (tmp_path / "roc.png").stat().st_size > 1000
