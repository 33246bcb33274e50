"""Collect only the test files here, and no doctests: the other modules are programs for `make attack`."""

import pathlib

collect_ignore = [path.name for path in pathlib.Path(__file__).parent.glob("*.py") if not path.name.startswith("test_")]
