"""The folder of a run: its lock, its files, its checkpoints and its log."""

import contextlib
import datetime
import errno
import importlib.metadata
import itertools
import json
import os
import pathlib
import platform
import shutil
import socket
from collections.abc import Mapping
from typing import Any, BinaryIO

import torch

from .. import __version__
from .._extras import require
from ..config import flatten, suggest
from ..files import load_tree, remove_leftovers, replace_nonfinite, save_tree, write_json

PACKAGES = ("torch", "numpy", "accelerate", "safetensors", "scikit-learn", "scipy")
MARK = "run.json"
FORMAT = "hypersphere-run/1"
# Settings that may change when a run resumes, because they do not change the results.
FREE = ("timeout", "settings.timeout", "trackers", "settings.trackers")


class RunFolder:
    """The folder of a run: its lock, its files and its checkpoints.

    A folder belongs to one run. :meth:`open` refuses a folder that contains a run with other settings, or other files with the
    names that a run uses. A lock, which ends with the process, lets only one process write at a time. Every file of the run is
    recorded in ``run.json``, and only recorded files are ever deleted.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = pathlib.Path(path)
        self.last, self.best = self.path / "last.safetensors", self.path / "best.safetensors"
        self._lock: Any = None
        self._new: list[pathlib.Path] = []
        self.failed = False

    def open(self, document: Mapping[str, Any], *, fresh: bool = False) -> None:
        """Create and lock the folder, or check that it contains a run with the same settings.

        Args:
            document: The settings of the run.
            fresh: Delete a run that the folder contains.

        Raises:
            ValueError: If the folder cannot be written, is locked, or contains another run or other files.
        """
        existed = self.path.is_dir()
        self._new = [path for path in (self.path, *self.path.absolute().parents) if not path.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._acquire()
        except OSError as error:
            raise ValueError(f"{self.path} cannot be written: {error.strerror or error}") from error
        try:
            self._claim(document, existed, fresh)
        except BaseException:
            self.failed = True
            self.close()
            raise
        remove_leftovers(self.path, {MARK, *_read_mark(self.path)})
        self.record(MARK, "config.json", "environment.json", "events.jsonl", "log.jsonl")
        write_json(self.path / "config.json", document)
        write_json(self.path / "environment.json", environment())

    def _claim(self, document: Mapping[str, Any], existed: bool, fresh: bool) -> None:
        """Refuse another run or other files. Files are deleted only after all checks."""
        # A process that is killed between its first writes leaves run.json without config.json. Such a folder may be reused.
        has_run = (self.path / "config.json").is_file() or bool(self.checkpoints())
        if (self.path / MARK).is_file() and has_run and not fresh:
            self._compare(document)
        elif existed:
            self._refuse_other_files()
            self._delete_recorded_files()

    def close(self) -> None:
        """Release the lock. A run that ``failed`` before its first step deletes its files."""
        if self.failed and self._new:
            self._delete_recorded_files()
            (self.path / ".lock").unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # the folder contains files of another program
                for made in self._new:
                    made.rmdir()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self.failed, self._new = False, []

    def record(self, *names: str) -> None:
        """Record files, by their path inside the folder, as belonging to the run."""
        known = _read_mark(self.path)
        if any(name not in known for name in names):
            write_json(self.path / MARK, {"format": FORMAT, "files": [*dict.fromkeys([*known, *names])]})

    def checkpoint(self, state: Any, keep: int, *, replace: bool = False) -> None:
        """Write ``last.safetensors``. Older checkpoints are renamed to ``last-1.safetensors`` and so on.

        At any moment at least one checkpoint is complete.

        Args:
            state: The state to write.
            keep: Number of checkpoints to keep.
            replace: Overwrite the newest checkpoint instead of keeping it.
        """
        paths = [self.last, *(self.path / f"last-{i}.safetensors" for i in range(1, keep))]
        self.record(*(path.name for path in paths))
        pairs = [] if replace else list(itertools.pairwise(paths))
        # Files are renamed from the oldest to the newest. A process that is killed in between leaves two names of one file.
        # Everything older was renamed already, and renaming it again would lose a checkpoint.
        done = next((i for i, (newer, older) in enumerate(pairs) if _are_same_file(newer, older)), len(pairs))
        for newer, older in reversed(pairs[:done]):
            if newer.exists():
                _replace_by_link(newer, older)
        save_tree(state, self.last)

    def checkpoints(self) -> list[pathlib.Path]:
        """Return the existing checkpoints, the newest first."""
        older = sorted(self.path.glob("last-*.safetensors"), key=lambda p: int(p.stem.partition("-")[2]))
        return [path for path in (self.last, *older) if path.exists()]

    def load(self) -> Any:
        """Return the newest checkpoint. If it is damaged or missing, a ``ValueError`` names the last complete one."""
        try:
            return load_tree(self.last)
        except ValueError as error:
            for other in (path for path in self.checkpoints() if path != self.last):
                try:
                    step = load_tree(other)["step"]
                except ValueError:
                    continue
                hint = f"{other.name} of step {step} is complete: move it to {self.last.name} to continue from there"
                raise ValueError(f"{error}; {hint}") from error
            raise

    def event(self, what: str, step: int) -> None:
        """Append an event with its time to ``events.jsonl``. The log contains no times."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        with open(self.path / "events.jsonl", "a+b") as file:
            if file.tell() and not _ends_with_newline(file):
                file.write(b"\n")  # the last line was cut off, so the new event must start on a new line
            file.write((json.dumps({"event": what, "step": step, "time": now}) + "\n").encode())

    def seconds(self) -> float:
        """Return the wall time between starts and ends in ``events.jsonl``."""
        path = self.path / "events.jsonl"
        rows, times = [], []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # a kill or a full disk may cut a line off
                row = json.loads(line)
                times.append(datetime.datetime.fromisoformat(row["time"]).timestamp())
                rows.append({"event": str(row["event"])})
        begins = ("start", "resume")
        return sum(
            times[i + 1] - times[i]
            for i in range(len(rows) - 1)
            if rows[i]["event"] in begins and rows[i + 1]["event"] not in begins
        )

    def _compare(self, document: Mapping[str, Any]) -> None:
        stored = self.path / "config.json"
        try:
            there = normalize_document(json.loads(stored.read_text(encoding="utf-8")))
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            raise ValueError(f"{stored} cannot be read: {error}") from error
        changed = describe_differences(there, normalize_document(document))
        if changed:
            raise ValueError(
                f"{self.path} holds a run with other settings ({changed}): choose another folder, or start it afresh"
            )

    def _refuse_other_files(self) -> None:
        names = ("config.json", "log.jsonl", "metrics.json", "README.md")
        owned = _read_mark(self.path)
        found = [p.name for p in self.path.iterdir() if p.name in names or p.suffix == ".safetensors"]
        found = [name for name in found if name not in owned]
        if found:
            raise ValueError(
                f"{self.path} holds files of something else ({', '.join(sorted(found))}): choose an empty folder"
            )

    def _delete_recorded_files(self) -> None:
        root = self.path.resolve()
        for name in _read_mark(self.path):
            file = (self.path / name).resolve()
            if root in file.parents and file.is_file():
                file.unlink()
        pictures = self.path / "pictures"
        if pictures.is_dir() and not any(pictures.iterdir()):
            pictures.rmdir()

    def _acquire(self) -> None:
        try:
            import fcntl
        except ImportError:  # a system without this kind of lock
            return
        file = open(self.path / ".lock", "a+", encoding="utf-8")  # noqa: SIM115 - open until the run ends
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                file.close()
                raise ValueError(
                    f"{self.path} cannot be locked, so that two processes could write it: {os.strerror(error.errno or 0)}; "
                    "choose a folder on a file system with locks",
                ) from error
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise ValueError(
                f"{self.path} is being written by {holder}: wait for it, or choose another folder"
            ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        self._lock = file


def _ends_with_newline(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def environment() -> dict[str, Any]:
    """Return versions and hardware, without names of machines or users."""
    return {
        "hypersphere": __version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "packages": {package: _get_version(package) for package in PACKAGES},
    }


def stored_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the settings of the run in a folder; raise a ``ValueError`` if it contains no run."""
    file = pathlib.Path(path) / "config.json"
    if not file.is_file():
        parent = pathlib.Path(path).parent
        names = [p.name for p in parent.iterdir() if (p / MARK).exists()] if parent.is_dir() else []
        raise ValueError(f"{path} holds no run: there is no config.json in it{suggest(pathlib.Path(path).name, names)}")
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"{file} is not readable as JSON: {error}") from error


def normalize_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as a flat dictionary of JSON values, without the keys that may change when a run resumes."""
    return {key: value for key, value in flatten(json.loads(json.dumps(document))).items() if key not in FREE}


def describe_differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Describe the settings that differ. The text is empty if none differs."""
    changed = [key for key in {**there, **here} if repr(there.get(key)) != repr(here.get(key))]
    return "; ".join(f"{key} is {there.get(key)!r} there, {here.get(key)!r} here" for key in changed)


def _read_mark(folder: pathlib.Path) -> list[str]:
    try:
        content = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    files = content.get("files", []) if isinstance(content, dict) else []
    return [name for name in files if isinstance(name, str)]


def _are_same_file(first: pathlib.Path, second: pathlib.Path) -> bool:
    """Return whether two paths are links to one file, or one is a copy of the other with the same time."""
    if not (first.exists() and second.exists()):
        return False
    a, b = first.stat(), second.stat()
    return os.path.samestat(a, b) or (a.st_size, a.st_mtime_ns) == (b.st_size, b.st_mtime_ns)


def _replace_by_link(source: pathlib.Path, target: pathlib.Path) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:  # a file system without links
        shutil.copy2(source, temporary)
    os.replace(temporary, target)
    # After a kill between two links both names are the same file. Renaming then does nothing, and the temporary name remains.
    temporary.unlink(missing_ok=True)


def _get_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


class RunLog:
    """``log.jsonl`` in a folder, and a TensorBoard file if TensorBoard is installed.

    Rows contain the step and the measures, never the time, so two runs with equal results have equal logs.

    Args:
        folder: The folder of the run.
        size: Length of the log in bytes at the checkpoint from which the run resumes. Later rows are cut off, because the
            resumed run writes them again.
        step: The step from which the run resumes.

    Raises:
        ValueError: If the log is shorter than ``size``.
    """

    def __init__(self, folder: str | os.PathLike[str], size: int = 0, step: int = 0):
        self.path = pathlib.Path(folder) / "log.jsonl"
        if size and not (self.path.exists() and self.path.stat().st_size >= size):
            raise ValueError(f"{self.path} is shorter than its checkpoint says ({size} bytes): it was changed by hand")
        self._file = open(self.path, "ab")  # noqa: SIM115 - open until the run ends
        self._file.truncate(size)
        self._board = _open_board(folder, step)

    @property
    def size(self) -> int:
        """The number of bytes written to the file."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def append(self, row: dict[str, Any]) -> None:
        """Write one row, with null for numbers that are not finite. TensorBoard receives the finite numbers."""
        self._file.write((json.dumps(replace_nonfinite(row), allow_nan=False) + "\n").encode())
        self._file.flush()
        if self._board is not None:
            for key, value in row.items():
                if isinstance(value, int | float) and key != "step":
                    self._board.add_scalar(key, value, row["step"])

    def boards(self) -> list[str]:
        """Return the names of TensorBoard files in the folder."""
        return sorted(path.name for path in self.path.parent.glob("events.out.tfevents.*"))

    def close(self) -> None:
        """Write everything to disk and close the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def read_log(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the rows of the log of a run. An incomplete last line, of a killed or running process, is left out.

    >>> import tempfile
    >>> from hypersphere.training import read_log
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "log.jsonl").write_text('{"step": 1, "loss": 2.5}' + chr(10) + '{"step": 2, "lo')
    ...     read_log(folder)
    [{'step': 1, 'loss': 2.5}]
    """
    path = pathlib.Path(folder) / "log.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]] if path.exists() else []


def _open_board(folder: str | os.PathLike[str], step: int) -> Any:
    try:
        require("tensorboard")
    except ImportError:  # TensorBoard is optional
        return None
    return require("torch.utils.tensorboard").SummaryWriter(str(folder), purge_step=step + 1 if step else None)
