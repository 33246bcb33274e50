import pytest
import torch

from hypersphere.recognition import Gallery
from hypersphere.recognition.service import Desk, Refusal

ADA, BOB = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path / "people.db", "model 1")
    yield made
    made.close()


def refusal(work):
    with pytest.raises(Refusal) as caught:
        work()
    return caught.value.status_code, caught.value.code


def test_only_enrolment_makes_a_gallery(desk, tmp_path):
    assert (desk.people(), desk.calibration(), desk.state()) == ({}, None, "empty")
    assert refusal(lambda: desk.search(ADA, 1)) == (409, "gallery_empty")
    assert refusal(lambda: desk.remove("ada")) == (404, "unknown_person")
    assert not list(tmp_path.iterdir())
    assert desk.enrol("  ada ", ADA, ["1"]) == 1
    assert desk.people() == {"ada": 1}


def test_a_search_is_judged_by_the_calibration(desk, tmp_path):
    desk.enrol("ada", ADA, ["1"])
    desk.enrol("bob", BOB, ["2"])
    assert refusal(lambda: desk.search(ADA, 1)) == (409, "not_calibrated")
    told = pytest.warns(UserWarning, match="75% of strangers")
    with Gallery(tmp_path / "people.db", "model 1") as other, told:  # while the desk has it open
        other.calibrate(torch.tensor([0.95, 0.9, 0.5]), torch.tensor([True, False, False]), 0.5)
    found = desk.search(torch.tensor([[1.0, 0.1]]), 5)
    assert [(match.identity, match.accepted) for match in found.matches] == [("ada", True), ("bob", False)]
    assert found.calibration.rate == 0.5
    assert "75% of strangers" in found.warning
    assert desk.state() == "ready"
    desk.remove("ada")
    desk.remove("bob")
    assert refusal(lambda: desk.search(ADA, 1)) == (409, "gallery_empty")


def test_another_model_is_a_conflict_everywhere(desk, tmp_path):
    desk.enrol("ada", ADA, ["1"])
    other = Desk(tmp_path / "people.db", "model 2")
    for work in (
        other.people,
        other.calibration,
        lambda: other.enrol("bob", BOB, ["2"]),
        lambda: other.remove("ada"),
        lambda: other.search(ADA, 1),
    ):
        assert refusal(work) == (409, "model_mismatch")
    assert other.state() == "other_model"
    assert desk.people() == {"ada": 1}


def test_a_gallery_of_no_named_model_is_a_conflict(tmp_path):
    with Gallery(tmp_path / "people.db") as gallery:
        gallery.enrol("ada", ADA)
    assert Desk(tmp_path / "people.db", "model 1").state() == "other_model"


def test_features_that_say_nothing_are_refused(desk):
    assert refusal(lambda: desk.enrol("ada", torch.zeros(1, 2), ["1"])) == (422, "unusable_features")
    assert refusal(lambda: desk.enrol("ada", torch.full((1, 2), torch.nan), ["1"])) == (422, "unusable_features")
    assert desk.people() == {}


def test_a_file_that_is_no_gallery_is_unavailable_and_its_place_is_not_told(tmp_path, caplog):
    (tmp_path / "secret-place.db").write_bytes(b"something else" * 100)
    desk = Desk(tmp_path / "secret-place.db", "model 1")
    with pytest.raises(Refusal) as caught:
        desk.people()
    assert (caught.value.status_code, caught.value.code) == (503, "gallery_unavailable")
    assert "secret-place" not in caught.value.detail
    assert "secret-place" in caplog.text


def test_a_file_that_was_replaced_takes_no_more(desk, tmp_path):
    desk.enrol("ada", ADA, ["1"])
    with Gallery(tmp_path / "new.db", "model 1") as other:
        other.enrol("bob", BOB)
    (tmp_path / "people.db").rename(tmp_path / "old.db")
    assert refusal(lambda: desk.enrol("cem", BOB, ["2"])) == (503, "gallery_replaced")
    (tmp_path / "new.db").rename(tmp_path / "people.db")
    assert refusal(lambda: desk.enrol("cem", BOB, ["2"])) == (503, "gallery_replaced")
    assert refusal(desk.people) == (503, "gallery_replaced")
