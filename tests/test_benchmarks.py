"""Every name that the benchmarks use exists in the package. The tests do not run the benchmarks."""

import ast
import importlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
SCRIPTS = [*sorted((ROOT / "benchmarks").glob("*.py")), *sorted((ROOT / "tools").glob("*.py"))]


def list_missing_names(script):
    tree = ast.parse(script.read_text(encoding="utf-8"))
    missing, modules = [], {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("hypersphere", "studies"):
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    try:
                        importlib.import_module(f"{node.module}.{alias.name}")
                    except ModuleNotFoundError:
                        missing.append(f"{node.module}.{alias.name}")
                        continue
                value = getattr(module, alias.name)
                if isinstance(value, type(ast)):
                    modules[alias.asname or alias.name] = value
        if isinstance(node, ast.ImportFrom) and (local := script.parent / f"{node.module}.py").exists():
            names = {name.id for name in ast.walk(ast.parse(local.read_text())) if isinstance(name, ast.Name)}
            names |= {item.name for item in ast.parse(local.read_text()).body if hasattr(item, "name")}
            missing += [f"{node.module}.{alias.name}" for alias in node.names if alias.name not in names]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            missing += [f"{node.value.id}.{node.attr}"] if module is not None and not hasattr(module, node.attr) else []
    return missing


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_names_exist(script):
    assert list_missing_names(script) == []
