"""Processes for tests of galleries: one interpreter that has imported everything forks them in milliseconds.

It reads lines ``run <job> <address> <log> <argument>``, parted by tabs, and answers with the process's number; ``wait
<number>`` answers with its status. A job writes one line at a time to its log, so that a kill leaves whole lines.
"""

import contextlib
import importlib
import os
import subprocess
import sys


def enrol_forever(address, log, start):
    """Enroll three templates of ever new people; remove every other one again. "+ i" and "- i" are acknowledgements."""
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
    """Enroll ten people that only this process enrolls, and ten templates of a shared person."""
    import torch

    from hypersphere.recognition import Gallery

    with Gallery(address) as gallery:
        for i in range(10):
            gallery.enrol(f"{name} {i}", torch.full((2, 16), 1.0 + i))
            gallery.enrol(["shared", "also shared"], torch.randn(2, 16), [f"{name} {i}.png"] * 2)
        log("done")


def read(address, log, times):
    """Say what is there: the best match of ones, and the number of templates of everyone."""
    import torch

    from hypersphere.recognition import Gallery

    with Gallery(address, create=False) as gallery:
        for _ in range(int(times)):
            best = gallery.identify(torch.ones(1, 16), threshold=0.5)[0].best
            log(" ".join([best.identity, *map(str, gallery.list().values())]))


class Nursery:
    """Starts and awaits processes."""

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

    for module in ("psycopg", "pgvector.psycopg"):  # the children need not import them again
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    torch.set_num_threads(1)
    sqlite_templates.MIN_REMOVED_FOR_COMPACTION = 4  # so that compactions are among what is killed
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
