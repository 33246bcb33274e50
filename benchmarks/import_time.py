"""What `import hypersphere` adds to `import torch`: CPU seconds of fresh interpreters, interleaved, the least of several."""

import resource
import subprocess
import sys

import _harness


def cpu_seconds(statement: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    args = _harness.parser(__doc__).parse_args()
    statements = ["import torch", "import torch, hypersphere"]
    best = {
        s: min(times)
        for s, times in zip(
            statements,
            zip(*[[cpu_seconds(s) for s in statements] for _ in range(args.rounds)], strict=True),
            strict=True,
        )
    }
    floor = best["import torch"]
    rows: list[list[object]] = [[s, best[s], best[s] / floor] for s in statements]
    _harness.report("import_time", "Time to import", ["statement", "CPU s", "ratio"], rows, args, "Aim: at most 1.15.")


if __name__ == "__main__":
    main()
