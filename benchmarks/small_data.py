"""Compare `hypersphere fit` with simple methods on small data that was not used for tuning.

    HYPERSPHERE_DATA=… OMP_NUM_THREADS=1 python benchmarks/small_data.py choose --seeds 1
    HYPERSPHERE_DATA=… OMP_NUM_THREADS=1 python benchmarks/small_data.py report --seeds 5
    HYPERSPHERE_DATA=… OMP_NUM_THREADS=1 PYTHONPATH=<an older checkout>/src python benchmarks/small_data.py report --arm before
    python benchmarks/small_data.py table

Every task is a small set of real pictures. A seed draws its identities and divides them: three quarters to train on, one quarter
for the report, which no choice of a fit sees. Rules of the defaults are chosen by the tasks of ``choose`` only; those of ``report``
are not looked at before. No identity is in tasks of both. Each finished fit is a row of ``reports/small_data.jsonl`` and is not made
again. A row has the EER of the fit and those of the simple methods on the same identities, with paired intervals over identities.
``table`` writes ``reports/small_data.md``: means over seeds, and the best simple method of each split.
"""

import argparse
import datetime
import functools
import json
import math
import pathlib
import statistics
import string
import tempfile
import time
from collections.abc import Callable

import _rows
import numpy as np
import torch
from scipy import stats
from torch import Tensor

from hypersphere import data
from hypersphere.data.roots import data_roots
from hypersphere.training import fit

ROWS = pathlib.Path(__file__).parent / "reports" / "small_data.jsonl"
Pictures = tuple[np.ndarray, np.ndarray]
CHOOSE, REPORT = 0, 1  # the half of the identities
FONTS = """
DejaVuSans DejaVuSans-Bold DejaVuSans-Oblique DejaVuSans-BoldOblique DejaVuSansMono DejaVuSansMono-Bold DejaVuSansMono-Oblique
DejaVuSerif DejaVuSerif-Bold DejaVuSerif-Italic DejaVuSerif-BoldItalic STIXGeneral STIXGeneralBol STIXGeneralItalic
STIXGeneralBolIta cmb10 cmr10 cmss10 cmti10 cmtt10
"""


def draw(images: Tensor, labels: Tensor, identities: int, least: int, most: int, seed: int) -> Pictures:
    """Pictures of some identities that have at least ``least`` of them, at most ``most`` each."""
    known = torch.nonzero(labels.bincount() >= least).flatten()
    generator = torch.Generator().manual_seed(seed)
    chosen = known[torch.randperm(len(known), generator=generator)[:identities]]
    rows = torch.cat([torch.nonzero(labels == name).flatten()[:most] for name in chosen.tolist()])
    pixels = images[rows]
    pixels = pixels[:, 0] if pixels.shape[1] == 1 else pixels.permute(0, 2, 3, 1)
    return pixels.numpy(), labels[rows].numpy()


def take_half(images: Tensor, labels: Tensor, half: int) -> tuple[Tensor, Tensor]:
    """One half of the identities, always the same ones."""
    names = labels.unique()
    order = names[torch.randperm(len(names), generator=torch.Generator().manual_seed(7))]
    mine = torch.isin(labels, order[half::2])
    return images[mine], labels[mine]


@functools.cache
def read(name: str) -> tuple[Tensor, Tensor]:
    """Return all pictures of a dataset and their identities."""
    if name == "digits":
        both = [data.Digits(train=train) for train in (True, False)]
        return torch.cat([part.data for part in both]), torch.cat([part.labels for part in both])
    if name == "faces":
        known = data.LFW()
        several = torch.isin(known.labels, torch.nonzero(known.labels.bincount() >= 5).flatten())
        return known.data[several], known.labels[several]
    known = data.Omniglot(background=True) if name == "characters" else data.TinyImageNet(train=True)
    return known.data, known.labels


def draw_people(identities: int, half: int, seed: int, gray: bool = False) -> Pictures:
    """Draw people of LFW with 5 to 20 photographs each; gray pictures are cropped to 112×92 around the face."""
    images, labels = take_half(*read("faces"), half)
    if gray:
        images = images.float().mean(1, keepdim=True)[:, :, 8:120, 18:110].round().to(torch.uint8)
    return draw(images, labels, identities, 5, 20, seed)


def draw_characters(identities: int, half: int, seed: int) -> Pictures:
    """Draw characters of Omniglot with 10 drawings each."""
    return draw(*take_half(*read("characters"), half), identities, 10, 10, seed)


def draw_products(each: int, half: int, seed: int) -> Pictures:
    """Draw 40 classes of Tiny-ImageNet at 32×32."""
    return draw(*take_half(*read("objects"), half), 40, each, each, seed)


def draw_speakers(half: int, seed: int) -> Pictures:
    """Draw 24 speakers of spoken digits as log-mel pictures, 20 recordings each."""
    file = next(
        root / "spoken_digits/spoken_digits_48.npz" for root in data_roots() if (root / "spoken_digits").exists()
    )
    stored = np.load(file)
    order = np.random.default_rng(seed).permutation(len(stored["speaker"]))
    mel, who = torch.from_numpy(stored["mel"][order])[:, None], torch.from_numpy(stored["speaker"][order]).long()
    mine = (who % 2 == half).nonzero().flatten()
    return draw(mel[mine], who[mine], 24, 20, 20, seed)


def draw_letters(text: str) -> Pictures:
    """Render letters in 20 fonts of matplotlib, at 32×32."""
    import matplotlib as mpl
    from PIL import Image, ImageDraw, ImageFont

    folder = pathlib.Path(mpl.get_data_path(), "fonts/ttf")
    fonts = [ImageFont.truetype(str(folder / f"{name}.ttf"), 28) for name in FONTS.split()]
    images = []
    for letter in text:
        for font in fonts:
            image = Image.new("L", (32, 32))
            ImageDraw.Draw(image).text((16, 16), letter, 255, font=font, anchor="mm")
            images.append(np.asarray(image))
    return np.stack(images), np.arange(len(text)).repeat(len(fonts))


def draw_digits(seed: int) -> Pictures:
    """Draw handwritten digits at 8×8, 30 per class."""
    return draw(*read("digits"), 10, 30, 30, seed)


TASKS: dict[str, dict[str, Callable[[int], Pictures]]] = {
    "choose": {
        "speakers, first half": lambda seed: draw_speakers(CHOOSE, seed),
        "50 people": lambda seed: draw_people(50, CHOOSE, seed),
        "40 people, gray": lambda seed: draw_people(40, CHOOSE, seed + 50, gray=True),
        "50 characters": lambda seed: draw_characters(50, CHOOSE, seed),
        "40 classes × 20": lambda seed: draw_products(20, CHOOSE, seed),
        "capital letters": lambda seed: draw_letters(string.ascii_uppercase),
    },
    "report": {
        "speakers, second half": lambda seed: draw_speakers(REPORT, seed),
        "20 people": lambda seed: draw_people(20, REPORT, seed),
        "200 people": lambda seed: draw_people(200, REPORT, seed),
        "10 characters": lambda seed: draw_characters(10, REPORT, seed),
        "200 characters": lambda seed: draw_characters(200, REPORT, seed),
        "40 classes × 5": lambda seed: draw_products(5, REPORT, seed),
        "40 classes × 100": lambda seed: draw_products(100, REPORT, seed),
        "small letters and digits": lambda seed: draw_letters(string.ascii_lowercase + string.digits),
        "handwritten digits": draw_digits,
    },
}

TABLE_HEAD = """# Small data

Mean EER in percent over splits of `fit` without settings and of simple methods on the same identities. The *best method of the
task* has the lowest mean over the splits. The *best of each split* has the lowest EER of that split, so it is chosen after the
result is known. Pretrained networks are not among the simple methods. Differences have a paired 95 % interval over splits; with
two splits it is very wide. *Worse* counts splits whose paired 95 % interval over identities lies above zero, beside the best of
the split. Made by `python benchmarks/small_data.py table` from `small_data.jsonl`, which has every split.

| half | task | arm | splits | identities | fit | best method of the task | difference | best of each split | difference \
| worse | CPU seconds | dates |
|---|---|---|---|---|---|---|---|---|---|---|---|---|""".splitlines()


def measure(task: str, half: str, seed: int, arm: str, overrides: list[str]) -> dict[str, object]:
    """Run a fit; return its row with its EER and those of simple methods."""
    images, labels = TASKS[half][task](seed)
    names = np.unique(labels)
    held = np.random.default_rng(seed).permutation(names)[: max(3, round(len(names) / 4))]
    split = np.where(np.isin(labels, held), "test", "train")
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "set.npz")
        np.savez(file, images=images, labels=labels, split=split)
        began = time.process_time()
        run = fit(file, pathlib.Path(folder, "run"), settings=["pictures=false", "threads=1", *overrides])
        seconds = time.process_time() - began
        report = json.loads((run.folder / "report.json").read_text())
        chosen = {
            choice.key: choice.value
            for choice in run.choices
            if choice.key in ("networks", "last_layer", "descriptors")
        }
        log = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    row = {
        "task": task,
        "half": half,
        "seed": seed,
        "arm": arm,
        "overrides": overrides,
        "cpu_seconds": round(seconds, 1),
    }
    row |= {"pictures": len(labels), "identities": len(names), "reported": len(held), "eer": report["figures"]["EER"]}
    row |= {"steps": max(entry["step"] for entry in log), "baselines": report.get("baselines", [])}
    row |= {"date": datetime.date.today().isoformat(), "threads": torch.get_num_threads()}
    return row | {"rank-1": report["figures"]["rank-1"]["value"], "chosen": chosen}


def is_simple(name: str) -> bool:
    """Return whether a method of a report uses no pretrained network."""
    return not name.startswith("pretrained") and (
        not name.endswith("before training") or name.startswith("the network")
    )


def write_table(rows: list[dict]) -> None:
    """Write the means over splits of each task, and print them."""
    groups: dict[tuple[str, str, str], list[dict]] = {}
    for row in rows:
        groups.setdefault((row["half"], row["arm"], row["task"]), []).append(row)
    ratios: dict[tuple[str, str], list[tuple[float, float]]] = {}
    lines = [*TABLE_HEAD]
    for (half, arm, task), group in groups.items():
        simple = [{x["name"]: x for x in row["baselines"] if is_simple(x["name"])} for row in group]
        best = [min(methods.values(), key=lambda x: x["eer"]) for methods in simple]
        eers = [100 * row["eer"]["value"] for row in group]
        best_eers = [100 * method["eer"] for method in best]
        shared = set.intersection(*(set(methods) for methods in simple))
        fixed = {name: [100 * methods[name]["eer"] for methods in simple] for name in sorted(shared)}
        name = min(fixed, key=lambda name: statistics.mean(fixed[name]))
        mean = statistics.mean(eers)
        ratios.setdefault((half, arm), []).append(
            (mean / statistics.mean(best_eers), mean / statistics.mean(fixed[name]))
        )
        worse = sum(method["difference_interval"][0] > 0 for method in best)
        dates = ", ".join(dict.fromkeys(row["date"] for row in group))
        lines.append(
            f"| {half} | {task} | {arm} | {len(group)} | {group[0]['identities']}, {group[0]['reported']} reported "
            f"| {mean:.1f} | {name}: {statistics.mean(fixed[name]):.1f} | {format_difference(eers, fixed[name])} "
            f"| {statistics.mean(best_eers):.1f} | {format_difference(eers, best_eers)} | {worse} of {len(group)} "
            f"| {statistics.mean(row['cpu_seconds'] for row in group):.0f} | {dates} |"
        )
    lines.append("")
    for (half, arm), found in ratios.items():
        best_ratio, fixed_ratio = (100 * (statistics.mean(values) - 1) for values in zip(*found, strict=True))
        lines.append(
            f"Mean over the {len(found)} measured tasks of {half}, {arm}: EER {fixed_ratio:+.0f} % relative to the best method of "
            f"each task, {best_ratio:+.0f} % relative to the best method of each split.\n"
        )
    lines += ["One thread; seeds 0, 1, … draw the identities and the splits.", ""]
    text = "\n".join(lines)
    ROWS.with_suffix(".md").write_text(text)
    print(text)


def format_difference(first: list[float], second: list[float]) -> str:
    """Return the mean difference of paired EERs with its 95 % interval over splits, by Student's distribution."""
    differences = [x - y for x, y in zip(first, second, strict=True)]
    mean = statistics.mean(differences)
    if len(differences) < 2:
        return f"{mean:+.1f}"
    half = stats.t.ppf(0.975, len(differences) - 1) * statistics.stdev(differences) / math.sqrt(len(differences))
    return f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]"


def main() -> None:
    """Run what has no row yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("half", choices=["choose", "report", "table"])
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--arm", default="now", help="name of the code and overrides in the rows (%(default)s)")
    parser.add_argument("--seeds", type=int, default=5)
    known = [task for tasks in TASKS.values() for task in tasks]
    parser.add_argument(
        "--tasks", nargs="+", choices=known, metavar="TASK", help="only these; overrides come before it"
    )
    args = parser.parse_args()
    rows = _rows.read_rows(ROWS)
    if args.half == "table":
        return write_table(rows)
    done = {(row["task"], row["seed"], row["arm"]) for row in rows}
    for seed in range(args.seeds):
        for task in TASKS[args.half]:
            if (task, seed, args.arm) not in done and (args.tasks is None or task in args.tasks):
                row = measure(task, args.half, seed, args.arm, args.overrides)
                _rows.append_row(ROWS, row)
                print(
                    f"{task}, seed {seed}, {args.arm}: EER {100 * row['eer']['value']:.2f} %, {row['cpu_seconds']} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
