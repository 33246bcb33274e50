import csv

import pytest
import torch

from hypersphere.data.sources import open_source
from hypersphere.evaluation import ASNorm, QMagFace, compare_embedders, open_set_report, templates
from hypersphere.recognition import embed, evaluate
from tests.recognition.drawn import draw_folder, small_embedder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return draw_folder(tmp_path_factory.mktemp("people"), 8, 6)


@pytest.fixture(scope="module")
def features(folder):
    source = open_source(folder)
    return embed(small_embedder(), source).features, source.labels


def table(folder, path, **columns):
    """Write a CSV of the folder's images. Each column is a function of the image's number."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label", *columns])
        for i, record in enumerate(open_source(folder).records):
            rows.writerow([record.name, record.label, *(column(i) for column in columns.values())])
    return path


def test_is_the_open_set_report_of_the_features(folder, features):
    found = evaluate(small_embedder(), folder, fars=(0.1, 1e-3))
    wanted = open_set_report(*features, fars=(0.1, 1e-3))
    assert found.report.numbers() == pytest.approx(wanted.numbers(), nan_ok=True)
    assert found.recommended()["FAR=1e-1"] == wanted.threshold(far=0.1)
    assert found.facts["images"] == 48


def test_says_what_the_pairs_cannot_resolve(folder):
    found = evaluate(small_embedder(), folder, fars=(0.1, 1e-5), fpirs=(1e-4,))
    assert [note.split(" is not")[0] for note in found.notes] == ["FAR 1e-5", "FPIR 1e-4"]


def test_scores_are_normalized_by_a_cohort(folder, features, tmp_path):
    cohort = draw_folder(tmp_path / "cohort", 4, 4)
    found = evaluate(small_embedder(), folder, cohort=cohort, top=10)
    score = ASNorm(embed(small_embedder(), open_source(cohort)).features, 10)
    assert float(found.report.eer) == pytest.approx(float(open_set_report(*features, score=score).eer))
    assert found.facts["cohort"]["images"] == 16
    assert found.report.unit == "score"


def test_images_of_an_identity_become_templates(folder, features):
    found = evaluate(small_embedder(), folder, per_template=4, pool="max", fars=(0.1,))
    x, labels = features
    owner = torch.arange(48) // 6 * 2 + (torch.arange(48) % 6 >= 4)  # four images per identity, then the other two
    pooled = templates(x, owner, "max").features
    wanted = open_set_report(pooled, labels[::3], fars=(0.1,), rows="templates")
    assert found.report.numbers() == pytest.approx(wanted.numbers(), nan_ok=True)
    assert next((f.name, f.value) for f in found.report.figures()) == ("templates", 16)
    assert "templates of 4 images" in str(found)


def test_queries_galleries_and_categories_of_a_table(folder, features, tmp_path):
    path = table(
        folder,
        tmp_path / "t.csv",
        is_query=lambda i: int(i % 3 == 0),
        is_gallery=lambda i: int(i % 3 == 1),
        category=lambda i: "ab"[i % 2],
    )
    found = evaluate(small_embedder(), path, fars=(0.1,))
    kept = torch.arange(48) % 3 != 2
    x, labels = features[0][kept], features[1][kept]
    place = torch.arange(48)[kept]
    wanted = open_set_report(
        x,
        labels,
        queries=place % 3 == 0,
        gallery=place % 3 == 1,
        categories=["ab"[i % 2] for i in place.tolist()],
        fars=(0.1,),
    )
    assert found.report.numbers() == pytest.approx(wanted.numbers(), nan_ok=True)
    assert (found.facts["queries"], found.facts["gallery"]) == (16, 16)
    assert "categories, at common thresholds" in str(found)


def test_another_embedder_is_compared_on_the_same_pairs(folder, features):
    other = small_embedder(1)
    found = evaluate(small_embedder(), folder, against=other, resamples=50, fars=(0.05,))
    second = embed(other, open_source(folder)).features
    wanted = compare_embedders(features[0], second, features[1], resamples=50)
    assert found.comparisons[0].difference.interval == wanted.difference.interval
    assert [comparison.measure for comparison in found.comparisons] == ["EER", "TAR@FAR=5e-2"]
    assert found.facts["against"] == other.fingerprint


def test_lengths_are_qualities(folder):
    found = evaluate(small_embedder(), folder, quality=True, score=QMagFace(), fars=(0.1,))
    assert any(name.startswith("FRR@FAR=1e-1 without") for name in found.numbers())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per_template": 0}, "per_template must be an integer ≥ 1"),
        ({"per_template": 2, "quality": True}, "templates have length 1"),
        ({"per_template": 2, "score": QMagFace()}, "templates have length 1"),
        ({"split": "test"}, "split must be one of none"),
        ({"fars": (2.0,)}, "fars must be rates in"),
    ],
)
def test_refuses(folder, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(small_embedder(), folder, **options)


def test_a_gallery_must_have_queries(folder, tmp_path):
    path = table(folder, tmp_path / "t.csv", is_gallery=lambda i: 1)
    with pytest.raises(ValueError, match="but no query: is_query must be true somewhere"):
        evaluate(small_embedder(), path)
