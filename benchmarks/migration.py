"""Migration of a gallery from one face model to another without pictures, on LFW: how much is lost, by the number of common pictures.

People of folds 5–9 with two pictures are enrolled by their first picture; their others are probes. The map is learned from
pictures of people of folds 0–4. Features come from ``_lfw_faces.py``:

    python benchmarks/migration.py --old sface --new dlib-resnet [--record]
"""

import _harness
import torch
from _lfw_faces import load_faces

from hypersphere.data.lfw import LFW
from hypersphere.evaluation import choose_threshold
from hypersphere.geometry import normalize
from hypersphere.recognition.migration import learn_map

FPIR = 0.01
COMMON = (256, 1024, 4096)  # pictures that the map is learned from


def select(features: torch.Tensor, central: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the directions of the central faces of some pictures, in float64."""
    return normalize(features[central[rows]].double())


def measure(templates: torch.Tensor, probes: torch.Tensor, owner: torch.Tensor, strangers: torch.Tensor) -> list[float]:
    """Return rank-1, and TPIR at the threshold that accepts 1 % of the strangers."""
    templates = normalize(templates)
    threshold = choose_threshold((strangers @ templates.T).amax(1), fpir=FPIR).threshold
    best, who = (probes @ templates.T).max(1)
    right = who == owner
    return [right.double().mean().item(), (right & (best >= threshold)).double().mean().item()]


def main() -> None:
    parser = _harness.parser(__doc__)
    parser.add_argument("--old", default="sface")
    parser.add_argument("--new", default="dlib-resnet")
    parser.add_argument("--accept-licence", metavar="NAME")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    data = LFW()
    old, new = (load_faces(data, name, accept_licence=args.accept_licence) for name in (args.old, args.new))
    usable = (old.central >= 0) & (new.central >= 0)
    fold, labels = data.people(), data.labels
    counts = torch.bincount(labels[usable], minlength=len(data.classes))
    rows = (usable & (fold >= 5)).nonzero().flatten()
    enrolled, probes, strangers, seen = [], [], [], {}
    for row in rows.tolist():
        person = int(labels[row])
        if counts[person] == 1:
            strangers.append(row)
        elif person in seen:
            probes.append(row)
        else:
            seen[person] = len(enrolled)
            enrolled.append(row)
    owner = torch.tensor([seen[int(labels[row])] for row in probes])
    gallery, asked, others = (torch.tensor(part) for part in (enrolled, probes, strangers))
    common = (usable & (fold >= 0) & (fold < 5)).nonzero().flatten()
    common = common[torch.randperm(len(common), generator=torch.Generator().manual_seed(0))]
    old_templates = select(old.features, old.central, gallery)
    mine, theirs = select(new.features, new.central, asked), select(new.features, new.central, others)
    again = measure(select(new.features, new.central, gallery), mine, owner, theirs)
    before = measure(
        old_templates,
        select(old.features, old.central, asked),
        owner,
        select(old.features, old.central, others),
    )
    table: list[list[object]] = []
    for name, values in ((f"{args.old}, the old gallery", before), (f"{args.new}, all pictures embedded again", again)):
        table.append([name, "", f"{values[0]:.1%}", f"{values[1]:.1%}", ""])
    for count in (*(c for c in COMMON if c < len(common)), len(common)):
        part = common[:count]
        mapping = learn_map(select(old.features, old.central, part), select(new.features, new.central, part))
        values = measure(mapping(old_templates), mine, owner, theirs)
        lost = f"{100 * (again[1] - values[1]):.1f} points"
        table.append(["mapped", f"{count:,}", f"{values[0]:.1%}", f"{values[1]:.1%}", lost])
    notes = (
        f"{len(gallery)} people of folds 5–9 are enrolled by one picture each, {len(asked)} further pictures of them are "
        f"probes, {len(others)} people with one picture are strangers; the threshold accepts 1 % of them. The map is learned "
        "from pictures of folds 0–4, whose people are not enrolled."
    )
    header = ["templates", "common pictures", "rank-1", "TPIR at FPIR 1 %", "lost"]
    title = f"Migration from {args.old} to {args.new} without pictures"
    _harness.report(f"migration_{args.new}", title, header, table, args, notes, "exact search by cosine.")


if __name__ == "__main__":
    main()
