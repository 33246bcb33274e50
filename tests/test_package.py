"""Properties of the whole package: it is light to import, and imports go one way."""

import ast
import importlib
import pathlib
import subprocess
import sys

import pytest

import hypersphere

ROOT = pathlib.Path(__file__).parent.parent
SOURCE = ROOT / "src" / "hypersphere"
PARTS = "objectives operators energy orthogonal"
BELOW = "_extras files collectives"  # every package may use these
LAYERS = [
    "config",
    "geometry",
    "angular",
    "neurons",
    PARTS,
    "models",
    "data",
    "plots",
    "evaluation",
    "recognition",
    "training",
    "report",
    "recipes",
    "cli",
]
# Allowed imports between the four parts: Part III's solver refines Part IV's fixed neurons and Part I's prototypes.
SANCTIONED = {("orthogonal", "energy"), ("objectives", "energy")}


def modules():
    return sorted(SOURCE.rglob("*.py"))


def test_import_needs_only_the_core_dependencies():
    heavy = ["scipy", "sklearn", "matplotlib", "PIL", "accelerate", "tyro", "rich", "h5py", "beartype", "pandas"]
    code = f"import sys, torch; old = set(sys.modules); import hypersphere; print([m for m in {heavy} if m in set(sys.modules) - old])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "code",
    [
        "import hypersphere",
        "from hypersphere.cli.main import main; main([])",
        "from hypersphere.cli.main import main; main(['--version'])",
    ],
)
def test_no_torch_before_it_is_used(code):
    quiet = (
        "import contextlib, io, sys\nwith contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
    )
    script = f"{quiet}    {code}\nprint([m for m in ('torch', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_type_checkers_see_the_names_that_are_imported_when_used():
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {(node.module, alias.name) for node in block.body for alias in node.names}
    lazy = {(None, name) for name in hypersphere._PACKAGES}
    lazy |= {(package, name) for name, package in hypersphere._PACKAGE_OF.items()}
    assert seen == lazy
    assert {name for _, name in seen} | {"__version__"} == set(hypersphere.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'ArcFacee'"):
        _ = hypersphere.ArcFacee


def test_everything_exported_is_there():
    for name in hypersphere.__all__:
        assert getattr(hypersphere, name) is not None


def imported_parts(path, text=None):
    """Yield the top-level parts of this package that a file imports, absolutely or relatively."""
    package = ["hypersphere", *path.relative_to(SOURCE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text() if text is None else text)):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            target = [*base, *(node.module.split(".") if node.module else [])]
            if target[:1] == ["hypersphere"]:
                yield from [target[1]] if len(target) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("hypersphere."))
        elif isinstance(node, ast.Call) and _called(node.func) in ("import_module", "__import__", "require"):
            name = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
            level = len(name) - len(name.lstrip("."))
            target = [
                *(package[: len(package) - level + 1] if level else []),
                *filter(None, name.lstrip(".").split(".")),
            ]
            yield from target[1:2] if target[:1] == ["hypersphere"] else ()


def _called(function):
    return getattr(function, "attr", getattr(function, "id", ""))


def test_imports_written_as_strings_are_seen(tmp_path):
    path = SOURCE / "training" / "made_up.py"
    written = (
        'import importlib\nimportlib.import_module("hypersphere.report")\nimportlib.import_module("..cli", __package__)'
    )
    assert list(imported_parts(path, written)) == ["report", "cli"]


def test_imports_flow_one_way():
    level = {name: i for i, names in enumerate([BELOW, *LAYERS]) for name in names.split()}
    against = []
    for path in modules():
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if part in ("__init__", "__main__"):
            continue  # the top level re-exports names of all packages
        against += [
            f"{path.relative_to(SOURCE)} of {part} imports {other}"
            for other in imported_parts(path)
            if other in level and other != part and (part, other) not in SANCTIONED and level[other] >= level[part]
        ]
    assert against == []


def test_every_file_has_its_test():
    tests = {p.name for p in (ROOT / "tests").rglob("test_*.py")}
    missing = [
        p for p in modules() if not p.name.startswith("_") and p.name != "__init__.py" and f"test_{p.name}" not in tests
    ]
    assert not missing


def test_no_public_module_is_shadowed_by_a_name_of_its_package():
    """``from .search import search`` would hide a module ``search``, so that module is called ``_search``."""
    shadowed = []
    for init in SOURCE.rglob("__init__.py"):
        folder = init.parent
        package = importlib.import_module(".".join(["hypersphere", *folder.relative_to(SOURCE).parts]))
        children = [path.stem for path in folder.glob("*.py")] + [
            path.parent.name for path in folder.glob("*/__init__.py")
        ]
        shadowed += [
            f"{package.__name__}.{name}"
            for name in children
            if not name.startswith("_") and not isinstance(getattr(package, name, sys), type(sys))
        ]
    assert shadowed == []
