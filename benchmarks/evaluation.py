"""Measure evaluations of many features: retrieval, verification of all pairs, a report of ten million scores, search.

Reports CPU seconds and extra memory in a fresh process, compared with a lower bound (a product, a sort) or with another library
(the calculator of pytorch-metric-learning, faiss).
"""

import functools
import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable

import _harness
import torch
from torch.nn import functional as F

from hypersphere import evaluation
from hypersphere.recognition import search

FEATURES, DIM, IDENTITIES, SCORES, GALLERY, K = 20_000, 512, 1_000, 10_000_000, 100_000, 10
Work = tuple[str, str, Callable[[], object]]


def make_features() -> tuple[torch.Tensor, torch.Tensor]:
    """Return features around the means of identities, with a mAP of 0.36, and their labels."""
    torch.manual_seed(0)
    labels = torch.arange(FEATURES) % IDENTITIES
    return torch.randn(IDENTITIES, DIM)[labels] + 2.6 * torch.randn(FEATURES, DIM), labels


def make_scores() -> tuple[torch.Tensor, torch.Tensor]:
    """Return scores of pairs and whether each pair is of one identity; a tenth is."""
    torch.manual_seed(0)
    same = torch.arange(SCORES) % 10 == 0
    return torch.randn(SCORES, dtype=torch.float64) + 2 * same, same


def compute_product(dtype: torch.dtype) -> Callable[[], object]:
    """Return work that computes all cosines, one block of queries at a time."""
    x = F.normalize(make_features()[0].to(dtype))
    return lambda: [None for part in x.split(256) if (part @ x.T).shape is None]


def compute_retrieval() -> Callable[[], object]:
    """Return work that computes all retrieval metrics."""
    return functools.partial(lambda x, ids: evaluation.retrieval(x, ids).figures(), *make_features())


def compute_peer() -> Callable[[], object]:
    """Return work that computes MAP@R, R-precision and precision at 1 with pytorch-metric-learning.

    These metrics need as many neighbors as an identity has images. mAP needs all neighbors, for which the calculator takes
    13 GiB.
    """
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    metrics = ("mean_average_precision_at_r", "r_precision", "precision_at_1")
    calculator = AccuracyCalculator(include=metrics, k="max_bin_count", device=torch.device("cpu"))
    x, labels = make_features()
    return lambda: calculator.get_accuracy(F.normalize(x), labels)


def compute_all_pairs() -> Callable[[], object]:
    """Return work that computes the exact ROC of all pairs, the worst errors and the histograms."""
    return functools.partial(lambda x, ids: evaluation.all_pairs(x, ids).roc.eer, *make_features())


def compute_report() -> Callable[[], object]:
    """Return work that computes all figures of verification."""
    return functools.partial(lambda scores, same: evaluation.verification(scores, same).figures(), *make_scores())


def compute_sort() -> Callable[[], object]:
    """Return work that sorts the scores."""
    return make_scores()[0].sort


TITLES = {
    "retrieval": f"retrieval, {FEATURES:,} × {DIM}, all measures",
    "pairs": f"all pairs of {FEATURES:,} × {DIM}",
    "report": f"verification report of {SCORES:,} scores",
}
WORK: dict[str, tuple[str, str, str, Callable[[], Callable[[], object]]]] = {
    "retrieval": ("retrieval", "hypersphere", "6 s, 0.4 GiB", compute_retrieval),
    "peer": ("retrieval", "pytorch-metric-learning, 3 measures without mAP", "–", compute_peer),
    "product": ("retrieval", "the product in float32 alone", "–", functools.partial(compute_product, torch.float32)),
    "pairs": ("pairs", "hypersphere", "10 s", compute_all_pairs),
    "double": ("pairs", "the product in float64, twice as many pairs", "–", functools.partial(compute_product, torch.float64)),
    "report": ("report", "hypersphere", "5 s", compute_report),
    "sort": ("report", "one sort", "–", compute_sort),
}  # fmt: skip


def search_rows(seconds: float) -> list[list[object]]:
    """Compare exact search with a product and topk, and with faiss, interleaved in this process."""
    rows: list[list[object]] = []
    generator = torch.Generator().manual_seed(0)
    gallery = F.normalize(torch.randn(GALLERY, DIM, generator=generator))
    for count in (1, 16, 256):
        probes = F.normalize(torch.randn(count, DIM, generator=generator))
        work: dict[str, Callable[[], object]] = {
            "baseline": functools.partial(search, probes, gallery, K, normalized=True),
            "product and topk": lambda probes=probes: (probes @ gallery.T).topk(K),  # type: ignore[misc]
        }
        if importlib.util.find_spec("faiss") is not None:
            import faiss

            faiss.omp_set_num_threads(torch.get_num_threads())
            index = faiss.IndexFlatIP(DIM)
            index.add(gallery.numpy())
            work[f"faiss {faiss.__version__} IndexFlatIP"] = functools.partial(index.search, probes.numpy(), K)
        title = f"exact search, {GALLERY:,} × {DIM}, {count} probes"
        best = _harness.time_interleaved(work, rounds=9)
        rows.append([title, "hypersphere", f"{1000 * best['baseline']:.1f} ms", "–", "faiss"])
        for name, ratio in _harness.compare(work, "baseline", seconds=seconds).items():
            rows.append([title, name, f"{1000 * best[name]:.1f} ms, {ratio} of hypersphere", "–", "–"])
    return rows


def main() -> None:
    """Measure each piece of work in a fresh process, then search."""
    p = _harness.make_parser(__doc__)
    p.add_argument(
        "--seconds", type=float, default=10.0, help="longest time per comparison of search, in seconds (%(default)s)"
    )
    p.set_defaults(threads=1, rounds=2)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    if args.memory:
        run = WORK[args.memory[0]][3]()
        start = time.process_time()
        extra = _harness.measure_peak(run)
        print(time.process_time() - start, extra)
        return
    rows: list[list[object]] = []
    for name, (title, what, aim, _) in WORK.items():
        if name == "peer" and importlib.util.find_spec("pytorch_metric_learning") is None:
            continue
        command = [sys.executable, __file__, "--threads", str(args.threads), "--memory", name]
        runs = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(args.rounds)]
        seconds, memory = min(tuple(map(float, run.split()[-2:])) for run in runs)
        rows.append([TITLES[title], what, f"{seconds:.1f} s", f"{memory / 1024:.2f} GiB", aim])
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    rows += search_rows(args.seconds)
    notes = (
        "Features lie around the means of identities (mAP 0.36, EER of all pairs 7 %). Memory does not include the "
        "input.\nFor search, the interval is that of the ratio over interleaved rounds."
    )
    header = ["work", "way", "CPU time", "extra memory", "aim, at most"]
    how = f"the least of {args.rounds} fresh processes; search: the least of 9 interleaved rounds."
    _harness.write_report("evaluation", "Evaluations of many features", header, rows, args, notes, how)


if __name__ == "__main__":
    main()
