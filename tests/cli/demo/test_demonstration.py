"""One short demonstration, looked at from all sides."""

import contextlib
import io
import shlex

import pytest

from hypersphere.cli import main as cli
from hypersphere.cli.demo import demo_page, demonstration, digit_gallery, four_heads
from hypersphere.cli.demo.demonstration import demonstrate
from hypersphere.recognition import Gallery

HEAD = "CosFace"


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A demonstration of a few steps with one head by the command line: what it leaves, and what it prints."""
    folder, made, printed = tmp_path_factory.mktemp("demo"), [], io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(four_heads, "HEADS", {HEAD: four_heads.HEADS[HEAD]})
        patch.setattr(digit_gallery, "FIT", (*digit_gallery.FIT[:2], "steps=10", "threads=1"))
        patch.setattr(
            demonstration, "demonstrate", lambda *given, **more: made.append(demonstrate(*given, **more)) or made[0]
        )
        assert cli.main(["demo", "--epochs", "1", "-o", str(folder)]) == 0
    return made[0], printed.getvalue()


@pytest.fixture
def done(shown):
    return shown[0]


def test_the_command_shows_the_road_and_ends_with_its_page(shown):
    done, printed = shown
    for word in ("hypersphere fit", "rank-1", "EER", "gallery enrol", "new stranger", HEAD):
        assert word in printed
    assert printed.splitlines()[-1].endswith(str(done.folder / "report.html"))


def test_the_folder_holds_what_the_commands_name(done):
    train, test = done.folder / "pictures" / "train", done.folder / "pictures" / "test"
    assert sorted(p.name for p in train.iterdir()) == list("0123456")
    assert sorted(p.name for p in test.iterdir()) == list("789")
    assert len(list((done.folder / "pictures").rglob("*.png"))) == 1442
    assert len(list((done.folder / "new").rglob("*.png"))) == 355


def test_the_report_is_about_the_strangers_only(done):
    assert len(done.run.report.labels) == 428
    assert done.run.metrics["identities"] == 3


def test_the_gallery_says_the_same_when_it_is_asked_again(done):
    answers, _, threshold = digit_gallery.ask_gallery(done.folder, done.run.embedder)
    assert answers == done.answers
    assert threshold == done.threshold


def test_the_gallery_stays_and_knows_seven(done):
    with Gallery(done.folder / "known.db", create=False) as gallery:
        assert gallery.list() == dict.fromkeys("0123456", 20)
        assert gallery.calibrations["fpir"].threshold == done.threshold


def test_heads_and_pages(done):
    assert [head.name for head in done.heads] == [HEAD]
    assert done.page == done.folder / "report.html"
    assert "Who is this?" in done.page.read_text()
    assert done.heads_page.is_file()


def test_the_commands_on_the_page_do_what_they_say(done, capsys):
    for line in demo_page.commands(done.folder, done.threshold):
        assert line in done.page.read_text()
        assert cli.main(shlex.split(line)[1:]) == 0
    answers = capsys.readouterr().out.splitlines()[-2:]
    assert [answer.split("\t")[0] for answer in answers] == [
        str(done.folder / "new" / digit / "001.png") for digit in "39"
    ]


def test_refuses(tmp_path):
    with pytest.raises(ValueError, match="epochs must be an integer ≥ 1"):
        demonstrate(tmp_path / "x", epochs=0)
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_the_whole_one_names_and_rejects(tmp_path):
    whole = demonstrate(tmp_path)
    known = [row for row in whole.answers if row.role == "enrolled"]
    strangers = [row for row in whole.answers if row.role != "enrolled"]
    assert sum(row.right for row in known) > 0.85 * sum(row.pictures for row in known)
    assert sum(row.wrong for row in known) < 0.03 * sum(row.pictures for row in known)
    assert sum(row.unknown for row in strangers) > 0.7 * sum(row.pictures for row in strangers)
    assert [head.name for head in whole.heads] == list(four_heads.HEADS)
