"""Wheel and sdist are built, installed into a clean environment, and used and tested from there."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
METADATA = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def run(*command, folder, **environment):
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "HYPERSPHERE_DATA")}
    options = {"cwd": folder, "env": {**clean, "OMP_NUM_THREADS": "1", **environment}, "timeout": 1500}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the folder with the sdist and the wheel, which is built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, folder=ROOT)
    return folder


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    assert "hypersphere/__init__.py" in names
    assert "hypersphere/py.typed" in names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"hypersphere"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_installed_into_a_clean_environment_it_works_and_its_own_tests_pass(built, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "venv", folder=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    wheel = next(built.glob("*.whl"))
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
    run(*pip, f"{wheel}[train,export]", "pytest", "beartype", "hypothesis", folder=tmp_path)
    where = run(python, "-c", "import hypersphere; print(hypersphere.__file__)", folder=tmp_path)
    assert str(tmp_path / "venv") in where  # the installed package, not the source
    command = tmp_path / "venv" / "bin" / "hypersphere"
    assert re.match(r"hypersphere \d", run(command, "--version", folder=tmp_path))
    few = ["steps=2", "evaluate_every=2", "threads=1", "pictures=false", "samples.measured=50"]
    run(command, "train", "lsoftmax-mnist", "--size", "smoke", "-o", "run", *few, folder=tmp_path)
    assert "conv1" in run(command, "energy", "run/model.safetensors", folder=tmp_path)
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        sdist.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    tests = ["tests/test_files.py", "tests/objectives/margins", "tests/geometry"]
    said = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests, folder=source)
    assert re.search(r"\d{2,} passed", said)


def test_every_dependency_has_a_lower_bound():
    base = re.search(r"^dependencies = \[(.*?)\]", METADATA, re.MULTILINE | re.DOTALL)[1]
    used = re.search(r"\[project.optional-dependencies\](.*?)^docs = ", METADATA, re.MULTILINE | re.DOTALL)[1]
    names = re.findall(r'"([^"]+)"', base + re.sub(r"^\s*#.*$", "", used, flags=re.MULTILINE))
    assert len(names) > 15
    assert [name for name in names if ">=" not in name] == []


def test_the_classifiers_are_the_tested_versions():
    """The classifiers list exactly the tested Python version of CONTRIBUTING.md."""
    listed = re.findall(r"Programming Language :: Python :: (3\.\d+)", METADATA)
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tested = re.search(r"Python (3\.\d+) only", page)[1]
    assert listed == [tested]
    assert 'requires-python = ">=3.10"' in METADATA
