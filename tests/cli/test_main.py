import argparse
import subprocess
import sys

import pytest

import hypersphere
from hypersphere.cli import main as cli


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "hypersphere", *arguments], capture_output=True, text=True, check=False
    )


def test_version_and_help(capsys):
    for option, text in ((["--version"], f"hypersphere {hypersphere.__version__}"), (["--help"], "demo"), ([], "demo")):
        with pytest.raises(SystemExit) as stop:
            cli.main(option)
        assert stop.value.code == 0
        assert text in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"]])
def test_a_wrong_command_line_is_exit_two(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert "usage: hypersphere" in capsys.readouterr().err


def test_an_unknown_command_is_answered_with_the_nearest(capsys):
    with pytest.raises(SystemExit):
        cli.main(["galery", "list"])
    error = capsys.readouterr().err
    assert "there is no command galery; did you mean gallery? `hypersphere --help` lists the commands" in error


def test_every_help_ends_with_an_example(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # so that no example is wrapped
    parser, _ = cli.build_parser(cli.COMMANDS)
    assert parser.format_help().splitlines()[-1].startswith("example: hypersphere ")

    def list_parsers(parser):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for inner in action.choices.values():
                    yield inner
                    yield from list_parsers(inner)

    for inner in list_parsers(parser):
        example = inner.format_help().splitlines()[-1]
        assert example.startswith("example: ")
        assert inner.prog.replace("enroll", "enrol") in example


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


def test_a_reader_that_has_had_enough_is_no_error():
    line = [sys.executable, "-m", "hypersphere.cli.main", "train", "--keys", "lsoftmax-mnist", "--size", "smoke"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141  # 128 + SIGPIPE


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "not enough memory: out of memory"),
        (
            RuntimeError("[enforce fail at a.cpp] . DefaultCPUAllocator: can't allocate memory"),
            "DefaultCPUAllocator: can't allocate memory",
        ),
        (
            OSError(28, "x cannot be written: No space left on device"),
            "hypersphere demo: x cannot be written: No space left on device",
        ),
        (PermissionError(13, "Permission denied", "/a/b"), "hypersphere demo: /a/b: Permission denied"),
    ],
)
def test_what_the_system_refuses_is_one_sentence(error, said, monkeypatch, capsys):
    from hypersphere.cli import demo

    def fail(args):
        raise error

    monkeypatch.setattr(demo, "run", fail)
    assert cli.main(["demo"]) == 1
    assert said in capsys.readouterr().err.strip()


def test_a_bug_is_not_hidden(monkeypatch):
    from hypersphere.cli import demo

    def fail(args):
        raise RuntimeError("a bug")

    monkeypatch.setattr(demo, "run", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["demo"])
