"""Run one short demo and check its results, printed text and files."""

import contextlib
import io
import shlex

import pytest
from PIL import Image

from hypersphere.cli import main as cli
from hypersphere.cli.demo import demo_page, demonstration, four_heads, letter_gallery
from hypersphere.cli.demo.demonstration import demonstrate
from hypersphere.recognition import Gallery

HEAD = "CosFace"


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Run a demo of a few steps with one head on the command line. Return its results and printed text."""
    folder, made, printed = tmp_path_factory.mktemp("demo"), [], io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(four_heads, "HEADS", {HEAD: four_heads.HEADS[HEAD]})
        patch.setattr(letter_gallery, "TRAINED", ("greek",))
        patch.setattr(letter_gallery, "FIT", (*letter_gallery.FIT, "backbone=sphereface4", "backbone.width=0.1"))
        patch.setattr(
            demonstration, "demonstrate", lambda *given, **more: made.append(demonstrate(*given, **more)) or made[0]
        )
        assert cli.main(["demo", "--epochs", "1", "--steps", "2", "-o", str(folder)]) == 0
    return made[0], printed.getvalue()


@pytest.fixture
def done(shown):
    return shown[0]


def test_the_picture_of_the_answers_is_drawn(done):
    with Image.open(done.folder / "letters.png") as picture:
        assert picture.size == (1080, 468)
        assert len(picture.convert("RGB").getcolors(1 << 20)) > 100


def test_the_command_shows_every_step_and_ends_with_its_page(shown):
    done, printed = shown
    for word in ("hypersphere fit", "rank-1", "EER", "gallery enrol", "new", "strangers", HEAD):
        assert word in printed
    assert printed.splitlines()[-1].endswith(str(done.folder / "report.html"))


def test_the_report_is_about_unseen_letters_only(done):
    letters = {path.name for part in ("strangers", "new") for path in (done.folder / part).iterdir()}
    assert done.run.metrics["identities"] == len(letters)


def test_the_gallery_gives_the_same_answers_again(done):
    answers, _, calibration = letter_gallery.identify_letters(done.folder, done.run.embedder)
    assert answers == done.answers
    assert calibration == done.calibration


def test_the_gallery_holds_the_georgian_letters(done):
    with Gallery(done.folder / "known.db", create=False) as gallery:
        assert set(gallery.list().values()) == {letter_gallery.TEMPLATES}
        assert all(name.startswith("georgian") for name in gallery.list())
        assert gallery.calibrations["fpir"].threshold == done.calibration.threshold


def test_heads_and_pages(done):
    assert [head.name for head in done.heads] == [HEAD]
    assert done.page == done.folder / "report.html"
    assert "Known and unknown letters" in done.page.read_text()
    assert done.heads_page.is_file()


def test_the_commands_on_the_page_do_what_the_page_says(done, capsys):
    for line in demo_page.list_commands(done.folder)[1:]:
        assert line in done.page.read_text()
        assert cli.main(shlex.split(line)[1:]) == 0
    answers = capsys.readouterr().out.splitlines()[-2:]
    assert ["/new/georgian-" in answers[0], "/new/armenian-" in answers[1]] == [True, True]


def test_refuses(tmp_path):
    with pytest.raises(ValueError, match="epochs must be an integer ≥ 1"):
        demonstrate(tmp_path / "x", epochs=0)
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_the_whole_demo_names_and_rejects(tmp_path):
    whole = demonstrate(tmp_path)
    known, strangers = whole.answers
    assert known.right > 0.75 * known.pictures
    assert known.wrong < 0.06 * known.pictures
    assert strangers.unknown > 0.8 * strangers.pictures
    assert float(whole.run.report.eer) < min(baseline.eer for baseline in whole.run.baselines)
    assert [head.name for head in whole.heads] == list(four_heads.HEADS)
