"""Settings for ``fit``, ``pretrain`` and ``train`` from a YAML, TOML or JSON file."""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from .._extras import require

CLASS_KEY = "call"  # key of a class name beside the arguments of the class, as in config.json


def add_settings_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--config`` to a command that takes ``KEY=VALUE`` settings.

    >>> parser = argparse.ArgumentParser()
    >>> add_settings_option(parser)
    >>> parser.parse_args(["--config", "settings.yaml"]).config
    'settings.yaml'
    """
    parser.add_argument(
        "--config", metavar="FILE", help="read settings from this YAML, TOML or JSON file; KEY=VALUE has precedence"
    )


def read_overrides(args: argparse.Namespace) -> list[str]:
    """Return the settings of ``--config``, followed by those of the command line.

    >>> read_overrides(argparse.Namespace(config=None, overrides=["steps=100"]))
    ['steps=100']
    """
    return [*(read_settings(args.config) if args.config else []), *args.overrides]


def read_settings(path: str) -> list[str]:
    r"""Return the settings of a file as ``key.path=value`` texts.

    Keys may be dotted or nested. A nested class is named under the key ``call``, as in the ``config.json`` of a run.

    Args:
        path: A ``.yaml``, ``.yml``, ``.toml`` or ``.json`` file.

    Raises:
        ValueError: If the file has another ending, cannot be parsed, or does not contain settings.
        OSError: If the file cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "settings.yaml")
    ...     _ = file.write_text("head: {call: ArcFace, m: 0.4}\noptimizer.lr: 0.05\nschedule.milestones: [60, 90]")
    ...     read_settings(str(file))
    ['head=ArcFace', 'head.m=0.4', 'optimizer.lr=0.05', 'schedule.milestones=60,90']
    """
    values = _parse_file(pathlib.Path(path))
    if not isinstance(values, Mapping):
        raise ValueError(f"{path} must contain settings such as `steps: 100`, got {type(values).__name__}")
    return [f"{key}={value}" for key, value in _flatten(values, "", path)]


def _parse_file(path: pathlib.Path) -> Any:
    text, ending = path.read_text(encoding="utf-8"), path.suffix.lower()
    if ending == ".toml":
        if sys.version_info < (3, 11):
            raise ValueError(f"{path}: TOML needs Python 3.11 or later; write the settings as YAML")
        import tomllib

        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{path} is not valid TOML: {error}") from None
    if ending in (".yaml", ".yml", ".json"):  # JSON is a subset of YAML
        yaml = require("yaml")
        try:
            return yaml.safe_load(text) or {}
        except yaml.YAMLError as error:
            raise ValueError(f"{path} is not valid {ending[1:].upper()}: {' '.join(str(error).split())}") from None
    raise ValueError(f"--config must be a .yaml, .toml or .json file, got {path}")


def _flatten(values: Mapping[Any, Any], prefix: str, path: str) -> Iterator[tuple[str, str]]:
    """Yield dotted keys and their values; the name of a class precedes its arguments."""
    for name, value in values.items():
        key = prefix.rstrip(".") if name == CLASS_KEY else f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _flatten(dict(sorted(value.items(), key=lambda item: item[0] != CLASS_KEY)), f"{key}.", path)
        elif isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
            yield from _flatten({str(i): entry for i, entry in enumerate(value)}, f"{key}.", path)
        else:
            yield key, _format_value(value, key, path)


def _format_value(value: Any, key: str, path: str) -> str:
    """Return a value as it is written on the command line."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(_format_value(entry, key, path) for entry in value)
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError(f"{path}: {key} must be a number, text, true, false, null or a list, got {type(value).__name__}")
