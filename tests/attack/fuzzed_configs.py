"""Randomly changed config files of runs: the run is resumed, or refused with one sentence."""

import functools
import json
import random
import tempfile
from collections.abc import Iterator
from typing import Any

from . import tally as rows
from .children import each
from .fuzzed_settings import RECIPES, SMALL, judge, train, warm
from .tally import Tally

BLOCKS, FILES = 6, 310  # files per block


def attack(scale: float) -> Iterator[Tally]:
    """Yield a tally for each block."""
    warm()
    for block in range(1, BLOCKS + 1):
        if rows.due("config files", f"block {block}"):
            yield files(Tally("config files", f"block {block}"), round(scale * FILES), block)


def files(tally: Tally, count: int, block: int) -> Tally:
    """Change values, keys, types, nesting or bytes of the ``config.json`` of a run, and resume the run."""
    draw = random.Random(2200 + block)
    with tempfile.TemporaryDirectory() as folder:
        cases = [_file(draw, number, folder) for number in range(count)]
        for case, answer in each(cases, functools.partial(train, folder)):
            judge(tally, case["what"][:300], answer)
    return tally


def _file(draw: random.Random, number: int, folder: str) -> dict[str, Any]:
    from hypersphere import recipes
    from hypersphere.config import as_call, assign
    from hypersphere.training import to_json

    recipe = draw.choice(RECIPES)
    document = json.loads(to_json(assign(as_call(recipes.get(recipe).config("smoke")), SMALL).build()))
    what = [_mutate(draw, document) for _ in range(draw.choice((1, 1, 2, 3)))]
    text = json.dumps(document)
    if draw.random() < 0.3:
        text, change = _garble(draw, text)
        what.append(change)
    words = ["train", "--resume", f"{folder}/run/{number}"]
    return {"number": number, "text": text, "what": f"{recipe}: {'; '.join(what)}", "words": words}


def _mutate(draw: random.Random, document: Any) -> str:
    """Change one place of a JSON tree."""
    holders: list[tuple[Any, Any, str]] = []

    def walk(node: Any, path: str) -> None:
        for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
            holders.append((node, key, f"{path}.{key}"))
            if isinstance(value, dict | list):
                walk(value, f"{path}.{key}")

    walk(document, "")
    node, key, path = draw.choice(holders)
    deep: Any = []
    for _ in range(draw.choice((3, 200))):
        deep = [deep]
    values = [
        None,
        True,
        -1,
        0,
        1.5,
        1e308,
        10**30,
        "",
        "abc",
        [],
        {},
        [1, "a"],
        {"call": "SGD"},
        {"call": 3},
        {"call": "os:system"},
        {"call": "ArcFace"},
        deep,
        "x" * 10000,
        float("nan"),
        float("inf"),
        -1e-300,
        {"x": 1},
    ]
    roll = draw.random()
    if roll < 0.15 and isinstance(node, dict):
        del node[key]
        return f"without {path}"
    if roll < 0.25 and isinstance(node, dict):
        node[draw.choice(["x", "call", "", "stepss", "__class__"])] = draw.choice(values)
        return f"a key beside {path}"
    value = draw.choice(values)
    node[key] = value
    return f"{path} = {str(value)[:60]}"


def _garble(draw: random.Random, text: str) -> tuple[str, str]:
    raw = bytearray(text.encode())
    roll = draw.random()
    if roll < 0.3:
        del raw[draw.randrange(len(raw)) :]
        return raw.decode("utf-8", "ignore"), "cut"
    for _ in range(draw.choice((1, 5, 50))):
        raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(7)
    return raw.decode("utf-8", "surrogateescape").encode("utf-8", "ignore").decode(), "flipped"
