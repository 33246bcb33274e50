"""Measure the service under load, compared with a loop that decodes the same pictures and calls the embedder.

Goals: at most three times the CPU time of the loop per request, constant memory, no acknowledged enrollment lost by a kill. CPU
seconds are those of the server process. Requests per second and p99 are wall-clock times on a machine shared with the clients.
``--minutes 10`` tests for growth of memory.
"""

import io
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import _harness
import httpx
import numpy as np
import torch
from PIL import Image

from hypersphere.config import call
from hypersphere.data import PicturePreprocessing
from hypersphere.data.images import decode_image
from hypersphere.models import cnn3
from hypersphere.recognition import Embedder, Gallery

SIZE = (64, 64)


def make_pictures(count: int) -> list[bytes]:
    """Return JPEG files of smooth patterns with 256×256 pixels."""
    made = []
    for i in range(count):
        random = np.random.default_rng(i)
        coarse = Image.fromarray(random.integers(0, 255, (8, 8, 3), dtype=np.uint8)).resize((256, 256))
        file = io.BytesIO()
        coarse.save(file, "JPEG", quality=90)
        made.append(file.getvalue())
    return made


def make_embedder() -> Embedder:
    made = call(cnn3, num_classes=None, widths=(32, 64, 64), in_channels=3, input_size=SIZE, feature_dim=128)
    torch.manual_seed(0)
    return Embedder(made.build(), PicturePreprocessing(SIZE, 3), made)


class ServiceProcess:
    """``hypersphere serve`` in a separate process."""

    def __init__(self, folder: pathlib.Path, threads: int):
        command = [
            sys.executable,
            "-m",
            "hypersphere.cli.main",
            "serve",
            str(folder / "model"),
            str(folder / "people.db"),
        ]
        limits = ["--limit", "per_minute=1e9", "--limit", "burst=1000000"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            [*command, "--port", "0", *limits],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line
        self.address = found[0]

    def cpu(self) -> float:
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Resident MiB."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=60, trust_env=False)

    def load(self, images: list[bytes], seconds: float, clients: int) -> tuple[list[float], float, float]:
        """Search with several clients; return the seconds of each search, the CPU seconds of the server, and all seconds."""
        took: list[float] = []
        end = time.perf_counter() + seconds

        def ask(number: int) -> None:
            with self.client() as client:
                i = number
                while time.perf_counter() < end:
                    start = time.perf_counter()
                    client.post("/v1/search", files={"image": images[i % len(images)]}).raise_for_status()
                    took.append(time.perf_counter() - start)
                    i += 1

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
        cpu, start = self.cpu(), time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return took, self.cpu() - cpu, time.perf_counter() - start

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.communicate(timeout=60)


def embed_in_loop(model: Embedder, images: list[bytes], seconds: float) -> tuple[int, float]:
    """Embed pictures one by one for some seconds; return their number and the CPU seconds."""
    count, cpu, end = 0, time.process_time(), time.perf_counter() + seconds
    while time.perf_counter() < end:
        model(decode_image(images[count % len(images)], "picture"))
        count += 1
    return count, time.process_time() - cpu


def kill_while_enrolling(folder: pathlib.Path, images: list[bytes], times: int, threads: int) -> tuple[int, int]:
    """Kill the service repeatedly while it enrolls; return the numbers of acknowledged and of lost enrollments."""
    acknowledged: list[str] = []
    for turn in range(times):
        served = ServiceProcess(folder, threads)

        def enrol(served: ServiceProcess = served, turn: int = turn) -> None:
            with served.client() as client:
                for i in range(10**6):
                    name = f"killed {turn} {i}"
                    try:
                        client.post("/v1/persons", data={"name": name}, files={"image": images[i % len(images)]})
                    except httpx.HTTPError:
                        return
                    acknowledged.append(name)

        thread = threading.Thread(target=enrol)
        thread.start()
        time.sleep(1.0 + 0.137 * turn)
        served.stop(signal.SIGKILL)
        thread.join()
    with Gallery(folder / "people.db", create=False) as gallery:
        assert gallery.check() == []
        return len(acknowledged), len(set(acknowledged) - set(gallery.list()))


def main() -> None:
    parser = _harness.make_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=0.5, help="of load while memory is watched (%(default)s)")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kills", type=int, default=2)
    parser.set_defaults(rounds=3, threads=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    folder = pathlib.Path(tempfile.mkdtemp())
    model, images = make_embedder(), make_pictures(64)
    model.save(folder / "model")
    with Gallery(folder / "people.db", model) as gallery:
        gallery.enrol([f"person {i}" for i in range(1000)], torch.randn(1000, 128))
        gallery.calibrate(fpir=0.01, strangers=torch.randn(1000, 128), people=range(1000))
    served = ServiceProcess(folder, args.threads)
    served.load(images, 2, args.clients)
    slices, alone = args.rounds, [float("inf"), float("inf")]
    best = {1: [float("inf")] * 2, args.clients: [float("inf")] * 2}
    waits: dict[int, list[float]] = {count: [] for count in best}
    rates = dict.fromkeys(best, 0.0)
    memory = [served.memory()]  # then every 10 s
    for _ in range(slices):
        count, cpu = embed_in_loop(model, images, 2)
        alone = min(alone, [cpu / count, 2 / count])
        for clients in best:
            took, cpu, wall = served.load(images, 2, clients)
            best[clients] = min(best[clients], [cpu / len(took), 0.0])
            rates[clients] = max(rates[clients], len(took) / wall)
            waits[clients] += took
    end, requests = time.perf_counter() + 60 * args.minutes, 0
    while time.perf_counter() < end:
        requests += len(served.load(images, min(10.0, 60 * args.minutes), args.clients)[0])
        memory.append(served.memory())
    served.stop()
    known, lost = kill_while_enrolling(folder, images, args.kills, args.threads)
    rows: list[list[object]] = [["decode and embed in a loop", 1e3 * alone[0], 1.0, 1 / alone[1], "–"]]
    for clients, (cpu, _) in best.items():
        p99 = 1e3 * sorted(waits[clients])[int(0.99 * len(waits[clients]))]
        name = f"/v1/search, {clients} client{'s' if clients > 1 else ''}"
        rows.append([name, 1e3 * cpu, cpu / alone[0], rates[clients], p99])
    minutes = ", ".join(f"{size:.0f}" for size in memory[6::6]) or "–"
    half = len(memory) // 2
    notes = (
        f"JPEGs of 256×256 into a network for 64×64, gallery of 1000. Memory: {memory[0]:.0f} MiB after the first load, "
        f"at the end of each minute of load by {args.clients} clients {minutes} MiB; the largest of the first half is "
        f"{max(memory[1 : half + 1]):.1f} and of the second {max(memory[half:]):.1f} MiB "
        f"({args.minutes:g} minutes, {requests} requests). Killed {args.kills} times while enrolling: {known} acknowledged, {lost} lost. "
        "Rates and p99 share two cores with the clients and with other work of the machine."
    )
    header = ["method", "CPU ms per picture", "ratio", "pictures/s, wall", "p99, ms, wall"]
    how = f"{args.rounds} interleaved rounds of 2 s, the least CPU time and the highest rate of each; p99 over all."
    _harness.write_report("service", "The service under load", header, rows, args, notes, how)


if __name__ == "__main__":
    main()
