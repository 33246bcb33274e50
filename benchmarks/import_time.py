"""Measure the CPU time of `import hypersphere` relative to `import torch`, in fresh interpreters."""

import resource
import subprocess
import sys

import _harness


def measure_cpu(statement: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    args = _harness.make_parser(__doc__).parse_args()
    statements = ["import torch", "import torch, hypersphere"]
    best = {
        s: min(times)
        for s, times in zip(
            statements,
            zip(*[[measure_cpu(s) for s in statements] for _ in range(args.rounds)], strict=True),
            strict=True,
        )
    }
    floor = best["import torch"]
    rows: list[list[object]] = [[s, best[s], best[s] / floor] for s in statements]
    _harness.write_report(
        "import_time", "Time to import", ["statement", "CPU s", "ratio"], rows, args, "Aim: at most 1.15."
    )


if __name__ == "__main__":
    main()
