"""Wrong labels found by embedding: 10 % of the labels are shuffled, on LFW (sface) and Omniglot (characters).

Features are those of ``benchmarks/grouping.py``, cached outside the repository:

    python benchmarks/label_check.py --cache FOLDER [--record]
"""

import argparse
import time
from datetime import date
from pathlib import Path

import torch
from grouping import Set, load_lfw, load_omniglot

from hypersphere.evaluation.score_calibration import LogisticCalibration
from hypersphere.recognition.grouping_calibration import calibrate_features
from hypersphere.recognition.label_check import check_labels

REPORT = Path(__file__).parent / "reports" / "label_check.md"
SHARE = 0.1


def measure(name: str, data: Set, calibration: LogisticCalibration | None, how: str, seed: int) -> str:
    """Shuffle labels among 10 % of the samples and compare the list with the truth; return a row of the table."""
    truth = data.labels
    draw = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(truth), generator=draw)[: round(SHARE * len(truth))]
    labels = truth.clone()
    labels[chosen] = labels[chosen[torch.randperm(len(chosen), generator=draw)]]
    wrong = set((labels != truth).nonzero().flatten().tolist())
    start = time.process_time()
    report = check_labels(data.features, [str(label) for label in labels.tolist()], calibration=calibration)
    seconds = time.process_time() - start
    found = {one.sample for one in report.suspicions}
    hits = [one for one in report.suspicions if one.sample in wrong]
    named = sum(one.better == str(int(truth[one.sample])) for one in hits)
    cells = (
        name,
        how,
        f"{len(truth)} of {len(truth.unique())}",
        str(len(wrong)),
        str(len(found)),
        f"{len(hits) / max(1, len(found)):.1%}",
        f"{len(hits) / len(wrong):.1%}",
        f"{named / max(1, len(hits)):.1%}",
        f"{seconds:.1f}",
    )
    line = f"| {' | '.join(cells)} |"
    print(line, flush=True)
    return line


def select_identities(data: Set, min_samples: int) -> Set:
    """Return the labeled samples of identities with at least ``min_samples`` samples."""
    data = data.part(data.labeled)
    counts = torch.bincount(data.labels)
    return data.part(counts[data.labels] >= min_samples)


def main() -> None:
    """Print the table, and with ``--record`` write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True, help="folder for features, outside the repository")
    parser.add_argument("--record", action="store_true", help="write benchmarks/reports/label_check.md")
    args = parser.parse_args()
    choose, report, _ = load_lfw()
    known = calibrate_features(choose.features[choose.labeled], choose.labels[choose.labeled])
    rows = []
    for min_samples in (2, 4):
        name = f"LFW folds 5–9, people with ≥ {min_samples} pictures"
        rows += [
            measure(name, select_identities(report, min_samples), known, "folds 0–4", 0),
            measure(name, select_identities(report, min_samples), None, "the shuffled labels", 0),
        ]
    even, odd = load_omniglot(args.cache)
    known = calibrate_features(even.features, even.labels)
    rows += [
        measure("Omniglot, odd alphabets", odd, known, "even alphabets", 0),
        measure("Omniglot, odd alphabets", odd, None, "the shuffled labels", 0),
    ]
    if args.record:
        head = ["data", "calibrated on", "samples of identities", "wrong labels", "suspicions", "precision", "recall"]
        head += ["right name proposed", "seconds"]
        text = (
            f"# Wrong labels by embedding\n\n{date.today()}, one thread; `benchmarks/label_check.py`. The labels of 10 % of the "
            "samples are shuffled among them, once (seed 0). Precision and recall are those of the list of `data check "
            f"--embedder`.\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}\n" + "\n".join(rows) + "\n"
        )
        REPORT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
