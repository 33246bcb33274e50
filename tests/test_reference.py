"""Every public name has a docstring and an entry in the reference."""

import importlib
import importlib.util
import inspect
import pathlib
import re
import subprocess
import sys
import types

import pytest

import hypersphere

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "reference"
ENTRY = re.compile(r"^::: (hypersphere[\w.]*)$", re.MULTILINE)
OUTSIDE = {"cli", "_extras", "__main__"}  # the command line and internal modules: users call nothing there


def packages():
    folder = pathlib.Path(hypersphere.__file__).parent
    found = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    return sorted(found - OUTSIDE - {"__init__"})


def described():
    """Return the modules that some page of the reference describes."""
    return {name for page in PAGES.glob("*.md") for name in ENTRY.findall(page.read_text(encoding="utf-8"))}


def exported(name):
    """Return the public names of a module with their values, without submodules."""
    module = importlib.import_module(name)
    own = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == name]
    names = getattr(module, "__all__", [key for key in own if not key.startswith("_")])
    return {key: getattr(module, key) for key in names if key != "__version__"}


@pytest.mark.parametrize("package", packages())
def test_every_package_has_a_page_that_is_listed(package):
    assert f"::: hypersphere.{package}\n" in (PAGES / f"{package}.md").read_text(encoding="utf-8")
    assert f"({package}.md)" in (PAGES / "index.md").read_text(encoding="utf-8")
    assert f"reference/{package}.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(described() - {"hypersphere"}))
def test_modules_that_a_described_one_exports_are_described_too(name):
    entries = described()
    shown = {id(value) for entry in entries for value in exported(entry).values()}
    for key, value in exported(name).items():
        if isinstance(value, types.ModuleType) and value.__name__ not in entries:
            hidden = [inner for inner, part in exported(value.__name__).items() if id(part) not in shown]
            assert "recipes.chapter" in value.__name__ or not hidden, f"{name}.{key}: no page describes {hidden}"


def test_names_at_the_top_are_described_by_their_packages():
    shown = {id(value) for entry in described() - {"hypersphere"} for value in exported(entry).values()}
    for name, value in exported("hypersphere").items():
        assert isinstance(value, types.ModuleType) or id(value) in shown, (
            f"no package's page describes hypersphere.{name}"
        )


@pytest.mark.parametrize("name", sorted(described()))
def test_every_public_class_and_function_has_a_docstring_of_its_own(name):
    bare = [
        key
        for key, value in exported(name).items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and not (value.__doc__ or "").strip()
    ]
    assert not bare


def without_example(name):
    """Return the public classes and functions of a module whose docstring has no example."""
    return {
        f"{value.__module__}.{value.__qualname__}"
        for value in exported(name).values()
        if (inspect.isclass(value) or inspect.isfunction(value)) and ">>>" not in (value.__doc__ or "")
    }


@pytest.mark.parametrize("name", sorted(described()))
def test_every_public_class_and_function_has_an_example(name):
    assert without_example(name) == set()


def test_examples_of_every_page_stand_in_fences():
    for page in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")]:
        fenced = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            fenced ^= line.lstrip().startswith("```")
            assert fenced or not line.lstrip().startswith(">>>"), f"{page.name}:{number} would be a quotation"
        assert not fenced, f"{page.name}: a fence is left open"


def test_docstrings_become_markdown():
    pytest.importorskip("griffe", reason="needs the extra docs")
    spec = importlib.util.spec_from_file_location("markdown_docstrings", ROOT / "docs" / "markdown_docstrings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = "As :func:`~a.b.norm` and :class:`C`.\n\nArgs:\n    x: one.\n\n>>> f(1)\n2\n\nEnd."
    made = "As `norm` and `C`.\n\nArgs:\n    x: one.\n\n```python\n>>> f(1)\n2\n```\n\nEnd."
    assert module.convert_to_markdown(text) == made
    assert module.convert_to_markdown(made) == made
    assert module.convert_to_markdown(">>> f(1)\n2") == "```python\n>>> f(1)\n2\n```"


@pytest.mark.slow
def test_the_built_site_has_an_entry_for_every_public_name(tmp_path):
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in PAGES.glob("*.md"):
        html = tmp_path / "reference" / ("" if page.stem == "index" else page.stem) / "index.html"
        text = html.read_text(encoding="utf-8")
        for entry in set(ENTRY.findall(page.read_text(encoding="utf-8"))) - {"hypersphere"}:
            for name, value in exported(entry).items():
                second = getattr(value, "__name__", name) != name  # an alias of a documented name, such as ASoftmax
                if (inspect.isclass(value) or inspect.isfunction(value)) and not second:
                    assert f'id="{entry}.{name}"' in text, f"{entry}.{name} is not on its page"
        assert "&gt;&gt;&gt;</p>" not in text
        assert ":func:" not in text
        assert ":class:" not in text
