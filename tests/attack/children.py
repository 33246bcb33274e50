"""Run cases in forked workers, and detect the cases that crash, hang or exhaust their worker."""

import contextlib
import faulthandler
import io
import json
import os
import pathlib
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

CPU_SECONDS = 60.0  # per case; the alarm counts CPU time, so a busy machine does not matter
MEMORY = 4 << 30  # bytes of address space beyond what the worker has at its start


def each(
    cases: Sequence[Any], work: Callable[[Any], dict[str, Any]], cpu: float = CPU_SECONDS
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield ``(case, answer)`` for every case, computed in a forked worker. A new worker replaces one that dies.

    If a case kills its worker, the answer is ``{"died": signal name or exit status}``. If it computes for more than
    ``cpu`` seconds, the answer is ``{"died": "SIGPROF"}``.
    """
    start = 0
    while start < len(cases):
        read_end, write_end = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.close(read_end)
            _serve(cases[start:], work, write_end, cpu)
        os.close(write_end)
        with os.fdopen(read_end, encoding="utf-8") as answers:
            for line in answers:
                if line.endswith("\n"):
                    yield cases[start], json.loads(line)
                    start += 1
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if start < len(cases) and status != 0:
            yield cases[start], {"died": signal.Signals(-status).name if status < 0 else f"status {status}"}
            start += 1


def command(arguments: Sequence[str]) -> dict[str, Any]:
    """Run a command in this process. Return ``status``, ``out``, ``err``, and ``traceback`` of an uncaught error."""
    from hypersphere.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    status: Any = None
    trace = ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(arguments)
        except SystemExit as end:
            status = end.code
        except BaseException:
            trace = traceback.format_exc()
    return {"status": status, "out": out.getvalue()[-4000:], "err": err.getvalue()[-4000:], "traceback": trace[-4000:]}


def sentence(answer: dict[str, Any]) -> str | None:
    """Return what is wrong with the answer of a command, or None. The command may succeed or refuse."""
    if "died" in answer:
        return f"died: {answer['died']}"
    if answer["traceback"]:
        return answer["traceback"].strip()[-700:]
    if answer["status"] not in (0, 1, 2):
        return f"status {answer['status']}"
    if answer["status"] and "Traceback (most recent call last)" in answer["err"]:
        return answer["err"][-700:]
    if answer["status"] and not answer["err"].strip():
        return f"status {answer['status']} without a word"
    return None


def _serve(cases: Sequence[Any], work: Callable[[Any], dict[str, Any]], pipe: int, cpu: float) -> None:
    with contextlib.suppress(ValueError, OSError):
        size = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()  # the parent reports a worker that dies
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)  # hides what C libraries print
    with os.fdopen(pipe, "w", encoding="utf-8") as answers:
        for case in cases:
            signal.setitimer(signal.ITIMER_PROF, cpu)
            answer = work(case)
            signal.setitimer(signal.ITIMER_PROF, 0)
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    os._exit(0)
