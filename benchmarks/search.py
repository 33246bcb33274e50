"""Measure exact search: the ten nearest of 256 probes in a gallery of a million features of dimension 512."""

import _harness
import torch

from hypersphere.recognition import search

PROBES, DIM, K = 256, 512, 10


def draw_features(rows: int, seed: int) -> torch.Tensor:
    """Draw random unit features in parts, to avoid a second copy of the gallery."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.empty(rows, DIM)
    for part in features.split(50_000):
        part.normal_(generator=generator)
        part /= part.norm(dim=1, keepdim=True)
    return features


def search_by_product(probes: torch.Tensor, gallery: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Search with one product of all scores."""
    return tuple((probes @ gallery.T).topk(K))


def make_faiss_search(probes: torch.Tensor, gallery: torch.Tensor, threads: int):
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatIP(DIM)
    index.add(gallery.numpy())
    return lambda: index.search(probes.numpy(), K)


def main() -> None:
    parser = _harness.make_parser(__doc__)
    parser.add_argument("--gallery", type=int, default=1_000_000)
    parser.set_defaults(rounds=5)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    gallery, probes = draw_features(args.gallery, 0), draw_features(PROBES, 1)
    work = {
        "search, unit features": lambda: search(probes, gallery, K, normalized=True),
        "search": lambda: search(probes, gallery, K),
        "one product, then topk": lambda: search_by_product(probes, gallery),
    }
    if args.memory:
        print(_harness.measure_peak(work[" ".join(args.memory)]))
        return
    memory = {name: _harness.peak_memory(__file__, name, "--gallery", str(args.gallery)) for name in work}
    notes = "Memory is what a call adds to the gallery itself."
    try:
        work["faiss IndexFlatIP"] = make_faiss_search(probes, gallery, args.threads)
        found = torch.from_numpy(work["faiss IndexFlatIP"]()[1])
        notes += f" The same indices as faiss for {(found == work['search']()[1]).double().mean().item():.2%} of the neighbors."
    except ModuleNotFoundError:
        notes += " faiss is not installed: no row for it."
    seconds = _harness.time_interleaved(work, args.rounds)
    floor = seconds["search, unit features"]
    rows = [[name, s, s / floor, memory.get(name, "–")] for name, s in seconds.items()]
    title = f"Exact top-{K} of {PROBES} probes in {args.gallery}×{DIM}"
    _harness.write_report(
        "search", title, ["way", "CPU s", "ratio", "extra MiB"], rows, args, notes + " Aim: not slower than faiss-flat."
    )


if __name__ == "__main__":
    main()
