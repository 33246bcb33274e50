"""Measure how much recognition is lost if a gallery migrates to another face model without pictures, on LFW.

Two pictures of each of some people are embedded by both models. The map is learned from half of the people and measured on
the other half, and the other way round:

    python benchmarks/migration.py --old sface --new dlib-resnet [--record]
"""

import _harness
import torch
from _lfw_faces import load_faces

from hypersphere.data.lfw import LFW
from hypersphere.evaluation import wilson
from hypersphere.recognition.migration import measure_loss


def find_pictures(data: LFW, people: int) -> torch.Tensor:
    """Return the first two pictures of people drawn at random among those with several."""
    counts = torch.bincount(data.labels)
    several = (counts >= 2).nonzero().flatten()
    chosen = several[torch.randperm(len(several), generator=torch.Generator().manual_seed(0))[:people]]
    return torch.cat([(data.labels == one).nonzero().flatten()[:2] for one in chosen]).sort().values


def main() -> None:
    parser = _harness.make_parser(__doc__)
    parser.add_argument("--old", default="sface")
    parser.add_argument("--new", default="dlib-resnet")
    parser.add_argument("--people", type=int, default=500)
    parser.add_argument("--accept-licence", metavar="NAME")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    data = LFW()
    rows = find_pictures(data, args.people)
    old, new = (load_faces(data, name, rows, accept_licence=args.accept_licence) for name in (args.old, args.new))
    rows = rows[(old.central[rows] >= 0) & (new.central[rows] >= 0)]
    sides = [faces.features[faces.central[rows]] for faces in (old, new)]
    table: list[list[object]] = []
    for title, features in ((f"{args.old} to {args.new}", sides), (f"{args.old} to itself", [sides[0], sides[0]])):
        found = measure_loss(*features, data.labels[rows])
        assert found is not None
        cells = [
            _format(value, found.people) for value in (found.rank_1, found.rank_1_mapped, found.tpir, found.tpir_mapped)
        ]
        table.append([title, *cells, f"{100 * (found.tpir - found.tpir_mapped):.1f}"])
    notes = (
        f"{args.people} people with two pictures each, {len(rows)} pictures. One picture of a person is the template, the other "
        f"the probe; a probe is a stranger's when it is compared with everybody else. The map of one half of the people is "
        f"learned from the {len(rows) // 2} pictures of the other half."
    )
    header = [
        "migration",
        "rank-1, embedded again",
        "rank-1, mapped",
        "TPIR at FPIR 1 %, embedded again",
        "mapped",
        "points lost",
    ]
    title = f"Migration from {args.old} to {args.new} without pictures"
    _harness.write_report(f"migration_{args.new}", title, header, table, args, notes, "exact search by cosine.")


def _format(share: float, people: int) -> str:
    found = wilson(round(share * people), people)
    return f"{found:.1%} [{found.low:.1%}, {found.high:.1%}]"


if __name__ == "__main__":
    main()
