import pytest
from pydantic import ValidationError

from hypersphere.recognition.service.schemas import Candidate, Health, Search, Threshold


def test_unknown_is_null_in_json():
    threshold = Threshold(value=0.5, by="fpir", rate=0.01)
    answer = Search(
        person=None, candidates=[Candidate(name="a", score=0.1, accepted=False)], threshold=threshold, warning=None
    )
    assert answer.model_dump(mode="json")["person"] is None


def test_states_are_named():
    with pytest.raises(ValidationError, match="gallery"):
        Health(status="ok", version="1", model="x", gallery="fine", key_needed=False)
