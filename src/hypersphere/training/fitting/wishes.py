"""What a user asks for: ``key=value`` texts and Python arguments, as a tree of calls."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...config import Call, assign
from .backbones import backbone_call
from .fit_settings import FitSettings


class Wishes(NamedTuple):
    """The settings that were asked for, the keys among them that are set as a whole, and a folder of a foreign model."""

    texts: tuple[str, ...]
    values: Mapping[str, Any]
    keys: frozenset[str]
    backbone: Call | None
    model_folder: str | None

    def carried_out(self, tree: Call) -> Call:
        """Return a tree with everything that was asked for; a wrong key or value is a ``ValueError`` that names it."""
        if self.backbone is not None:
            tree = Call(tree.target, {**tree.arguments, "backbone": self.backbone})
        tree = assign(tree, self.texts)
        parts = {name.partition("__")[0] for name in self.values if "__" in name} - set(tree.arguments)
        return Call(tree.target, {**tree.arguments, **{part: tree.get(part) for part in parts}}).replace(**self.values)

    def touches(self, key: str) -> bool:
        """Whether something inside a key was asked for, such as ``head.m`` for ``head``."""
        inside = [text.partition("=")[0] for text in self.texts] + [name.replace("__", ".") for name in self.values]
        return any(name.startswith(f"{key}.") for name in inside)


def wishes(texts: Iterable[str], values: Mapping[str, Any]) -> Wishes:
    """Return what was asked for.

    Args:
        texts: ``key=value``, keys of parts as ``head.m``.
        values: Python values by name, those of parts as ``head__m``.

    >>> asked = wishes(["head.m=0.3", "size=32"], {"steps": 10})
    >>> sorted(asked.keys), asked.touches("head")
    (['size', 'steps'], True)
    """
    kept, folder, backbone = [], None, None
    given = dict(values)
    for text in texts:
        key, _, value = text.partition("=")
        if key == "backbone":
            given["backbone"] = value
        else:
            kept.append(text)
    chosen = given.pop("backbone", None)
    if isinstance(chosen, str | os.PathLike):
        name = os.fspath(chosen)
        backbone = backbone_call(name)
        folder = name if os.path.exists(name) else None
    elif chosen is not None:
        backbone = chosen if isinstance(chosen, Call) else Call(chosen)
    if isinstance(given.get("size"), int):
        given["size"] = (given["size"],)
    whole = {text.partition("=")[0] for text in kept} | set(given) | ({"backbone"} if backbone is not None else set())
    keys = frozenset(key for key in whole if "." not in key and "__" not in key)
    return Wishes(tuple(kept), given, keys, backbone, folder)


def wanted(asked: Wishes) -> FitSettings:
    """Return the settings before anything is chosen from the data: checked, and enough to open the source."""
    settings: FitSettings = asked.carried_out(Call(FitSettings)).build()
    return settings
