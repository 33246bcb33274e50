"""``docs/architecture.md`` agrees with the source: packages, imports, file names and the example change."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.test_package import BELOW, LAYERS, ROOT, SANCTIONED, SOURCE

PAGE = (ROOT / "docs" / "architecture.md").read_text()


def section(title):
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def fence(text, language):
    return re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)[1]


def packages():
    """Return the packages and modules directly below the library."""
    folders = {p.parent.name for p in SOURCE.glob("*/__init__.py")}
    return folders | {p.stem for p in SOURCE.glob("*.py") if p.stem not in ("__init__", "__main__")}


def test_every_package_has_a_line():
    listed = re.findall(r"^\| `(\w+)` \| (\S.*) \|$", section("Packages"), re.MULTILINE)
    assert {name for name, _ in listed} == packages()
    assert len(listed) == len(packages())


def test_the_rows_equal_the_checked_layers():
    rows = [line.split() for line in fence(section("Imports"), "text").strip().splitlines()]
    assert [sorted(row) for row in reversed(rows)] == [sorted(names.split()) for names in [BELOW, *LAYERS]]
    assert sorted(SANCTIONED) == [("objectives", "energy"), ("orthogonal", "energy")]


def test_named_files_exist():
    named = re.findall(r"`([\w/]+\.py)`", PAGE)
    assert len(re.findall(r"^\d\. `", section("Read these five files first"), re.MULTILINE)) == 5
    assert not [name for name in named if not (SOURCE / name).is_file()]


@pytest.fixture
def changed(tmp_path):
    """Copy the files that the example changes, and apply the change with git."""
    if shutil.which("git") is None:
        pytest.skip("git applies the change")
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "objectives.md", tmp_path / "docs")
    (tmp_path / "change.diff").write_text(fence(section("Example: add a margin"), "diff"))
    apply = ["git", "apply", "--unidiff-zero", "change.diff"]
    done = subprocess.run(apply, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_the_example_change_passes_its_tests(changed):
    code = """
import sys
sys.path[:0] = ["src", "."]
import doctest, torch
import hypersphere.objectives.margins.proportional as added
assert doctest.testmod(added, extraglobs={"torch": torch}) == (0, 1)
import hypersphere as hs
from hypersphere.config import find_builders
assert find_builders(hs.margins.Margin)["Proportional"] is hs.margins.Proportional
import pytest
options = ["-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--noconftest"]
sys.exit(pytest.main([*options, "tests/objectives/margins/test_proportional.py"]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=changed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
