"""Processes for tests of galleries. They start in milliseconds: an interpreter with all imports forks them.

The interpreter reads tab-separated lines. ``run <job> <address> <log> <argument>`` answers with the process id, and
``wait <pid>`` answers with the exit status. A job writes its log line by line, so a kill leaves only whole lines.
"""

import contextlib
import importlib
import os
import subprocess
import sys


def enrol_forever(address, log, start):
    """Enroll new people with three templates each, and remove every second one. "+ i" and "- i" acknowledge this."""
    import torch

    from hypersphere.recognition import Gallery

    gallery = Gallery(address)
    for i in range(int(start), 10**9):
        gallery.enrol(f"person {i}", torch.full((3, 16), float(i + 1)))
        log(f"+ {i}")
        if i % 2:
            gallery.remove(f"person {i}")
            log(f"- {i}")


def write(address, log, name):
    """Enroll ten people of this process alone, and ten templates of each of two shared people."""
    import torch

    from hypersphere.recognition import Gallery

    with Gallery(address) as gallery:
        for i in range(10):
            gallery.enrol(f"{name} {i}", torch.full((2, 16), 1.0 + i))
            gallery.enrol(["shared", "also shared"], torch.randn(2, 16), [f"{name} {i}.png"] * 2)
        log("done")


def read(address, log, times):
    """Log the best match of a vector of ones and the number of templates per identity."""
    import torch

    from hypersphere.recognition import Gallery

    with Gallery(address, create=False) as gallery:
        for _ in range(int(times)):
            best = gallery.identify(torch.ones(1, 16), threshold=0.5)[0].best
            log(" ".join([best.identity, *map(str, gallery.list().values())]))


class Nursery:
    """Start processes and wait for them."""

    def __init__(self):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "ignore", __file__]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, job, address, log, argument):
        return int(self._ask("run", job.__name__, address, log, argument))

    def wait(self, pid):
        return int(self._ask("wait", pid))

    def close(self):
        self._process.communicate()

    def _ask(self, *words):
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


def _work(job, address, path, argument):
    descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    try:
        globals()[job](address, lambda line: os.write(descriptor, f"{line}\n".encode()), argument)
    except BaseException as error:
        os.write(descriptor, f"error {error!r}\n".encode())
        os._exit(1)
    os._exit(0)


def _serve():
    import torch

    from hypersphere.recognition.stores import postgres_store, sqlite_templates  # noqa: F401

    for module in ("psycopg", "pgvector.psycopg"):  # so that children do not import them again
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    torch.set_num_threads(1)
    sqlite_templates.MIN_REMOVED_FOR_COMPACTION = 4  # so that kills also hit compactions
    for line in sys.stdin:
        command, *words = line.rstrip("\n").split("\t")
        if command == "run":
            pid = os.fork()
            if pid == 0:
                _work(*words)
            print(pid, flush=True)
        else:
            print(os.waitstatus_to_exitcode(os.waitpid(int(words[0]), 0)[1]), flush=True)


if __name__ == "__main__":
    _serve()
