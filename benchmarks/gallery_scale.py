"""Measure memory per template, time per probe and recall of exact, 8-bit and HNSW search (faiss), for the page "Scale"."""

import time
from collections.abc import Callable

import _harness
import torch

from hypersphere.recognition._search import DenseRows, exact_search

DIM, K, PROBES = 512, 10, 256


def draw_people(count: int, seed: int, noise: float = 0.6) -> tuple[torch.Tensor, torch.Tensor]:
    """Return four unit templates per person around a random direction, and probes of some people at a cosine of about 0.74."""
    generator = torch.Generator().manual_seed(seed)
    unit = torch.nn.functional.normalize
    spread = noise / DIM**0.5
    centers = unit(torch.randn(count // 4, DIM, generator=generator))
    templates = unit(centers.repeat_interleave(4, 0) + spread * torch.randn(count // 4 * 4, DIM, generator=generator))
    return templates, unit(centers[:PROBES] + spread * torch.randn(PROBES, DIM, generator=generator))


def main() -> None:
    parser = _harness.make_parser(__doc__)
    parser.add_argument("--templates", type=int, default=20_000)
    parser.set_defaults(rounds=3, threads=1)
    args = parser.parse_args()
    import faiss

    torch.set_num_threads(args.threads)
    faiss.omp_set_num_threads(args.threads)
    templates, probes = draw_people(args.templates, 0)
    lengths = templates.norm(dim=1)
    ways: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "exact, float32": lambda p: exact_search(p, DenseRows(templates, lengths=lengths), K)[1]
    }
    built, size = {"exact, float32": 0.0}, {"exact, float32": 4 * DIM + 20}
    graph = faiss.IndexHNSWFlat(DIM, 32, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efSearch = 128
    eight = faiss.IndexScalarQuantizer(DIM, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
    for name, index, bytes_each in (("8 bits", eight, DIM), ("HNSW, 32 links", graph, 4 * DIM + 2 * 32 * 4)):
        start = time.process_time()
        if not index.is_trained:
            index.train(templates.numpy())
        index.add(templates.numpy())
        built[name], size[name] = time.process_time() - start, bytes_each
        ways[name] = lambda p, index=index: torch.from_numpy(index.search(p.numpy(), K)[1])
    exact = ways["exact, float32"](probes)
    one = _harness.time_interleaved(
        {n: lambda f=f: f(probes[:1]) for n, f in ways.items()}, args.rounds, min_seconds=0.2
    )
    many = _harness.time_interleaved({n: lambda f=f: f(probes) for n, f in ways.items()}, args.rounds)
    rows = []
    for name, find in ways.items():
        hits = [len(set(a) & set(b)) for a, b in zip(exact.tolist(), find(probes).tolist(), strict=True)]
        first = (find(probes)[:, 0] == exact[:, 0]).double().mean().item()
        rows.append(
            [
                name,
                size[name],
                f"{1e6 * built[name] / len(templates):.0f}",
                f"{1e3 * one[name]:.2f}",
                f"{1e9 * one[name] / len(templates):.0f}",
                f"{1e3 * many[name] / PROBES:.2f}",
                f"{sum(hits) / K / PROBES:.1%}",
                f"{first:.1%}",
            ]
        )
    header = [
        "search", "bytes a template", "build, µs a template", "1 probe, ms", "the same, ns a template",
        "1 of 256 probes, ms", f"recall of {K}", "recall of the first",
    ]  # fmt: skip
    title = f"Search among {len(templates)} templates of {len(templates) // 4} people, d = {DIM}"
    _harness.write_report(
        "gallery_scale", title, header, rows, args, "CPU time. HNSW with efSearch 128, efConstruction 40."
    )


if __name__ == "__main__":
    main()
