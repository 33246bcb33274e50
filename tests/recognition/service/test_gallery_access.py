import pytest
import torch

from hypersphere.recognition import Gallery
from hypersphere.recognition.service import GalleryAccess, RequestError

ADA, BOB = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])


@pytest.fixture
def gallery_access(tmp_path):
    made = GalleryAccess(tmp_path / "people.db", "model 1")
    yield made
    made.close()


def refusal(work):
    with pytest.raises(RequestError) as caught:
        work()
    return caught.value.status_code, caught.value.code


def test_only_enrolment_makes_a_gallery(gallery_access, tmp_path):
    assert (gallery_access.people(), gallery_access.verification(), gallery_access.state()) == ({}, None, "empty")
    assert refusal(lambda: gallery_access.search(ADA, 1)) == (409, "gallery_empty")
    assert refusal(lambda: gallery_access.remove("ada")) == (404, "unknown_person")
    assert not list(tmp_path.iterdir())
    assert gallery_access.enrol("  ada ", ADA, ["1"]) == 1
    assert gallery_access.people() == {"ada": 1}


def test_a_search_is_judged_by_the_calibration(gallery_access, tmp_path):
    gallery_access.enrol("ada", ADA, ["1"])
    gallery_access.enrol("bob", BOB, ["2"])
    assert refusal(lambda: gallery_access.search(ADA, 1)) == (409, "not_calibrated")
    told = pytest.warns(UserWarning, match="75% of strangers")
    with Gallery(tmp_path / "people.db", "model 1") as other, told:  # the gallery is still open in gallery_access
        other.calibrate(far=0.5, pairs=(torch.tensor([0.95, 0.9, 0.5]), torch.tensor([True, False, False])))
    found = gallery_access.search(torch.tensor([[1.0, 0.1]]), 5)
    assert [(match.identity, match.accepted) for match in found.answer.candidates] == [("ada", True), ("bob", False)]
    assert found.calibration.rate == 0.5
    assert "75% of strangers" in found.warning
    assert gallery_access.state() == "ready"
    gallery_access.remove("ada")
    gallery_access.remove("bob")
    assert refusal(lambda: gallery_access.search(ADA, 1)) == (409, "gallery_empty")


def test_another_model_is_a_conflict_everywhere(gallery_access, tmp_path):
    gallery_access.enrol("ada", ADA, ["1"])
    other = GalleryAccess(tmp_path / "people.db", "model 2")
    for work in (
        other.people,
        other.verification,
        lambda: other.enrol("bob", BOB, ["2"]),
        lambda: other.remove("ada"),
        lambda: other.search(ADA, 1),
    ):
        assert refusal(work) == (409, "model_mismatch")
    assert other.state() == "other_model"
    assert gallery_access.people() == {"ada": 1}


def test_a_gallery_of_no_named_model_is_a_conflict(tmp_path):
    with Gallery(tmp_path / "people.db") as gallery:
        gallery.enrol("ada", ADA)
    assert GalleryAccess(tmp_path / "people.db", "model 1").state() == "other_model"


def test_features_that_say_nothing_are_refused(gallery_access):
    assert refusal(lambda: gallery_access.enrol("ada", torch.zeros(1, 2), ["1"])) == (422, "unusable_features")
    assert refusal(lambda: gallery_access.enrol("ada", torch.full((1, 2), torch.nan), ["1"])) == (
        422,
        "unusable_features",
    )
    assert gallery_access.people() == {}


def test_a_file_that_is_no_gallery_is_unavailable_and_its_place_is_not_told(tmp_path, caplog):
    (tmp_path / "secret-place.db").write_bytes(b"something else" * 100)
    gallery_access = GalleryAccess(tmp_path / "secret-place.db", "model 1")
    with pytest.raises(RequestError) as caught:
        gallery_access.people()
    assert (caught.value.status_code, caught.value.code) == (503, "gallery_unavailable")
    assert "secret-place" not in caught.value.detail
    assert "secret-place" in caplog.text


def test_a_file_that_was_replaced_takes_no_more(gallery_access, tmp_path):
    gallery_access.enrol("ada", ADA, ["1"])
    with Gallery(tmp_path / "new.db", "model 1") as other:
        other.enrol("bob", BOB)
    (tmp_path / "people.db").rename(tmp_path / "old.db")
    assert refusal(lambda: gallery_access.enrol("cem", BOB, ["2"])) == (503, "gallery_replaced")
    (tmp_path / "new.db").rename(tmp_path / "people.db")
    assert refusal(lambda: gallery_access.enrol("cem", BOB, ["2"])) == (503, "gallery_replaced")
    assert refusal(gallery_access.people) == (503, "gallery_replaced")
