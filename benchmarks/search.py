"""Exact nearest neighbors: the ten nearest of 256 probes in a gallery of a million features of dimension 512."""

import _harness
import torch

from hypersphere.recognition import search

PROBES, DIM, K = 256, 512, 10


def unit(rows: int, seed: int) -> torch.Tensor:
    """Random unit features, made in parts so that making them needs no second gallery."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.empty(rows, DIM)
    for part in features.split(50_000):
        part.normal_(generator=generator)
        part /= part.norm(dim=1, keepdim=True)
    return features


def whole(probes: torch.Tensor, gallery: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The plain way: all scores at once."""
    return tuple((probes @ gallery.T).topk(K))


def faiss_flat(probes: torch.Tensor, gallery: torch.Tensor, threads: int):
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatIP(DIM)
    index.add(gallery.numpy())
    return lambda: index.search(probes.numpy(), K)


def main() -> None:
    parser = _harness.parser(__doc__)
    parser.add_argument("--gallery", type=int, default=1_000_000)
    parser.set_defaults(rounds=5)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    gallery, probes = unit(args.gallery, 0), unit(PROBES, 1)
    work = {
        "search, unit features": lambda: search(probes, gallery, K, normalized=True),
        "search": lambda: search(probes, gallery, K),
        "one product, then topk": lambda: whole(probes, gallery),
    }
    if args.memory:
        print(_harness.measure_peak(work[" ".join(args.memory)]))
        return
    memory = {name: _harness.peak_memory(__file__, name, "--gallery", str(args.gallery)) for name in work}
    notes = "Memory is what a call adds to the gallery itself."
    try:
        work["faiss IndexFlatIP"] = faiss_flat(probes, gallery, args.threads)
        found = torch.from_numpy(work["faiss IndexFlatIP"]()[1])
        notes += f" The same indices as faiss for {(found == work['search']()[1]).double().mean().item():.2%} of the neighbors."
    except ModuleNotFoundError:
        notes += " faiss is not installed: no row for it."
    seconds = _harness.interleaved(work, args.rounds)
    floor = seconds["search, unit features"]
    rows = [[name, s, s / floor, memory.get(name, "–")] for name, s in seconds.items()]
    title = f"Exact top-{K} of {PROBES} probes in {args.gallery}×{DIM}"
    _harness.report(
        "search", title, ["way", "CPU s", "ratio", "extra MiB"], rows, args, notes + " Aim: not slower than faiss-flat."
    )


if __name__ == "__main__":
    main()
