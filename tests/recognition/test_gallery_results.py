from hypersphere.recognition import Identification, Match


def test_a_stranger_has_no_name_but_a_best_candidate():
    answer = Identification((Match("bob", 0.41, accepted=False), Match("ada", 0.3, accepted=False)))
    assert answer.name is None
    assert not answer.accepted
    assert answer.best.identity == "bob"


def test_an_accepted_candidate_is_the_name():
    answer = Identification((Match("ada", 0.93, accepted=True, probability=0.99),), source="party.jpg")
    assert answer.name == "ada"
    assert answer.best.probability == 0.99
    assert dict(answer.info) == {}
