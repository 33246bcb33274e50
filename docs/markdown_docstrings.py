"""Makes Markdown of docstrings for the reference: examples in fences, roles of Sphinx as plain code.

mkdocs gives this file to griffe (``extensions`` in ``mkdocs.yml``); the docstrings themselves stay as they are.
"""

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:func|class|meth|mod|data|attr|obj):`(~?)([^`]+)`")


def convert_to_markdown(text: str) -> str:
    """The docstring with ``>>>`` examples in fences of Python and ``:func:`name``` as ``name`` in code.

    A fence stays at the indentation of its example, so that sections of arguments are still found.
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
    """Rewrites every docstring that griffe reads, and finds functions behind files of the same name."""

    def on_object(self, *, obj: griffe.Object, **options: Any) -> None:
        """Called once for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = convert_to_markdown(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **options: Any) -> None:
        """Called when the whole package has been read."""
        modules = [pkg]
        while modules:
            module = modules.pop()
            modules += [inner for inner in module.modules.values() if not inner.is_alias]
            for name in map(str, module.exports or ()):
                found = resolve_import(pkg, module, name)
                if found is not None and not found.is_module and module.members[name].is_module:
                    module.members[f"{name}()"] = griffe.Alias(name, found, parent=module)  # the file keeps its own key


def resolve_import(pkg: griffe.Module, module: griffe.Module, name: str) -> griffe.Object | None:
    """What a module means by a name, also where a file has the same one: ``from .merge import merge`` is the function."""
    path = module.imports.get(name)
    if path is None or path == f"{module.path}.{name}":
        found = module.members.get(name)
        return found if isinstance(found, griffe.Object) else None
    owner, _, last = path.removeprefix(f"{pkg.path}.").rpartition(".")
    parent = pkg[owner] if path.startswith(f"{pkg.path}.") and owner else None
    return resolve_import(pkg, parent, last) if isinstance(parent, griffe.Module) else None
