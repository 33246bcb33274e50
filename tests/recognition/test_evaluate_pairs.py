import pytest
import torch

from hypersphere.evaluation import paired_difference, roc_curve
from hypersphere.recognition import evaluate_pairs
from tests.recognition.drawn import draw_folder, small_embedder


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    folder = draw_folder(tmp_path_factory.mktemp("people"), 6, 4)
    lines = ["2\t6"]
    for fold in range(2):
        lines += [f"person{p}\t{fold + 1}\t{fold + 3}" for p in range(6)]
        lines += [f"person{p}\t{fold + 1}\tperson{(p + 1) % 6}\t{fold + 2}" for p in range(6)]
    (folder / "pairs.txt").write_text("\n".join(lines))
    return folder / "pairs.txt"


def scores(embedder, listed):
    rows = [line.split("\t") for line in listed.read_text().splitlines()[1:]]
    sides = []
    for first in (True, False):
        names = [(row[0], row[1]) if first else (row[-2] if len(row) == 4 else row[0], row[-1]) for row in rows]
        sides.append(embedder([listed.parent / name / f"{name}_{int(i):04d}.png" for name, i in names]))
    same = torch.tensor([len(row) == 3 for row in rows])
    return torch.cosine_similarity(*(side.double() for side in sides)), same


def test_pairs_are_scored_by_the_embedder(listed):
    found = evaluate_pairs(small_embedder(), listed, fars=(0.5,))
    cos, same = scores(small_embedder(), listed)
    assert float(found.report.verification.eer) == pytest.approx(float(roc_curve(cos, same).eer), abs=1e-6)
    assert found.report.numbers()["folds"] == 2
    assert found.notes == ()
    assert all(name.endswith(".png") for name in found.names)


def test_two_embedders_are_compared_on_the_same_pairs(listed):
    other = small_embedder(1)
    found = evaluate_pairs(small_embedder(), listed, against=other, resamples=40, fars=(0.5, 1e-4))
    cos, same = scores(small_embedder(), listed)
    wanted = paired_difference(cos, scores(other, listed)[0], same, resamples=40)
    assert found.comparisons[0].difference == pytest.approx(float(wanted.difference), abs=1e-6)
    assert found.notes == ("FAR 1e-4 is not resolved by 12 different pairs",)


def test_a_cohort_normalizes(listed):
    found = evaluate_pairs(small_embedder(), listed, cohort=listed.parent, top=5, fars=(0.5,))
    assert found.report.unit == "score"
    assert found.facts["cohort"]["images"] == 24
