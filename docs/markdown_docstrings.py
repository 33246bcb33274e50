"""Convert docstrings to Markdown for the reference: examples in fences, Sphinx roles as plain code.

mkdocs passes this file to griffe (``extensions`` in ``mkdocs.yml``); the source is not changed.
"""

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:func|class|meth|mod|data|attr|obj):`(~?)([^`]+)`")


def convert_to_markdown(text: str) -> str:
    """Put ``>>>`` examples into Python fences, and replace roles such as ``:func:`name``` by ``name`` as code.

    A fence has the indentation of its example, so that sections of arguments are still recognized.
    """
    text = ROLE.sub(lambda found: f"`{found[2].rsplit('.', 1)[-1] if found[1] else found[2]}`", text)
    lines: list[str] = []
    example = fenced = False
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("```"):
            fenced = not fenced
        if bare.startswith(">>>") and not example and not fenced:
            indent = line[: len(line) - len(line.lstrip())]
            lines += ([""] if lines and lines[-1].strip() else []) + [f"{indent}```python"]
            example = True
        if example and not bare:
            lines.append(f"{indent}```")
            example = False
        lines.append(line)
    if example:
        lines.append(f"{indent}```")
    return "\n".join(lines)


class MarkdownDocstrings(griffe.Extension):
    """Converts every docstring that griffe reads, and resolves functions that have the name of a file."""

    def on_object(self, *, obj: griffe.Object, **options: Any) -> None:
        """Convert the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = convert_to_markdown(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **options: Any) -> None:
        """Add aliases for exported functions that have the name of a file."""
        modules = [pkg]
        while modules:
            module = modules.pop()
            modules += [inner for inner in module.modules.values() if not inner.is_alias]
            for name in map(str, module.exports or ()):
                found = resolve_import(pkg, module, name)
                if found is not None and not found.is_module and module.members[name].is_module:
                    module.members[f"{name}()"] = griffe.Alias(name, found, parent=module)  # the file keeps its own key


def resolve_import(pkg: griffe.Module, module: griffe.Module, name: str) -> griffe.Object | None:
    """Resolve a name as Python does: after ``from .merge import merge``, ``merge`` is the function, not the file."""
    path = module.imports.get(name)
    if path is None or path == f"{module.path}.{name}":
        found = module.members.get(name)
        return found if isinstance(found, griffe.Object) else None
    owner, _, last = path.removeprefix(f"{pkg.path}.").rpartition(".")
    parent = pkg[owner] if path.startswith(f"{pkg.path}.") and owner else None
    return resolve_import(pkg, parent, last) if isinstance(parent, griffe.Module) else None
