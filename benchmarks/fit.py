"""How good is `hypersphere fit` without a knob: small folders, spoken digits, Omniglot and faces, beside tuned settings?

    HYPERSPHERE_DATA=… python benchmarks/fit.py small spoken --record

Every study is one plain call on a plain folder or array set; "tuned" is the setting that was chosen for that data by hand, given
the same number of pictures to look at. Identities that are measured are never trained on. Each finished fit is a row of
``reports/fit.jsonl`` and is not made again.
"""

import json
import pathlib
import shutil
import tarfile
import time
from typing import Any

import torch
from _harness import parser, report

from hypersphere.data.roots import data_roots
from hypersphere.training import fit

REPORTS = pathlib.Path(__file__).parent / "reports"
SPHEREFACE4 = ["backbone=sphereface4", "backbone.norm=batch", "mirror=false"]
TUNED = {
    "omniglot": [*SPHEREFACE4, "backbone.width=0.5", "size=28", "head=ArcFace", "head.m=0.25", "head.scale=24", "ema=none"],
    "lfw": [*SPHEREFACE4, "backbone.width=0.25", "size=48", "augment=Flip", "head.m=0.2", "head.scale=20", "ema=none",
            "mirror=true", "sampler=none"],
}  # fmt: skip


def located(name: str) -> pathlib.Path:
    """A dataset's archive under a data root."""
    for root in data_roots():
        if (root / name).is_file():
            return root / name
    raise SystemExit(f"no data root holds {name}: set HYPERSPHERE_DATA")


def omniglot(work: pathlib.Path) -> pathlib.Path:
    """``train/<character>/…`` of the background alphabets and ``test/…`` of the others, as plain files."""
    folder = work / "omniglot"
    if not folder.exists():
        with tarfile.open(located("omniglot/omniglot_png.tar.xz")) as archive:
            archive.extractall(work / "unpacked", filter="data")
        for part, split in (("images_background", "train"), ("images_evaluation", "test")):
            for character in sorted((work / "unpacked" / part).glob("*/*")):
                target = work / "making" / split / f"{character.parent.name}_{character.name}"
                target.parent.mkdir(parents=True, exist_ok=True)
                character.rename(target)
        (work / "making").rename(folder)
    return folder


def small(work: pathlib.Path, seed: int) -> pathlib.Path:
    """30 characters with 10 drawings each."""
    folder = work / f"small{seed}"
    if not folder.exists():
        characters = sorted((omniglot(work) / "train").iterdir())
        order = torch.randperm(len(characters), generator=torch.Generator().manual_seed(seed))[:30]
        for i in order.tolist():
            (folder / characters[i].name).mkdir(parents=True)
            for file in sorted(characters[i].iterdir())[:10]:
                shutil.copy(file, folder / characters[i].name)
    return folder


def lfw(work: pathlib.Path) -> pathlib.Path:
    """People as a plain folder."""
    if not (work / "lfw").exists():
        with tarfile.open(located("lfw/lfw_deepfunneled_crop128.tar.xz")) as archive:
            archive.extractall(work / "lfw", filter="data")
    return work / "lfw" / "lfw_deepfunneled_crop128"


def studies(work: pathlib.Path, wanted: list[str]) -> dict[str, tuple[Any, list[str]]]:
    """The source and the overrides of each fit; those that are not wanted are not unpacked."""
    found: dict[str, tuple[Any, list[str]]] = {}
    if "small" in wanted:
        found |= {f"30 characters × 10, draw {seed}": (small(work, seed), []) for seed in range(3)}
    if "spoken" in wanted:
        digits = located("spoken_digits/spoken_digits_48.npz")
        found["spoken digits"] = (digits, ["images=mel", "labels=speaker"])
    for name, source in (("omniglot", omniglot), ("lfw", lfw)):
        if name in wanted:
            found[name] = (source(work), [])
            found[f"{name}, tuned"] = (source(work), TUNED[name])
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("wanted", nargs="*", choices=["small", "spoken", "omniglot", "lfw", []], help="what to fit")
    options.add_argument("--work", default="runs/fit", help="folder for unpacked pictures and runs")
    options.add_argument("--steps", type=int, help="steps of every fit, where fewer than the default shall do")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    work, path = pathlib.Path(args.work), REPORTS / "fit.jsonl"
    work.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for name, (source, overrides) in studies(work, args.wanted).items():
        if any(row["study"] == name and row["asked_steps"] == args.steps for row in rows):
            continue
        overrides = [*overrides, f"threads={args.threads}", *([f"steps={args.steps}"] if args.steps else [])]
        busy, wall = time.process_time(), time.monotonic()
        run = fit(source, work / "runs" / name.replace(" ", "_"), overrides=overrides)
        figures = json.loads((run.folder / "report.json").read_text())["figures"]
        kept = {
            key: figures.get(key) for key in ("EER", "TAR@FAR=1e-2", "TAR@FAR=1e-3", "rank-1", "identities", "images")
        }
        times = {"cpu": time.process_time() - busy, "seconds": time.monotonic() - wall}
        steps = next(choice.value for choice in run.choices if choice.key == "steps")
        rows.append({"study": name, "asked_steps": args.steps, "steps": int(steps), **times, "figures": kept})
        print(name, {key: value and value["value"] for key, value in kept.items()}, times, flush=True)
        if args.record:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    show(rows, args)


def show(rows: list[dict[str, Any]], args: Any) -> None:
    names = ("EER", "TAR@FAR=1e-2", "TAR@FAR=1e-3", "rank-1")
    table: list[list[object]] = [
        [
            row["study"],
            f"{row['figures']['images']['value']} of {row['figures']['identities']['value']}",
            row["steps"],
            *(_cell(row["figures"][name]) for name in names),
            f"{row['cpu']:.0f}",
        ]
        for row in rows
    ]
    header = ["source", "held-out images of identities", "steps", *(f"{name} %" for name in names), "CPU seconds"]
    report(
        "fit",
        "`hypersphere fit` without a knob",
        header,
        table,
        args,
        "95 % intervals in brackets. CPU seconds are of the whole call: check, training, evaluations, report. Held-out identities are "
        "never trained on. The present defaults for faces were chosen after the row of the first defaults, on the same people.",
        how="one fit after another beside other work.",
    )


def _cell(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return "–"
    low, high = figure["interval"]
    return f"{100 * figure['value']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


if __name__ == "__main__":
    main()
