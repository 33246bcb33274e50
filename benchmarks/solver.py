"""Compare `minimize_energy` with the best known arrangements of Tammes' and Thomson's problems, and measure its time.

python benchmarks/solver.py --threads 1 --record               # make the missing rows of reports/solver.jsonl
python benchmarks/solver.py --only tammes --points 15 33 60    # some sizes, printed only
"""

import math
import pathlib
import time

import _rows
import torch
from _harness import make_parser, write_report

from hypersphere.energy import minimize_energy

ROWS = pathlib.Path(__file__).parent / "reports" / "solver.jsonl"

# Degrees, from Sloane's tables of spherical codes in three dimensions, which give seven digits.
FIRST = """
109.4712206 90.0000000 90.0000000 77.8695421 74.8584922 70.5287794 66.1468220 63.4349488 63.4349488 57.1367031 55.6705700
53.6578501 52.2443957 51.0903285 49.5566548 47.6919141 47.4310362 45.6132231 44.7401612 43.7099642 43.6907671 41.6344612
41.0376616 40.6776007 39.3551436 38.7136512 38.5971159 37.7098291 37.4752140 36.2545530 35.8077844 35.3198076 35.1897322
34.4224080 34.2506607 33.4890466 33.1583563 32.7290944 32.5063863 32.0906244 31.9834230 31.3230814 30.9591635 30.7818159
30.7627855 29.9235851 29.7529564
"""
TAMMES = dict(enumerate(map(float, FIRST.split()), 4)) | {
    60: 27.1928300,
    70: 25.1709200,
    80: 23.5530672,
    100: 21.0312020,
}
THOMSON = {  # energies, from the tables of Wikipedia's article on Thomson's problem
    4: 3.674234614,
    5: 6.474691495,
    8: 19.675287861,
    12: 49.165253058,
    20: 150.881568334,
    32: 412.261274651,
    50: 1055.182314726,
    200: 18438.842717530,
}
LIMITS = {"tammes": 20, "thomson": 30}  # CPU seconds
ROUNDING = {"tammes": 6e-8, "thomson": 6e-9}  # of the tables


def main() -> None:
    p = make_parser(__doc__)
    p.add_argument("--only", choices=LIMITS)
    p.add_argument("--points", type=int, nargs="+", help="numbers of points; all of the tables by default")
    p.add_argument("--starts", type=int, help="of Tammes' problem, whose result more starts can only improve")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    rows = _rows.read_rows(ROWS) if args.record else []
    done = {(row["problem"], row["points"]) for row in rows if row["threads"] == args.threads}
    for problem, table in (("tammes", TAMMES), ("thomson", THOMSON)):
        for n, best in table.items():
            selected = args.only in (None, problem) and (args.points is None or n in args.points)
            if selected and (problem, n) not in done:
                rows.append(
                    {"threads": args.threads, **_solve(problem, n, best, args.starts if problem == "tammes" else None)}
                )
                if args.record:
                    _rows.append_row(ROWS, rows[-1])
    chosen = sorted((row for row in rows if row["threads"] == args.threads), key=lambda row: row["points"])
    for problem in LIMITS:
        _write_table(problem, [row for row in chosen if row["problem"] == problem], args)


def _solve(problem: str, n: int, best: float, starts: int | None) -> dict[str, object]:
    start = time.process_time()
    _, value = minimize_energy(n, 3, math.inf if problem == "tammes" else 1, starts=starts)
    found = math.degrees(value) if problem == "tammes" else value.item()
    seconds = time.process_time() - start
    print(problem, n, f"{found:.10f}", f"{found - best:+.1e}", f"{seconds:.1f} s", flush=True)
    return {
        "problem": problem,
        "points": n,
        "found": found,
        "best": best,
        "seconds": round(seconds, 2),
        "starts": starts or "default",
    }


def _write_table(problem: str, rows: list[dict], args) -> None:
    if not rows:
        return
    sign = 1 if problem == "tammes" else -1
    reached = sum(sign * (row["found"] - row["best"]) >= -ROUNDING[problem] for row in rows)
    in_time = sum(row["seconds"] <= LIMITS[problem] for row in rows)
    write_report(
        f"solver_{problem}_{args.threads}",
        {"tammes": "Tammes' problem on the sphere", "thomson": "Thomson's problem"}[problem],
        ["points", "found", "best known", "difference", "CPU s", "starts"],
        [
            [
                row["points"],
                f"{row['found']:.9f}",
                f"{row['best']:.{7 if problem == 'tammes' else 9}f}",
                f"{row['found'] - row['best']:+.1e}",
                row["seconds"],
                row["starts"],
            ]
            for row in rows
        ],
        args,
        f"{reached} of {len(rows)} reach the best known value within the rounding of its table, {in_time} within the aim of "
        f"{LIMITS[problem]} CPU seconds. `minimize_energy` with seed 0 and the starts of the last column"
        + ("; degrees." if problem == "tammes" else ", s = 1."),
        how="one run of each, CPU time of the whole process.",
    )


if __name__ == "__main__":
    main()
