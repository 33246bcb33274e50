"""``hypersphere report`` on the command line."""

import os

from hypersphere.cli.main import main
from tests.report.runs_for_tests import write_run


def test_one_run_writes_into_its_folder(tmp_path, capsys):
    run = write_run(tmp_path / "run")
    assert main(["report", str(run)]) == 0
    assert (run / "report.html").is_file()
    assert str(run / "report.html") in capsys.readouterr().out


def test_several_runs_write_here_or_where_one_says(tmp_path, monkeypatch):
    runs = [str(write_run(tmp_path / name)) for name in "ab"]
    monkeypatch.chdir(tmp_path)
    assert main(["report", *runs]) == 0
    assert main(["report", *runs, "-o", "other.html"]) == 0
    assert {"report.html", "other.html"} <= set(os.listdir(tmp_path))


def test_what_is_no_run_is_one_line(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 1
    assert "holds no run" in capsys.readouterr().err
