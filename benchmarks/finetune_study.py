"""Measure how much fine-tuning by OFT, LoRA and all weights forgets.

An nGPT learns 50 classes of Tiny-ImageNet at 32×32. Each seed draws 20 other classes with 100 images each. A head is trained on
frozen features (head-only). From there, OFT, LoRA and full fine-tuning train head and backbone. The accuracy on the old classes is
measured with the old head on the tuned backbone, and with the nearest class mean of the tuned features. Learning rates are chosen on
a draw of classes that no test seed uses.

python benchmarks/finetune_study.py choose    # pretrain and choose the learning rates: some minutes on one core
python benchmarks/finetune_study.py run       # make the missing test rows
python benchmarks/finetune_study.py rewind    # make the missing rows of rewinding and of scaled learning rates
python benchmarks/finetune_study.py --record  # write the report
"""

import copy
import json
import math
import pathlib
import time
from collections.abc import Callable
from typing import Any

import _rows
import torch
import torch.nn.functional as F
from _harness import make_parser
from finetune_study_data import (
    NEW,
    OLD,
    WORK,
    Split,
    draw_batches,
    load_images,
    make_split,
    scale_pixels,
    select_images,
    shuffle_classes,
)
from torch import Tensor, nn

import hypersphere as hs

ROWS = pathlib.Path(__file__).parent / "reports" / "finetune_study.jsonl"
MODEL: dict[str, Any] = {"depth": 3, "dim": 96, "heads": 3, "patch": 8}
EPOCHS, PRETRAIN_RATE, PRETRAIN_BATCH = 7, 4e-3, 128
STEPS, BATCH, HEAD_STEPS = 150, 64, 400
EVALUATED_STEPS = (10, 25, 60, 150)  # old and new classes are measured after these steps
SEEDS, CHOICE = (0, 1, 2), 3  # the fourth draw of classes chooses the learning rates
GRID = (3e-4, 1e-3, 3e-3)  # extended along LADDER while the best learning rate is at its edge
LADDER = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
BLOCK, RANK = 32, 7  # OFT and LoRA then have about the same number of parameters


class LoRA(nn.Module):
    """A frozen linear layer plus a product of rank r: Wx + B(Ax), B starts at zero (Hu et al., 2021)."""

    def __init__(self, layer: nn.Linear, rank: int):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, layer.in_features) / math.sqrt(layer.in_features))
        self.b = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + x @ self.a.mT @ self.b.mT


def add_oft(net: nn.Module) -> nn.Module:
    """Rotate every linear layer of the blocks."""
    return hs.orthogonal.finetune(net, "oft", block=BLOCK, only=[nn.Linear], classifier=False)


def add_lora(net: nn.Module) -> nn.Module:
    """Add a low-rank product to every linear layer of the blocks."""
    net.requires_grad_(False)
    for module in list(net.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and not isinstance(module, LoRA):
                setattr(module, name, LoRA(child, RANK))
    return net


METHODS: dict[str, Callable[[nn.Module], nn.Module]] = {"OFT": add_oft, "LoRA": add_lora, "full": lambda net: net}


def make_schedule(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
    """Return a schedule with a short warm-up and a half cosine to zero."""
    warm = steps // 20
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: min((i + 1) / warm, 0.5 + 0.5 * math.cos(math.pi * max(i - warm, 0) / (steps - warm)))
    )


def load_pretrained(data: dict[str, tuple[Tensor, Tensor]]) -> hs.models.NGPT:
    """Return the network trained on the old classes; it is trained once for all seeds and stored."""
    torch.manual_seed(0)
    net = hs.models.ngpt(OLD, **MODEL)
    path = WORK / "pretrained.pt"
    if path.exists():
        net.load_state_dict(torch.load(path))
        return net
    old = select_images(data["train"], shuffle_classes()[:OLD], 0, 500)
    optimizer = torch.optim.AdamW(net.parameters(), lr=PRETRAIN_RATE, weight_decay=0)
    steps = EPOCHS * len(old[1]) // PRETRAIN_BATCH
    plan, start = make_schedule(optimizer, steps), time.process_time()
    for i, (x, y) in enumerate(draw_batches(old, PRETRAIN_BATCH, steps, 0)):
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plan.step()
        net.renormalize_()
        if i % 100 == 99:
            print(f"pretraining {i + 1}/{steps}, loss {loss:.2f}, {time.process_time() - start:.0f} s", flush=True)
    torch.save(net.state_dict(), path)
    if not find_rows(phase="pretraining"):  # training the same network again adds no row
        append_row(
            {"phase": "pretraining", "seconds": round(time.process_time() - start), "loss": round(loss.item(), 3)}
        )
    return net


@torch.no_grad()
def compute_features(net: nn.Module, pictures: Tensor) -> Tensor:
    """Return the features of pictures, computed in batches."""
    return torch.cat([net.features(scale_pixels(piece)) for piece in pictures.split(256)])


def compute_accuracy(scores: Tensor, labels: Tensor) -> float:
    """Return the accuracy in percent."""
    return 100 * (scores.argmax(1) == labels).float().mean().item()


class OldClasses:
    """Evaluation on the old classes, with the old head and with the nearest class mean."""

    def __init__(self, data: dict[str, tuple[Tensor, Tensor]], head: nn.Module):
        classes = shuffle_classes()[:OLD]
        self.test, self.known = select_images(data["val"], classes, 0, 50), select_images(data["train"], classes, 0, 40)
        self.head = head

    def measure(self, net: nn.Module, means: bool) -> dict[str, float]:
        """Return accuracies in percent."""
        found = compute_features(net, self.test[0])
        result = {"old": compute_accuracy(self.head(found), self.test[1])}
        if means:
            sums = torch.zeros(OLD, found.shape[1]).index_add(0, self.known[1], compute_features(net, self.known[0]))
            result["old_means"] = compute_accuracy(found @ F.normalize(sums).mT, self.test[1])
        return result


def train_head(net: nn.Module, part: Split, rate: float, seed: int) -> nn.Linear:
    """Train a head for the new classes on frozen features of the images and their mirror images."""
    torch.manual_seed(seed)
    found = torch.stack([compute_features(net, part.train[0]), compute_features(net, part.train[0].flip(-1))])
    head = nn.Linear(found.shape[2], NEW)
    optimizer = torch.optim.AdamW(head.parameters(), lr=rate, weight_decay=0)
    plan = make_schedule(optimizer, HEAD_STEPS)
    for _ in range(HEAD_STEPS):
        rows = torch.randint(len(part.train[1]), (BATCH,))
        loss = F.cross_entropy(head(found[torch.randint(2, (BATCH,)), rows]), part.train[1][rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plan.step()
    return head


def tune(
    base: nn.Module, method: str, rate: float, head: nn.Linear, head_rate: float, part: Split, old: OldClasses, row: Any
):
    """Tune head and backbone, and record a row with accuracies over time, the number of parameters and the time per step."""
    torch.manual_seed(row["seed"])
    net, head = copy.deepcopy(base), copy.deepcopy(head)
    net.classifier = nn.Identity()
    net = METHODS[method](net)
    learned = [p for p in net.parameters() if p.requires_grad]
    groups = [{"params": learned, "lr": rate}, {"params": head.parameters(), "lr": head_rate}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0)
    plan, spent, curve = make_schedule(optimizer, STEPS), [], []
    measured = part.held if row["phase"] == "choice" else part.test
    for i, (x, y) in enumerate(draw_batches(part.train, BATCH, STEPS, row["seed"])):
        start = time.process_time()
        loss = F.cross_entropy(head(net.features(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if method == "full":
            net.renormalize_()
        plan.step()
        spent.append(time.process_time() - start)
        if i + 1 in (EVALUATED_STEPS if row["phase"] != "choice" else EVALUATED_STEPS[-1:]):
            new = compute_accuracy(head(compute_features(net, measured[0])), measured[1])
            curve.append({"step": i + 1, "new": new, **old.measure(net, i + 1 == STEPS)})
    more = {"parameters": sum(p.numel() for p in learned), "ms": 1000 * sorted(spent)[len(spent) // 2], "curve": curve}
    return append_row({**row, "method": method, "rate": rate, **more})


def read_rows() -> list[dict[str, Any]]:
    """Return the recorded rows."""
    return _rows.read_rows(ROWS)


def append_row(row: dict[str, Any]) -> dict[str, Any]:
    """Append a row and return it."""
    _rows.append_row(ROWS, row)
    print(json.dumps(row), flush=True)
    return row


def find_rows(**fields: Any) -> list[dict[str, Any]]:
    """Return the rows with these values."""
    return [r for r in read_rows() if all(r.get(key) == value for key, value in fields.items())]


def find_best_rate(method: str) -> float | None:
    """Return the learning rate with the highest validation accuracy; None while the best one is at the edge of the grid."""
    tried = sorted((r["rate"], r["curve"][-1]["new"]) for r in find_rows(phase="choice", method=method))
    top = max(range(len(tried)), key=lambda i: tried[i][1], default=0)
    return tried[top][0] if 0 < top < len(tried) - 1 else None


def measure_head(net: nn.Module, part: Split, old: OldClasses, rate: float, phase: str, seed: int) -> nn.Linear:
    """Train the head that every other method starts from, and record its row."""
    start = time.process_time()
    head = train_head(net, part, rate, seed)
    if not find_rows(phase=phase, method="head-only", seed=seed, rate=rate):
        measured = part.held if phase == "choice" else part.test
        spent = time.process_time() - start
        curve = [
            {
                "step": 0,
                "new": compute_accuracy(head(compute_features(net, measured[0])), measured[1]),
                **old.measure(net, True),
            }
        ]
        row = {"phase": phase, "seed": seed, "method": "head-only", "rate": rate, "parameters": 0}
        append_row({**row, "ms": 1000 * spent / HEAD_STEPS, "curve": curve})
    return head


def choose_rates(data: dict[str, tuple[Tensor, Tensor]]) -> None:
    """Make the rows that choose the learning rates: a grid per method, extended while its best entry is at the edge."""
    net = load_pretrained(data)
    old, part = OldClasses(data, copy.deepcopy(net.classifier)), make_split(data, CHOICE)
    for rate in LADDER[4:]:
        measure_head(net, part, old, rate, "choice", CHOICE)
    head_rate = find_best_rate("head-only")
    assert head_rate is not None, "the best rate of the head is at the edge of its grid"
    head = measure_head(net, part, old, head_rate, "choice", CHOICE)
    for method in METHODS:
        missing = list(GRID)
        while missing:
            for rate in missing:
                if not find_rows(phase="choice", method=method, rate=rate):
                    row = {"phase": "choice", "seed": CHOICE}
                    tune(net, method, rate, head, head_rate, part, old, row)
            tried = [LADDER.index(r["rate"]) for r in find_rows(phase="choice", method=method)]
            scores = {r["rate"]: r["curve"][-1]["new"] for r in find_rows(phase="choice", method=method)}
            below = max(scores, key=scores.__getitem__) == LADDER[min(tried)]
            missing = [] if find_best_rate(method) else [LADDER[min(tried) - 1 if below else max(tried) + 1]]


def run_tests(data: dict[str, tuple[Tensor, Tensor]]) -> None:
    """Make the missing test rows: first all seeds at the chosen learning rates, then all at the next smaller ones."""
    net, head_rate = load_pretrained(data), find_best_rate("head-only")
    assert head_rate is not None
    old = OldClasses(data, copy.deepcopy(net.classifier))
    for phase in ("test", "gentler"):
        for seed in SEEDS:
            part = make_split(data, seed)
            head = measure_head(net, part, old, head_rate, "test", seed)
            for method in METHODS:
                rate = find_best_rate(method)
                assert rate is not None, f"choose the rate of {method} first"
                rate = rate if phase == "test" else LADDER[LADDER.index(rate) - 1]
                if not find_rows(phase=phase, method=method, seed=seed):
                    tune(net, method, rate, head, head_rate, part, old, {"phase": phase, "seed": seed})


SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
SCALED_RATE = 0.07  # 3e-3, the learning rate chosen for blocks of 32, times the root of their 496 generator entries
REWIND_SEEDS = (0, 1, 2, 4, 5)  # draw 3 chose the learning rates


def tune_steps(net: nn.Module, head: nn.Linear, groups: list[dict[str, Any]], part: Split, seed: int) -> None:
    """Tune head and backbone for all steps."""
    optimizer = torch.optim.AdamW(groups, weight_decay=0)
    plan = make_schedule(optimizer, STEPS)
    for x, y in draw_batches(part.train, BATCH, STEPS, seed):
        loss = F.cross_entropy(head(net.features(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plan.step()


def run_rewinds(data: dict[str, tuple[Tensor, Tensor]]) -> None:
    """Make the missing rows of rewinding (OFT with scaled learning rates, and LoRA) and of learning rates for other block sizes.

    A row of rewinding has three accuracies for every share of the learned change: on validation images of the new classes, which
    choose the share, and on test images of new and of old classes.
    """
    net, head_rate = load_pretrained(data), 3e-3
    old = OldClasses(data, copy.deepcopy(net.classifier))
    for seed in REWIND_SEEDS:
        part = make_split(data, seed)
        head = train_head(net, part, head_rate, seed)
        for method, options in {"OFT": {"block": BLOCK}, "LoRA": {"rank": RANK}}.items():
            if find_rows(phase="rewind", method=method, seed=seed):
                continue
            torch.manual_seed(seed)
            tuned, own_head = copy.deepcopy(net), copy.deepcopy(head)
            tuned.classifier = nn.Identity()
            tuned = hs.orthogonal.finetune(tuned, method.lower(), only=[nn.Linear], classifier=False, **options)
            rate = SCALED_RATE if method == "OFT" else 3e-3
            groups = hs.orthogonal.group_finetuned(tuned, rate)
            groups.append({"params": list(own_head.parameters()), "lr": head_rate})
            tune_steps(tuned, own_head, groups, part, seed)
            curve = []
            for t in SHARES:
                rewound = hs.orthogonal.rewind(copy.deepcopy(tuned), t)
                held = compute_accuracy(own_head(compute_features(rewound, part.held[0])), part.held[1])
                new = compute_accuracy(own_head(compute_features(rewound, part.test[0])), part.test[1])
                curve.append({"t": t, "held": held, "new": new, **old.measure(rewound, False)})
            append_row({"phase": "rewind", "seed": seed, "method": method, "rate": rate, "curve": curve})
    part = make_split(data, CHOICE)
    head = train_head(net, part, head_rate, CHOICE)
    for block in (8, 32, 96):
        for rule, rate in {"scaled": SCALED_RATE, "plain": 3e-3}.items():
            if find_rows(phase="rates", block=block, rule=rule):
                continue
            torch.manual_seed(CHOICE)
            tuned, own_head = copy.deepcopy(net), copy.deepcopy(head)
            tuned.classifier = nn.Identity()
            tuned = hs.orthogonal.finetune(tuned, "oft", block=block, only=[nn.Linear], classifier=False)
            groups = hs.orthogonal.group_finetuned(tuned, rate, scale=rule == "scaled")
            groups.append({"params": list(own_head.parameters()), "lr": head_rate})
            tune_steps(tuned, own_head, groups, part, CHOICE)
            new = compute_accuracy(own_head(compute_features(tuned, part.held[0])), part.held[1])
            append_row(
                {"phase": "rates", "block": block, "rule": rule, "rate": rate, "held": new, **old.measure(tuned, False)}
            )


def main() -> None:
    options = make_parser(__doc__)
    options.add_argument("action", nargs="?", choices=["choose", "run", "rewind"], help="without it, print the report")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    if args.action is None:
        from finetune_study_report import write_tables

        write_tables(read_rows(), args)
        return
    {"choose": choose_rates, "run": run_tests, "rewind": run_rewinds}[args.action](load_images())


if __name__ == "__main__":
    main()
