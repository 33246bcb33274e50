"""Does orthogonal fine-tuning forget less? A transformer trained here, then tuned to other classes in four ways.

An nGPT learns 50 classes of Tiny-ImageNet at 32×32; every seed then draws 20 other classes and 100 images of each. A head
is trained on frozen features (head-only); from there OFT, LoRA and full tuning go on with head and backbone. What is kept
of the old classes is measured with the old head on the tuned backbone, and with the nearest mean of the old classes' tuned
features. Rates are chosen on a draw of classes that no test seed sees.

python benchmarks/finetune_study.py choose    # pretrain, then the rates: some minutes of one core
python benchmarks/finetune_study.py run       # the test rows that are missing
python benchmarks/finetune_study.py rewind    # rows of rewinding and of scaled rates that are missing
python benchmarks/finetune_study.py --record  # the report from the rows
"""

import copy
import json
import math
import pathlib
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from _harness import parser
from finetune_study_data import NEW, OLD, WORK, Split, batches, chosen, images, order, prepared, split
from torch import Tensor, nn

import hypersphere as hs

ROWS = pathlib.Path(__file__).parent / "reports" / "finetune_study.jsonl"
MODEL: dict[str, Any] = {"depth": 3, "dim": 96, "heads": 3, "patch": 8}
EPOCHS, PRETRAIN_RATE, PRETRAIN_BATCH = 7, 4e-3, 128
STEPS, BATCH, HEAD_STEPS = 150, 64, 400
MOMENTS = (10, 25, 60, 150)  # the steps after which old and new classes are measured
SEEDS, CHOICE = (0, 1, 2), 3  # the draw of classes whose images choose the rates is a fourth one
GRID = (3e-4, 1e-3, 3e-3)  # grows by factors of about three while the best rate is at its edge
LADDER = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
BLOCK, RANK = 32, 7  # with these OFT and LoRA learn about as many numbers


class LoRA(nn.Module):
    """A frozen linear layer and a product of rank r beside it: Wx + B(Ax), B zero at the start (Hu et al., 2021)."""

    def __init__(self, layer: nn.Linear, rank: int):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, layer.in_features) / math.sqrt(layer.in_features))
        self.b = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + x @ self.a.mT @ self.b.mT


def with_oft(net: nn.Module) -> nn.Module:
    """Every linear layer of the blocks behind a rotation."""
    return hs.orthogonal.finetune(net, "oft", block=BLOCK, only=[nn.Linear], classifier=False)


def with_lora(net: nn.Module) -> nn.Module:
    """Every linear layer of the blocks with a low-rank product beside it."""
    net.requires_grad_(False)
    for module in list(net.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and not isinstance(module, LoRA):
                setattr(module, name, LoRA(child, RANK))
    return net


METHODS: dict[str, Callable[[nn.Module], nn.Module]] = {"OFT": with_oft, "LoRA": with_lora, "full": lambda net: net}


def schedule(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
    """A short warm-up, then a half cosine to zero."""
    warm = steps // 20
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: min((i + 1) / warm, 0.5 + 0.5 * math.cos(math.pi * max(i - warm, 0) / (steps - warm)))
    )


def pretrained(data: dict[str, tuple[Tensor, Tensor]]) -> hs.models.NGPT:
    """The network of the old classes, trained once for all seeds and kept."""
    torch.manual_seed(0)
    net = hs.models.ngpt(OLD, **MODEL)
    path = WORK / "pretrained.pt"
    if path.exists():
        net.load_state_dict(torch.load(path))
        return net
    old = chosen(data["train"], order()[:OLD], 0, 500)
    optimizer = torch.optim.AdamW(net.parameters(), lr=PRETRAIN_RATE, weight_decay=0)
    steps = EPOCHS * len(old[1]) // PRETRAIN_BATCH
    plan, start = schedule(optimizer, steps), time.process_time()
    for i, (x, y) in enumerate(batches(old, PRETRAIN_BATCH, steps, 0)):
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plan.step()
        net.renormalize_()
        if i % 100 == 99:
            print(f"pretraining {i + 1}/{steps}, loss {loss:.2f}, {time.process_time() - start:.0f} s", flush=True)
    torch.save(net.state_dict(), path)
    if not known(phase="pretraining"):  # the same network again is no new row
        keep({"phase": "pretraining", "seconds": round(time.process_time() - start), "loss": round(loss.item(), 3)})
    return net


@torch.no_grad()
def features(net: nn.Module, pictures: Tensor) -> Tensor:
    """Of pictures, in pieces."""
    return torch.cat([net.features(prepared(piece)) for piece in pictures.split(256)])


def percent(scores: Tensor, labels: Tensor) -> float:
    """How often the largest score is that of the label."""
    return 100 * (scores.argmax(1) == labels).float().mean().item()


class Old:
    """What is measured about the old classes: their test images by the old head and by the nearest mean."""

    def __init__(self, data: dict[str, tuple[Tensor, Tensor]], head: nn.Module):
        classes = order()[:OLD]
        self.test, self.known = chosen(data["val"], classes, 0, 50), chosen(data["train"], classes, 0, 40)
        self.head = head

    def measure(self, net: nn.Module, means: bool) -> dict[str, float]:
        """Accuracies in percent."""
        found = features(net, self.test[0])
        result = {"old": percent(self.head(found), self.test[1])}
        if means:
            sums = torch.zeros(OLD, found.shape[1]).index_add(0, self.known[1], features(net, self.known[0]))
            result["old_means"] = percent(found @ F.normalize(sums).mT, self.test[1])
        return result


def probed(net: nn.Module, part: Split, rate: float, seed: int) -> nn.Linear:
    """A head for the new classes on the frozen features of the images and their mirror images."""
    torch.manual_seed(seed)
    found = torch.stack([features(net, part.train[0]), features(net, part.train[0].flip(-1))])
    head = nn.Linear(found.shape[2], NEW)
    optimizer = torch.optim.AdamW(head.parameters(), lr=rate, weight_decay=0)
    plan = schedule(optimizer, HEAD_STEPS)
    for _ in range(HEAD_STEPS):
        rows = torch.randint(len(part.train[1]), (BATCH,))
        loss = F.cross_entropy(head(found[torch.randint(2, (BATCH,)), rows]), part.train[1][rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plan.step()
    return head


def tune(base: nn.Module, method: str, rate: float, head: nn.Linear, head_rate: float, part: Split, old: Old, row: Any):
    """Tune head and backbone; the row gets accuracies along the way, parameters and time, and is kept."""
    torch.manual_seed(row["seed"])
    net, head = copy.deepcopy(base), copy.deepcopy(head)
    net.classifier = nn.Identity()
    net = METHODS[method](net)
    learned = [p for p in net.parameters() if p.requires_grad]
    groups = [{"params": learned, "lr": rate}, {"params": head.parameters(), "lr": head_rate}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0)
    plan, spent, curve = schedule(optimizer, STEPS), [], []
    measured = part.held if row["phase"] == "choice" else part.test
    for i, (x, y) in enumerate(batches(part.train, BATCH, STEPS, row["seed"])):
        start = time.process_time()
        loss = F.cross_entropy(head(net.features(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if method == "full":
            net.renormalize_()
        plan.step()
        spent.append(time.process_time() - start)
        if i + 1 in (MOMENTS if row["phase"] != "choice" else MOMENTS[-1:]):
            new = percent(head(features(net, measured[0])), measured[1])
            curve.append({"step": i + 1, "new": new, **old.measure(net, i + 1 == STEPS)})
    more = {"parameters": sum(p.numel() for p in learned), "ms": 1000 * sorted(spent)[len(spent) // 2], "curve": curve}
    return keep({**row, "method": method, "rate": rate, **more})


def rows() -> list[dict[str, Any]]:
    """What is recorded."""
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def keep(row: dict[str, Any]) -> dict[str, Any]:
    """Append a row and return it."""
    with ROWS.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)
    return row


def known(**fields: Any) -> list[dict[str, Any]]:
    """The rows with these values."""
    return [r for r in rows() if all(r.get(key) == value for key, value in fields.items())]


def best(method: str) -> float | None:
    """The rate with the highest held-out accuracy at the end; None while the best one tried is at the edge."""
    tried = sorted((r["rate"], r["curve"][-1]["new"]) for r in known(phase="choice", method=method))
    top = max(range(len(tried)), key=lambda i: tried[i][1], default=0)
    return tried[top][0] if 0 < top < len(tried) - 1 else None


def head_only(net: nn.Module, part: Split, old: Old, rate: float, phase: str, seed: int) -> nn.Linear:
    """The head that every other method starts from, and its row."""
    start = time.process_time()
    head = probed(net, part, rate, seed)
    if not known(phase=phase, method="head-only", seed=seed, rate=rate):
        measured = part.held if phase == "choice" else part.test
        spent = time.process_time() - start
        curve = [{"step": 0, "new": percent(head(features(net, measured[0])), measured[1]), **old.measure(net, True)}]
        row = {"phase": phase, "seed": seed, "method": "head-only", "rate": rate, "parameters": 0}
        keep({**row, "ms": 1000 * spent / HEAD_STEPS, "curve": curve})
    return head


def choose(data: dict[str, tuple[Tensor, Tensor]]) -> None:
    """The rows that the rates are chosen by: a grid for each method, longer where its best rate is at the edge."""
    net = pretrained(data)
    old, part = Old(data, copy.deepcopy(net.classifier)), split(data, CHOICE)
    for rate in LADDER[4:]:
        head_only(net, part, old, rate, "choice", CHOICE)
    head_rate = best("head-only")
    assert head_rate is not None, "the best rate of the head is at the edge of its grid"
    head = head_only(net, part, old, head_rate, "choice", CHOICE)
    for method in METHODS:
        missing = list(GRID)
        while missing:
            for rate in missing:
                if not known(phase="choice", method=method, rate=rate):
                    row = {"phase": "choice", "seed": CHOICE}
                    tune(net, method, rate, head, head_rate, part, old, row)
            tried = [LADDER.index(r["rate"]) for r in known(phase="choice", method=method)]
            scores = {r["rate"]: r["curve"][-1]["new"] for r in known(phase="choice", method=method)}
            below = max(scores, key=scores.__getitem__) == LADDER[min(tried)]
            missing = [] if best(method) else [LADDER[min(tried) - 1 if below else max(tried) + 1]]


def run(data: dict[str, tuple[Tensor, Tensor]]) -> None:
    """Every test row that is missing: first all seeds at the chosen rates, then all at the next smaller ones."""
    net, head_rate = pretrained(data), best("head-only")
    assert head_rate is not None
    old = Old(data, copy.deepcopy(net.classifier))
    for phase in ("test", "gentler"):
        for seed in SEEDS:
            part = split(data, seed)
            head = head_only(net, part, old, head_rate, "test", seed)
            for method in METHODS:
                rate = best(method)
                assert rate is not None, f"choose the rate of {method} first"
                rate = rate if phase == "test" else LADDER[LADDER.index(rate) - 1]
                if not known(phase=phase, method=method, seed=seed):
                    tune(net, method, rate, head, head_rate, part, old, {"phase": phase, "seed": seed})


SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
SCALED_RATE = 0.07  # 3e-3, the rate chosen for blocks of 32, times the root of their 496 generator entries
REWIND_SEEDS = (0, 1, 2, 4, 5)  # draw 3 chose the rates


def tune_steps(net: nn.Module, head: nn.Linear, groups: list[dict[str, Any]], part: Split, seed: int) -> None:
    """Tune head and backbone for all steps."""
    optimizer = torch.optim.AdamW(groups, weight_decay=0)
    plan = schedule(optimizer, STEPS)
    for x, y in batches(part.train, BATCH, STEPS, seed):
        loss = F.cross_entropy(head(net.features(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plan.step()


def rewind_rows(data: dict[str, tuple[Tensor, Tensor]]) -> None:
    """Every missing row of rewinding (OFT with scaled rates, and LoRA) and of rates for other block sizes.

    A row of rewinding has, for every share of the learned change, the accuracy on validation images of the new classes,
    which chooses the share, and those on the test images of new and old classes.
    """
    net, head_rate = pretrained(data), 3e-3
    old = Old(data, copy.deepcopy(net.classifier))
    for seed in REWIND_SEEDS:
        part = split(data, seed)
        head = probed(net, part, head_rate, seed)
        for method, options in {"OFT": {"block": BLOCK}, "LoRA": {"rank": RANK}}.items():
            if known(phase="rewind", method=method, seed=seed):
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
                held = percent(own_head(features(rewound, part.held[0])), part.held[1])
                new = percent(own_head(features(rewound, part.test[0])), part.test[1])
                curve.append({"t": t, "held": held, "new": new, **old.measure(rewound, False)})
            keep({"phase": "rewind", "seed": seed, "method": method, "rate": rate, "curve": curve})
    part = split(data, CHOICE)
    head = probed(net, part, head_rate, CHOICE)
    for block in (8, 32, 96):
        for rule, rate in {"scaled": SCALED_RATE, "plain": 3e-3}.items():
            if known(phase="rates", block=block, rule=rule):
                continue
            torch.manual_seed(CHOICE)
            tuned, own_head = copy.deepcopy(net), copy.deepcopy(head)
            tuned.classifier = nn.Identity()
            tuned = hs.orthogonal.finetune(tuned, "oft", block=block, only=[nn.Linear], classifier=False)
            groups = hs.orthogonal.group_finetuned(tuned, rate, scale=rule == "scaled")
            groups.append({"params": list(own_head.parameters()), "lr": head_rate})
            tune_steps(tuned, own_head, groups, part, CHOICE)
            new = percent(own_head(features(tuned, part.held[0])), part.held[1])
            keep(
                {"phase": "rates", "block": block, "rule": rule, "rate": rate, "held": new, **old.measure(tuned, False)}
            )


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "action", nargs="?", choices=["choose", "run", "rewind"], help="without it the rows are reported"
    )
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    if args.action is None:
        from finetune_study_report import write

        write(rows(), args)
        return
    {"choose": choose, "run": run, "rewind": rewind_rows}[args.action](images())


if __name__ == "__main__":
    main()
