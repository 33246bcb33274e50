"""Nonsense settings: the command succeeds, or refuses with one sentence and status 1 or 2 and leaves no folder."""

import functools
import json
import pathlib
import random
import shutil
import tempfile
from typing import Any

from . import tally as rows
from .children import command, each, sentence
from .tally import Tally

BLOCKS, SETTINGS = 12, 280  # settings per block
NUMBERS = [
    "-1",
    "0",
    "1",
    "2",
    "3",
    "-0.0",
    "0.5",
    "1.5",
    "-1e-3",
    "1e-8",
    "1e-320",
    "1e6",
    "1e12",
    "1e38",
    "1e308",
    "1e400",
    "-1e308",
    "nan",
    "inf",
    "-inf",
    "4294967296",
    "9223372036854775808",
]
WORDS = [
    "none",
    "true",
    "false",
    "",
    " ",
    "abc",
    "[]",
    "[1,2]",
    "()",
    "{}",
    "1,2,3",
    "-1,5",
    "é",
    "\x00",
    "x" * 5000,
    "../../out",
    "/",
    "~",
    "*",
    "os:system",
    "torch.float16",
    "cuda",
    "meta",
    "a.b:c",
    "None",
    "NaN",
    "0x10",
    "1_000",
    "1e",
    "--",
    "=",
    "[[[[",
    '{"call":"SGD"}',
]
WORK = ("steps", "accumulate", "iterations", "episodes", "samples", "turns", "count")  # keys that set repetitions
SMALL = [
    *(
        "steps=1",
        "evaluate_every=1",
        "checkpoint_every=1",
        "log_every=1",
        "pictures=false",
        "threads=1",
        "batch_size=8",
    ),
    "samples.measured=60",
]
RECIPES = [
    "lsoftmax-mnist",
    "spherenet-cifar10",
    "dcnet-cifar10",
    "mhe-cifar10",
    "sphereface-plus-omniglot",
    "opt-mlp-mnist",
    "comhe-gcn-cora",
    "gan-mhe-cifar10",
    "adversarial-cifar10",
    "comhe-pointnet",
    "opt-few-shot",
    "sphereface-lfw",
]


def attack(scale: float) -> Any:
    """Yield a tally for each block. A block takes minutes, so an interrupted attack loses little."""
    warm()
    for block in range(1, BLOCKS + 1):
        if rows.due("settings", f"block {block}"):
            yield settings(Tally("settings", f"block {block}"), round(scale * SETTINGS), block)


def warm() -> None:
    """Import modules and read data before forking. Compute no gradient: threads of autograd do not survive a fork."""
    import accelerate  # noqa: F401
    import jinja2  # noqa: F401
    import matplotlib.figure  # noqa: F401
    import torch
    import torch._dynamo
    import torch.utils.tensorboard

    import hypersphere.report.pages  # noqa: F401
    from hypersphere import recipes
    from hypersphere.report._render import read_plotting_library
    from hypersphere.training import build_task

    torch.set_num_threads(1)
    read_plotting_library()
    build_task(recipes.get("lsoftmax-mnist").config("smoke"))


def settings(tally: Tally, count: int, block: int) -> Tally:
    """Set random keys of every recipe on the command line to nonsense, or to other classes with their own keys."""
    draw = random.Random(2100 + block)
    with tempfile.TemporaryDirectory() as folder:
        cases = [_words(draw, number, folder) for number in range(count)]
        for case, answer in each(cases, functools.partial(train, folder), cpu=20.0):
            judge(tally, " ".join(case["words"])[:300], answer)
    return tally


def judge(tally: Tally, what: str, answer: dict[str, Any]) -> None:
    """Count an answer. Failures are a crash, a folder left by a refused start, and metrics that are not JSON."""
    wrong = sentence(answer)
    if wrong is None and answer["status"] and answer["left"]:
        wrong = f"a refused start left {answer['left']}: {answer['err'][-300:]}"
    if wrong is None and answer["invalid"]:
        wrong = f"metrics.json is not JSON: {answer['invalid']}"
    if wrong is not None:
        tally.broke(f"{what} → {wrong}")
        return
    began = answer["status"] == 1 and "last good checkpoint" in answer["err"]
    tally.held("trained" if answer["status"] == 0 else "diverged with a message" if began else "refused")


def train(folder: str, case: dict[str, Any]) -> dict[str, Any]:
    """Call ``hypersphere train`` on a case in a worker."""
    import torch

    torch.set_num_threads(1)
    run = pathlib.Path(folder) / "run" / str(case["number"])
    if case.get("text") is not None:
        run.mkdir(parents=True)
        (run / "config.json").write_text(case["text"], encoding="utf-8", errors="surrogatepass")
        (run / "run.json").write_text('{"format": "hypersphere-run/1", "files": ["run.json", "config.json"]}')
    answer = command(case["words"])
    answer["left"] = "" if case.get("text") is not None else _left(run, answer)
    answer["invalid"] = _invalid(run / "metrics.json")
    shutil.rmtree(run, ignore_errors=True)
    return answer


def _left(run: pathlib.Path, answer: dict[str, Any]) -> str:
    """Return the files left by a refused start. A run that diverged after its first checkpoint may keep its files."""
    found = sorted(p.name for p in run.iterdir()) if run.is_dir() else []
    return "" if "last.safetensors" in found else f"{run.name} with {found}" if run.is_dir() else ""


def _invalid(path: pathlib.Path) -> str:
    def refuse(text: str) -> None:
        raise ValueError(text)

    try:
        json.loads(path.read_text(), parse_constant=refuse) if path.exists() else None
    except ValueError as error:
        return str(error)[:200]
    return ""


@functools.cache
def _tree(recipe: str) -> tuple[tuple[str, str], ...]:
    from hypersphere import recipes
    from hypersphere.config import as_call, assign, keys

    call = assign(as_call(recipes.get(recipe).config("smoke")), SMALL)
    return tuple((key.path, key.accepted) for key in keys(call))


def _words(draw: random.Random, number: int, folder: str) -> dict[str, Any]:
    recipe = draw.choice(RECIPES)
    changed = []
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        path, accepted = draw.choice(_tree(recipe))
        names = [name for name in accepted.split(", ") if name.isidentifier()]
        roll = draw.random()
        if names and roll < 0.5:
            value = draw.choice(names)
        elif roll < 0.85:
            value = draw.choice(NUMBERS)
        else:
            value = draw.choice(WORDS)
        if draw.random() < 0.04:
            path = draw.choice(
                [path + ".x", path[:-1], "." + path, path + ".0", path.upper(), "", path + "." + "m." * 40]
            )
        if path.rpartition(".")[2] in WORK and value in NUMBERS and float(value) > 3:
            value = "-1"  # a million steps are valid but take too long
        changed.append(f"{path}={value}")
    output = f"{folder}/run/{number}"
    return {"number": number, "words": ["train", recipe, "--size", "smoke", "-o", output, *SMALL, *changed]}
