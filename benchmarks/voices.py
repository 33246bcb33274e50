"""Measure `fit` from scratch and from ge2e on unseen speakers, compared with LDA, and the speed of feature extraction.

    HYPERSPHERE_DATA=… OMP_NUM_THREADS=1 python benchmarks/voices.py fit --seeds 3     # from scratch and --from ge2e
    HYPERSPHERE_DATA=… OMP_NUM_THREADS=1 python benchmarks/voices.py speed             # speed of each part, × real time
    HYPERSPHERE_DATA=… OMP_NUM_THREADS=1 python benchmarks/voices.py steps             # EER by the overlap of windows
    python benchmarks/voices.py table

The recordings are those of ``speaker_recordings``: 48 speakers with 12 utterances each. A seed draws 12 of the 24 speakers with
odd places for the report and trains on the other 36. Defaults for recordings were chosen on speakers with even places only, so no
speaker of a report was used for a choice. Every finished fit is a row of ``reports/voices.jsonl`` and is not repeated. Speed is
measured in CPU seconds of one thread, each figure the best of three.
"""

import argparse
import csv
import dataclasses
import datetime
import json
import pathlib
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import _rows
import numpy as np
import torch

import hypersphere as hs
from hypersphere.data.recordings import decode_recording
from hypersphere.data.roots import data_roots
from hypersphere.evaluation import all_pairs
from hypersphere.training import fit

ROWS = pathlib.Path(__file__).parent / "reports" / "voices.jsonl"
ARMS = {"from scratch": [], "--from ge2e": ["start=ge2e"]}
MEASURED_SPEAKERS = 12
SPEED_RECORDINGS = 32


def unpack(folder: pathlib.Path) -> pathlib.Path:
    """Unpack the recordings and return the folder with one sub-folder per speaker."""
    archive = next(
        root / "speaker_recordings/speakers_48.tar.xz"
        for root in data_roots()
        if (root / "speaker_recordings/speakers_48.tar.xz").is_file()
    )
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / "speakers_48"


def write_split(root: pathlib.Path, seed: int, path: pathlib.Path) -> list[str]:
    """Write a table of all recordings with their split and return the speakers that are measured."""
    speakers = sorted(home.name for home in root.iterdir())
    measured = sorted(np.random.default_rng(seed).permutation(speakers[1::2])[:MEASURED_SPEAKERS].tolist())
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "label", "split"])
        for speaker in speakers:
            for recording in sorted((root / speaker).iterdir()):
                table.writerow([recording.relative_to(root), speaker, "test" if speaker in measured else "train"])
    return measured


def measure_fit(root: pathlib.Path, seed: int, arm: str) -> dict[str, Any]:
    """Run a fit; return its row with its EER and those of simple methods on twelve speakers."""
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder, "speakers.csv")
        write_split(root, seed, table)
        began = time.process_time()
        settings = ["pictures=false", "threads=1", f"seed={seed}", f"root={root}", *ARMS[arm]]
        run = fit(table, pathlib.Path(folder, "run"), settings=settings)
        seconds = time.process_time() - began
        figures = json.loads((run.folder / "report.json").read_text())["figures"]
        chosen = {
            choice.key: f"{choice.value}: {choice.reason}" for choice in run.choices if choice.key in SHOWN_CHOICES
        }
        baselines = [baseline.to_dict() for baseline in run.baselines]
    row = {"kind": "fit", "arm": arm, "seed": seed, "cpu_seconds": round(seconds, 1), "eer": figures["EER"]}
    row |= {"rank-1": figures["rank-1"]["value"], "baselines": baselines, "chosen": chosen}
    return row | {"date": datetime.date.today().isoformat(), "threads": torch.get_num_threads()}


SHOWN_CHOICES = ("tune", "last_layer", "descriptors", "steps")


def time_cpu(function: Callable[[], object], repeats: int = 3) -> float:
    """Return the minimum CPU seconds of several calls."""
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        function()
        seconds.append(time.process_time() - began)
    return min(seconds)


def measure_speed(root: pathlib.Path) -> list[dict[str, Any]]:
    """Measure seconds of sound per CPU second of every part of feature extraction."""
    embedder = hs.load("ge2e")
    files = [path for home in sorted(root.iterdir()) for path in sorted(home.iterdir())]
    paths = files[:: len(files) // SPEED_RECORDINGS][:SPEED_RECORDINGS]
    contents = [path.read_bytes() for path in paths]
    recordings = [decode_recording(content, "a recording") for content in contents]
    seconds = sum(recording.seconds for recording in recordings)
    rows = []

    def add(what: str, spent: float, **more: object) -> None:
        rows.append({"kind": "speed", "what": what, "times_real_time": round(seconds / spent, 1), **more})
        print(json.dumps(rows[-1]), flush=True)

    add("decoding Opus", time_cpu(lambda: [decode_recording(content, "a recording") for content in contents]))
    for step in (embedder.preprocessing.step, 160):
        prepare = dataclasses.replace(embedder.preprocessing, step=step)
        own = hs.Embedder(embedder.network, prepare)
        windows = [prepare.load_windows(recording) for recording in recordings]
        whole = torch.cat(windows)
        spectrograms = prepare.normalize(whole)
        with torch.no_grad():
            parts = {
                "resampling, level, trimming, windows": lambda p=prepare: [p.load_windows(r) for r in recordings],
                "mel spectrograms": lambda p=prepare, w=whole: p.normalize(w),
                "LSTM and linear layer": lambda s=spectrograms: embedder.network(s),
                "everything from decoded recordings": lambda e=own: e(list(recordings)),
                "everything from files": lambda e=own: e(list(contents)),
            }
            for what, function in parts.items():
                add(what, time_cpu(function), frames_between_windows=step, windows=len(whole))
    return rows


def measure_steps(root: pathlib.Path) -> list[dict[str, Any]]:
    """Measure the EER of ge2e on all speakers by the distance between windows."""
    embedder = hs.load("ge2e")
    paths = [path for home in sorted(root.iterdir()) for path in sorted(home.iterdir())]
    names = sorted({path.parent.name for path in paths})
    labels = torch.tensor([names.index(path.parent.name) for path in paths])
    rows = []
    for step in (embedder.preprocessing.step, 160):
        own = hs.Embedder(embedder.network, dataclasses.replace(embedder.preprocessing, step=step))
        roc = all_pairs(own(list(map(str, paths))), labels, worst=1).roc
        rows.append({"kind": "step", "frames_between_windows": step, "eer": float(roc.eer)})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def write_table(rows: Sequence[dict[str, Any]]) -> None:
    """Write and print the report."""
    lines = ["# Voices", "", f"Made by `python benchmarks/voices.py table` from `{ROWS.name}`. One thread."]
    lines += ["", "## Unseen speakers", ""]
    lines += [
        "36 speakers to train on (a fifth of them selects), 12 others measured, 12 utterances each. EER in percent; the "
        "difference has a paired 95 % interval over speakers. LDA uses the spectrograms of the arm; ge2e has its own.",
        "",
        "| arm | split | EER | rank-1 | LDA of spectrogram statistics | difference | ge2e as it is | difference | CPU seconds | date |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    fits = sorted((row for row in rows if row["kind"] == "fit"), key=lambda row: (row["arm"], row["seed"]))
    for row in fits:
        cells = []
        for names in (
            ("spectrogram statistics, LDA",),
            ("ge2e before training", "pretrained ge2e (on 144 pictures)", "pretrained ge2e"),
        ):
            found = next((b for b in row["baselines"] if b["name"] in names), None)
            cells += ["–", "–"] if found is None else [f"{100 * found['eer']:.2f}", _format_difference(found)]
        lines.append(
            f"| {row['arm']} | {row['seed']} | {100 * row['eer']['value']:.2f} | {100 * row['rank-1']:.1f} | "
            f"{' | '.join(cells)} | {row['cpu_seconds']:.0f} | {row['date']} |"
        )
    for arm in dict.fromkeys(row["arm"] for row in fits):
        values = [100 * row["eer"]["value"] for row in fits if row["arm"] == arm]
        lines += ["", f"Mean EER {arm}: {statistics.mean(values):.2f} % over {len(values)} splits."]
    lines += ["", "## Speed of ge2e", "", "| part | frames between windows | × real time |", "|---|---|---|"]
    for row in rows:
        if row["kind"] == "speed":
            lines.append(f"| {row['what']} | {row.get('frames_between_windows', '–')} | {row['times_real_time']:.0f} |")
    lines += ["", "| frames between windows | EER of ge2e on all 48 speakers, % |", "|---|---|"]
    lines += [f"| {row['frames_between_windows']} | {100 * row['eer']:.2f} |" for row in rows if row["kind"] == "step"]
    text = "\n".join([*lines, ""])
    ROWS.with_suffix(".md").write_text(text)
    print(text)


def _format_difference(baseline: dict[str, Any]) -> str:
    low, high = (100 * end for end in baseline["difference_interval"])
    return f"{100 * baseline['difference']:+.2f} [{low:+.2f}, {high:+.2f}]"


MEASUREMENTS = {"speed": ("speed", measure_speed), "steps": ("step", measure_steps)}


def main() -> None:
    """Make the missing rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fit", "speed", "steps", "table"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arm", choices=list(ARMS))
    args = parser.parse_args()
    rows = _rows.read_rows(ROWS)
    if args.what == "table":
        return write_table(rows)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root = unpack(pathlib.Path(folder))
        if args.what in MEASUREMENTS:
            kind, measure = MEASUREMENTS[args.what]
            date = {"date": datetime.date.today().isoformat(), "threads": 1}
            rows = [row for row in rows if row["kind"] != kind] + [row | date for row in measure(root)]
            ROWS.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
            return None
        done = {(row["arm"], row["seed"]) for row in rows if row["kind"] == "fit"}
        for seed in range(args.seeds):
            for arm in ARMS if args.arm is None else [args.arm]:
                if (arm, seed) not in done:
                    row = measure_fit(root, seed, arm)
                    _rows.append_row(ROWS, row)
                    print(
                        f"{arm}, seed {seed}: EER {100 * row['eer']['value']:.2f} %, {row['cpu_seconds']} s", flush=True
                    )
    return None


if __name__ == "__main__":
    main()
