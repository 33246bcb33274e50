import pytest

from hypersphere.data import MissingDataError
from studies.liu2020 import CLAIMS, claims, report, runner
from studies.liu2020 import __main__ as command
from studies.liu2020.__main__ import main

from .tiny import claim


@pytest.fixture
def tiny(monkeypatch):
    for module in (claims, command, report):
        monkeypatch.setattr(module, "CLAIMS", {"tiny": claim(tuned=False)})


def test_the_list_names_every_claim(capsys, tmp_path):
    assert main(["--list", "--results", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert all(id in shown for id in CLAIMS)
    assert "0 runs" in shown


@pytest.mark.untyped  # passes an invalid size
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "there is no claim 'nonsense'; there are theory, one-shot, imbalance"),
        (["opt", "--size", "huge"], "size must be one of laptop, paper"),
    ],
)
def test_a_wrong_id_or_size_is_one_line(arguments, message, capsys, tmp_path):
    assert main([*arguments, "--results", str(tmp_path), "--runs", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err


def test_it_runs_prints_measured_beside_published_and_reports(tiny, capsys, tmp_path):
    places = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    assert main(["tiny", "--seeds", "2", "--threads", "1", *places]) == 0
    shown = capsys.readouterr()
    assert "softmax: 90.0; margin: N/C" in shown.out
    assert "**Measured.**" in shown.out
    assert "tiny b/margin, seed 1: accuracy" in shown.err
    assert main(["--report", "--output", str(tmp_path), *places]) == 0
    assert str(tmp_path / "README.md") in capsys.readouterr().out
    assert (tmp_path / "pages" / "tiny.png").exists()


def test_a_pilot_prints_what_it_found_and_is_in_the_report(tiny, capsys, tmp_path):
    places = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    assert main(["tiny", "--only", "a/*", "--threads", "1", *places, "--pilot", "steps=2"]) == 0
    assert capsys.readouterr().out.startswith("tiny pilot a/softmax, steps=2: accuracy")
    assert main(["--report", "--output", str(tmp_path), *places]) == 0
    assert "| steps=2 | a/softmax |" in (tmp_path / "pages" / "tiny.md").read_text(encoding="utf-8")


def test_what_is_missing_of_every_claim_is_run_and_reported(tiny, capsys, tmp_path):
    places = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs"), "--output", str(tmp_path)]
    assert main(["--missing", "--threads", "1", *places]) == 0
    assert "tiny b/margin, seed 2: accuracy" in capsys.readouterr().err
    assert "| 6 | " in (tmp_path / "README.md").read_text(encoding="utf-8")
    assert main(["--missing", *places]) == 0
    assert capsys.readouterr().err == ""


def test_a_claim_without_its_data_does_not_stop_the_others(tiny, monkeypatch, capsys, tmp_path):
    def absent(*_, **__):
        raise MissingDataError("it is nowhere")

    for module in (command, report):
        monkeypatch.setattr(module, "CLAIMS", {"tiny": claim(tuned=False), "other": claim(tuned=False)})
    monkeypatch.setattr(runner, "reproduce", absent)
    assert main(["--missing", "--results", str(tmp_path), "--output", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("it is nowhere") == 2
    assert (tmp_path / "README.md").exists()


def test_one_thing_must_be_asked_for(capsys):
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    assert "--list" in capsys.readouterr().err
