import pytest
import torch

from hypersphere.data.preprocessing import Prepared
from hypersphere.recognition import Gallery, audit
from hypersphere.recognition._audit import find_neighbors, judge_new_template


def people(count, pictures, seed=0, noise=0.4):
    """Return names and features of people with well separated directions."""
    draw = torch.Generator().manual_seed(seed)
    centers = torch.randn(count, 32, generator=draw)
    features = centers.repeat_interleave(pictures, 0) + noise * torch.randn(count * pictures, 32, generator=draw)
    return [f"p{i:02d}" for i in range(count) for _ in range(pictures)], features


@pytest.fixture
def gallery():
    with Gallery(":memory:") as opened:
        yield opened


def test_neighbors_are_those_of_loops():
    owners, features = torch.randint(0, 6, (40,)), torch.randn(40, 5)
    near = find_neighbors(features, owners)
    cosines = torch.cosine_similarity(features[:, None].double(), features.double(), dim=2)
    for i in range(40):
        own = [cosines[i, j].item() for j in range(40) if j != i and owners[j] == owners[i]]
        other = {j: cosines[i, j].item() for j in range(40) if owners[j] != owners[i]}
        assert near.own[i].item() == pytest.approx(max(own, default=-torch.inf), abs=1e-6)
        assert near.other[i].item() == pytest.approx(max(other.values()), abs=1e-6)
        assert int(near.other_index[i]) == max(other, key=other.__getitem__)


def test_a_clean_gallery_has_no_findings(gallery):
    gallery.enrol(*people(20, 5))
    assert audit(gallery) == []


def test_swapped_and_foreign_pictures_are_found_first(gallery):
    names, features = people(20, 5)
    features[7], features[93] = features[93].clone(), features[7].clone()  # p01 and p18 swap a picture
    features[40] = -features[40]  # looks like nobody
    gallery.enrol(names, features, [f"{i}.png" for i in range(100)])
    found = audit(gallery)
    outliers = [(one.identity, one.source) for one in found if one.kind == "outlier"]
    assert set(outliers) == {("p01", "7.png"), ("p18", "93.png"), ("p08", "40.png")}
    first = next(one for one in found if one.source == "7.png" and one.kind == "outlier")
    assert first.other == "p18"
    assert "p18 is nearer" in first.text


def test_one_picture_under_two_names_is_a_duplicate(gallery):
    names, features = people(10, 4)
    gallery.enrol([*names, "copy"], torch.cat([features, features[5:6]]))
    found = [one for one in audit(gallery) if one.kind == "duplicate"]
    assert {"p01", "copy"} <= {one.identity for one in found}
    assert next(one.other for one in found if one.identity == "copy") == "p01"


def test_the_calibrated_threshold_makes_outliers(gallery):
    names, features = people(10, 3)
    gallery.enrol(names, features)
    assert audit(gallery) == []
    assert len(audit(gallery, threshold=0.999)) == 30


def test_a_missing_picture_is_named(gallery, tmp_path):
    gallery.enrol(["ada", "ada"], torch.ones(2, 3), [str(tmp_path / "gone.png"), "relative.png"])
    (found,) = audit(gallery)
    assert (found.kind, found.source) == ("missing picture", str(tmp_path / "gone.png"))
    assert audit(gallery, quality=False) == []


def test_an_empty_gallery(gallery):
    assert audit(gallery) == []


def test_a_poor_face_is_named(gallery, tmp_path):
    class Faces:
        def load_all(self, source):
            info = {"score": 0.9, "quality": {"size": 9.0}} if "small" in source else {"score": 0.9, "quality": {}}
            return [Prepared(torch.zeros(3, 4, 4), info)]

    class Model:
        preprocessing = Faces()

    for name in ("small.png", "good.png"):
        (tmp_path / name).touch()
    gallery.enrol("ada", torch.ones(2, 3), [str(tmp_path / name) for name in ("small.png", "good.png")])
    assert audit(gallery) == []
    gallery.embedder = Model()
    (found,) = audit(gallery)
    assert (found.kind, found.source) == ("poor quality", str(tmp_path / "small.png"))
    assert found.text == "the eyes are 9 pixels apart (at least 20)"


def test_a_new_picture_is_compared_with_the_others(gallery):
    names, features = people(6, 3)
    gallery.enrol(names, features)
    assert judge_new_template(gallery, "p00", features[1]) is None
    assert "with p00, but" in judge_new_template(gallery, "p00", features[4])
    assert judge_new_template(gallery, "new", features[4]) is None
    stranger = -features[0]
    scores = torch.linspace(0, 1, 2000)
    with pytest.warns(UserWarning, match="a false accept rate of 0.5"):
        gallery.calibrate(far=0.5, pairs=(scores, torch.arange(2000) % 2 == 0))
    assert "is below the threshold" in judge_new_template(gallery, "p00", stranger)
