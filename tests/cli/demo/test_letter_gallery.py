import pathlib

import numpy as np
import pytest

from hypersphere.cli.demo import letter_gallery
from hypersphere.cli.demo.letter_gallery import Probe
from hypersphere.recognition import Match


def test_every_answer_is_counted_once():
    matches = [Match("georgian-an", 0.9, True), Match("georgian-an", 0.5, False), Match("georgian-ban", 0.95, True)]
    probes = [Probe(pathlib.Path("x.png"), "georgian-an", match) for match in matches]
    assert letter_gallery._count_answers("Georgian, enrolled", probes) == ("Georgian, enrolled", 1, 3, 1, 1, 1)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("letters")
    letter_gallery.write_letters(folder)
    return folder


def test_no_letter_is_both_trained_on_and_unseen(written):
    stored = np.load(written / "letters.npz")
    train, test = (set(stored["labels"][stored["split"] == part]) for part in ("train", "test"))
    assert len(train) > 300
    assert len(test) > 95
    assert not train & test
    assert {name.partition("-")[0] for name in test} == {"georgian", "armenian"}


def test_no_stranger_takes_part_in_the_calibration(written):
    names = {part: {path.name for path in (written / part).iterdir()} for part in ("known", "strangers", "new")}
    assert not names["strangers"] & names["new"]
    assert names["known"] < names["new"]
    assert all(name.startswith("georgian") for name in names["known"])
    known, new = ({path.name for path in (written / part / "georgian-an").iterdir()} for part in ("known", "new"))
    assert len(known) == letter_gallery.TEMPLATES
    assert not known & new
