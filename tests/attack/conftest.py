"""The modules here are programs for `make attack`; pytest collects only the tests of them, and no doctests."""

import pathlib

collect_ignore = [path.name for path in pathlib.Path(__file__).parent.glob("*.py") if not path.name.startswith("test_")]
