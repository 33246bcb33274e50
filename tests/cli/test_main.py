import subprocess
import sys

import pytest

import hypersphere
from hypersphere.cli import main as cli


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "hypersphere.cli.main", *arguments], capture_output=True, text=True, check=False
    )


def test_version_and_help(capsys):
    for option, text in (("--version", f"hypersphere {hypersphere.__version__}"), ("--help", "demo")):
        with pytest.raises(SystemExit) as stop:
            cli.main([option])
        assert stop.value.code == 0
        assert text in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["--nonsense"]])
def test_a_wrong_command_line_is_exit_two(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert "usage: hypersphere" in capsys.readouterr().err


def test_every_command_has_its_module_and_help(capsys):
    for name in cli.COMMANDS:
        with pytest.raises(SystemExit) as stop:
            cli.main([name, "--help"])
        assert stop.value.code == 0
        assert f"hypersphere {name}" in capsys.readouterr().out


def test_a_user_error_is_one_line_and_exit_one(monkeypatch, capsys):
    from hypersphere.cli import demo

    def fail(args):
        raise ValueError("seeds must be ≥ 1, got 0")

    monkeypatch.setattr(demo, "run", fail)
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().err == "hypersphere demo: seeds must be ≥ 1, got 0\n"


def test_as_a_process():
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.strip() == f"hypersphere {hypersphere.__version__}"
