"""Compare average linkage with other clusterings for grouping LFW (sface) and Omniglot (characters) without labels.

Settings are chosen on one half of the identities, and figures are reported on the other. Features are cached outside the
repository:

    python benchmarks/grouping.py --cache FOLDER [--record]
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import numpy as np
import torch
from _lfw_faces import load_faces

from hypersphere import load
from hypersphere.data import LFW, Omniglot
from hypersphere.evaluation import ClusteringReport, clustering
from hypersphere.evaluation.score_calibration import LogisticCalibration
from hypersphere.recognition import Album, Constraints, grouping
from hypersphere.recognition.grouping_calibration import calibrate_features

_graphs: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
_neighbor_graph = grouping.build_neighbor_graph


def get_cached_graph(features: torch.Tensor, neighbors: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the neighbor graph of the features, computed once for all methods."""
    if len(features) not in _graphs:
        start = time.process_time()
        _graphs[len(features)] = _neighbor_graph(features, neighbors)
        print(f"graph of {len(features)} samples: {time.process_time() - start:.1f} s", flush=True)
    return _graphs[len(features)]


REPORT = Path(__file__).parent / "reports" / "grouping.md"
MAX_MERGED = 0.01  # share of identities
Labels = torch.Tensor


class Set:
    """Features of samples with photograph and identity; metrics count only labeled samples."""

    def __init__(self, features: torch.Tensor, labels: Labels, photographs: torch.Tensor, labeled: torch.Tensor):
        self.features, self.labels, self.photographs, self.labeled = features, labels, photographs, labeled

    def part(self, keep: torch.Tensor) -> "Set":
        """Return the samples that ``keep`` selects."""
        return Set(self.features[keep], self.labels[keep], self.photographs[keep], self.labeled[keep])

    def measure(self, groups: torch.Tensor) -> ClusteringReport:
        """Return the clustering metrics of the labeled samples."""
        return clustering(self.labels[self.labeled], groups[self.labeled])


def load_lfw() -> tuple[Set, Set, float]:
    """Return all faces of folds 0–4, all faces of folds 5–9, and the CPU seconds per photograph.

    Only the largest face of a photograph has its label.
    """
    data = LFW()
    index, features, _, seconds = load_faces(data, "sface")
    first = torch.cat([torch.ones(1, dtype=torch.bool), index[1:] != index[:-1]])
    whole, fold = Set(features, data.labels[index], index, first), data.people()[index]
    return whole.part(fold < 5), whole.part(fold >= 5), seconds


def load_omniglot(cache: Path) -> tuple[Set, Set]:
    """Return drawings of the even and of the odd alphabets of the evaluation set, which is not in the training set."""
    file, data = cache / "omniglot_characters.npz", Omniglot(background=False)
    if not file.exists():
        embedder = load("characters")
        pictures = [embedder(list(block)).numpy() for block in data.data.split(256)]
        np.savez(file, features=np.concatenate(pictures))
    with np.load(file) as stored:
        features = torch.tensor(stored["features"])
    kept = torch.arange(len(features)) % 2 == 0  # ten drawings per character
    whole = Set(features, data.labels, torch.arange(len(features)), torch.ones(len(features), dtype=torch.bool))
    even = data.alphabets % 2 == 0
    return whole.part(kept & even), whole.part(kept & ~even)


Method = Callable[[Set, LogisticCalibration], torch.Tensor]


def list_methods() -> Iterator[tuple[str, str, Method]]:
    """Yield name, setting and function of every candidate."""
    for growth, priors in ((0.0, (1e-3, 3e-4)), (0.2, (1e-3, 3e-4, 1e-4)), (0.3, (1e-4,))):
        for prior in priors:
            name = f"average linkage, γ = {growth:g}"
            yield name, f"prior {prior:g}", lambda s, c, p=prior, g=growth: group_by_average_linkage(s, c, p, g)
    for probability in (0.99, 0.999):
        yield (
            "connected components",
            f"probability {probability:g} at prior 0.01",
            lambda s, c, p=probability: group_by_components(s, c, p),
        )
    for how in ("eom", "leaf"):  # an ε other than 0 fails in scikit-learn 1.9.1 with this NumPy
        yield "HDBSCAN", f"size 2, {how}", lambda s, c, h=how: group_by_hdbscan(s, h)
    for resolution in (0.02, 0.2):
        yield (
            "Leiden (constant Potts)",
            f"resolution {resolution:g}, prior 0.001",
            lambda s, c, r=resolution: group_by_leiden(s, c, r),
        )


def group_by_average_linkage(data: Set, calibration: LogisticCalibration, prior: float, growth: float) -> torch.Tensor:
    """Group by average linkage, the method of the library."""
    before, grouping.EVIDENCE_GROWTH = grouping.EVIDENCE_GROWTH, growth
    try:
        return grouping.group_features(
            data.features, calibration, Constraints(photographs=data.photographs.tolist()), prior=prior
        )
    finally:
        grouping.EVIDENCE_GROWTH = before


def group_by_components(data: Set, calibration: LogisticCalibration, probability: float) -> torch.Tensor:
    """Group samples that are connected by a chain of likely neighbors."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    first, second, cosines = grouping.build_neighbor_graph(data.features, grouping.DEFAULT_NEIGHBORS)
    likely = calibration.probability(torch.tensor(cosines), 0.01).numpy() >= probability
    shape = (len(data.features), len(data.features))
    graph = coo_matrix((np.ones(likely.sum()), (first[likely], second[likely])), shape)
    return torch.tensor(connected_components(graph, directed=False)[1]).long()


def group_by_hdbscan(data: Set, how: str) -> torch.Tensor:
    """Group unit features with HDBSCAN of scikit-learn and the Euclidean distance."""
    from sklearn.cluster import HDBSCAN

    unit = torch.nn.functional.normalize(data.features).numpy()
    clusters = HDBSCAN(min_cluster_size=2, min_samples=1, cluster_selection_method=how, copy=True).fit(unit)
    return torch.tensor(clusters.labels_).long()


def group_by_leiden(data: Set, calibration: LogisticCalibration, resolution: float) -> torch.Tensor:
    """Group with Leiden and the constant Potts model; edges are weighted by probability."""
    import igraph
    import leidenalg

    first, second, cosines = grouping.build_neighbor_graph(data.features, grouping.DEFAULT_NEIGHBORS)
    weights = calibration.probability(torch.tensor(cosines), 1e-3).numpy()
    kept = weights > 0.01
    graph = igraph.Graph(len(data.features), list(zip(first[kept].tolist(), second[kept].tolist(), strict=True)))
    partition = leidenalg.find_partition(
        graph, leidenalg.CPMVertexPartition, weights=weights[kept].tolist(), resolution_parameter=resolution, seed=0
    )
    return torch.tensor(partition.membership)


def compare(name: str, choose: Set, report: Set, log: Path) -> list[dict[str, object]]:
    """Measure every candidate on ``choose`` and the best setting of each method on ``report``; return the rows."""
    calibration = calibrate_features(choose.features[choose.labeled], choose.labels[choose.labeled])
    rows: list[dict[str, object]] = []
    tried: dict[str, list[tuple[float, float, str, Method]]] = {}
    for method, setting, function in list_methods():
        result, seconds = measure_method(function, choose, calibration)
        merged = result.merged_identities / result.identities
        tried.setdefault(method, []).append((merged, result.bcubed_f, setting, function))
        rows.append(record_row(name, "choosing", method, setting, result, seconds, log))
    for method, settings in tried.items():
        # The best B-cubed F of the settings that merge at most 1 % of the identities, otherwise the setting that merges fewest.
        pure = [entry for entry in settings if entry[0] <= MAX_MERGED]
        best = max(pure, key=lambda entry: entry[1]) if pure else min(settings, key=lambda entry: entry[0])
        result, seconds = measure_method(best[3], report, calibration)
        rows.append(record_row(name, "reported", method, best[2], result, seconds, log))
    default, seconds = measure_method(
        lambda s, c: group_by_average_linkage(s, c, grouping.DEFAULT_PRIOR, grouping.EVIDENCE_GROWTH),
        report,
        calibration,
    )
    rows.append(record_row(name, "reported", "defaults", f"prior {grouping.DEFAULT_PRIOR:g}", default, seconds, log))
    print(name, calibration, flush=True)
    return rows


def measure_method(function: Method, data: Set, calibration: LogisticCalibration) -> tuple[ClusteringReport, float]:
    """Run a method and return its metrics and CPU seconds."""
    start = time.process_time()
    groups = function(data, calibration)
    return data.measure(groups), time.process_time() - start


def record_row(
    data: str, part: str, method: str, setting: str, result: ClusteringReport, seconds: float, log: Path
) -> dict[str, object]:
    """Append a row of the table to the log and return it."""
    cells = {
        "data": data,
        "part": part,
        "method": method,
        "setting": setting,
        "pairwise F": result.pairwise_f,
        "pairwise precision": result.pairwise_precision,
        "pairwise recall": result.pairwise_recall,
        "B-cubed F": result.bcubed_f,
        "merged": f"{result.merged_identities} of {result.identities}",
        "groups": result.groups,
        "unassigned": result.unassigned,
        "seconds": seconds,
    }
    with open(log, "a") as file:
        file.write(json.dumps(cells) + "\n")
    print(json.dumps(cells), flush=True)
    return cells


def measure_kept_names(data: Set, calibration: LogisticCalibration, folder: Path) -> dict[str, float]:
    """Return the share of named samples that keep their name when photographs are added.

    Every group of the first half of the photographs is named; then the second half is added.
    """
    path = folder / "survival.album"
    grouping.build_neighbor_graph = _neighbor_graph
    path.unlink(missing_ok=True)
    half = data.photographs % 2 == 0
    with Album(path) as album:
        old = album.add_features(data.features[half], [str(i) for i in data.photographs[half].tolist()])
        album.group(calibration)
        for group in album.groups():
            album.name(group.id, f"person {group.id}")
        names = {group.id: group.name for group in album.groups()}
        before = {one.id: names[one.group] for one in album.samples() if one.group is not None}
        start = time.process_time()
        new = album.add_features(data.features[~half], [str(i) for i in data.photographs[~half].tolist()])
        album.group(calibration)
        seconds = time.process_time() - start
        names = {group.id: group.name for group in album.groups()}
        after = {one.id: names.get(one.group) for one in album.samples()}
        groups = {one.id: -1 if one.group is None else one.group for one in album.samples()}
    kept = sum(after[one] == name for one, name in before.items()) / len(before)
    order = torch.cat([half.nonzero(), (~half).nonzero()]).squeeze(1)
    result = data.part(order).measure(torch.tensor([groups[one] for one in old + new]))
    merged = result.merged_identities / result.identities
    return {"kept": kept, "named": len(before), "pairwise F": result.pairwise_f, "merged": merged, "seconds": seconds}


def main() -> None:
    """Print the rows; with ``--record`` write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True, help="folder for features, outside the repository")
    parser.add_argument("--record", action="store_true", help="write benchmarks/reports/grouping.md")
    parser.add_argument("--only", choices=["lfw", "omniglot", "survival"])
    args = parser.parse_args()
    args.cache.mkdir(parents=True, exist_ok=True)
    log = args.cache / "grouping.jsonl"
    grouping.build_neighbor_graph = cached_graph  # shared by all methods, so times include the clustering only
    choose, report, seconds = load_lfw()
    rows: list[dict[str, object]] = []
    if args.only in (None, "lfw"):
        rows += compare("LFW, sface", choose, report, log)
    if args.only in (None, "omniglot"):
        rows += compare("Omniglot, characters", *load_omniglot(args.cache), log)
    calibration = calibrate_features(choose.features[choose.labeled], choose.labels[choose.labeled])
    kept = measure_kept_names(report, calibration, args.cache)
    print(json.dumps({"survival": kept, "seconds per photograph": seconds}), flush=True)
    if args.record:
        REPORT.write_text(format_report(rows, kept, seconds), encoding="utf-8")


def format_report(rows: list[dict[str, object]], kept: dict[str, float], seconds: float) -> str:
    """Return the report as Markdown."""
    lines = [
        "# Grouping without labels",
        "",
        f"{date.today()}, one thread, torch {torch.__version__.partition('+')[0]}; `benchmarks/grouping.py`. Settings are chosen "
        "on one half of the identities (LFW: folds 0–4, Omniglot: even alphabets of the evaluation set) by the best B-cubed F "
        "among those that merge at most 1 % of the identities, and reported on the other half. An identity is merged if "
        "another identity has the same main group. Seconds are CPU time of the clustering without the shared graph of 64 "
        "neighbors. LFW has a few people under two names, which count as merged.",
        "",
        f"Finding, aligning and embedding all faces of a photograph takes {1e3 * seconds:.0f} ms of CPU (LFW, 128×128).",
        "",
        f"Names: every group of the first half of the photographs of folds 5–9 was named ({kept['named']:.0f} samples); after "
        f"the second half was added, {kept['kept']:.2%} of them had the same name. Pairwise F {kept['pairwise F']:.4f}, "
        f"{kept['merged']:.2%} of people merged, {kept['seconds']:.1f} s for the second half.",
        "",
    ]
    for part in ("reported", "choosing"):
        lines += [f"## {part.capitalize()}", ""]
        names = ["data", "method", "setting", "pairwise F", "pairwise precision", "pairwise recall", "B-cubed F"]
        names += ["merged", "groups", "unassigned", "seconds"]
        lines += [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
        for one in rows:
            if one["part"] == part:
                cells = [f"{one[name]:.4f}" if isinstance(one[name], float) else str(one[name]) for name in names]
                lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
