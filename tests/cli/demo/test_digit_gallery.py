from hypersphere.cli.demo import digit_gallery
from hypersphere.cli.demo.digit_gallery import Probe
from hypersphere.recognition import Match


def test_every_answer_is_counted_once():
    said = [Match("3", 0.9, True), Match("3", 0.5, False), Match("5", 0.95, True)]
    probes = [Probe(i, "3", match) for i, match in enumerate(said)] + [Probe(3, "8", said[0])]
    assert digit_gallery._counted("3", probes) == ("3", "enrolled", 3, 1, 1, 1)
    assert digit_gallery._counted("8", probes) == ("8", "stranger", 1, 0, 1, 0)
    assert digit_gallery._counted("9", probes) == ("9", "new stranger", 0, 0, 0, 0)


def test_nobody_is_both_known_and_a_stranger():
    assert sorted(digit_gallery.KNOWN + digit_gallery.STRANGERS) == list("0123456789")
    assert set(digit_gallery.SHOWN_BEFORE) < set(digit_gallery.STRANGERS)
