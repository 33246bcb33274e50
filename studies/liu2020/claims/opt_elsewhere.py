"""Claim: orthogonal training helps graphs, clouds of points and few-shot recognition too (tables 7.10–7.12)."""

from hypersphere.config import Call, call
from hypersphere.data import Planetoid
from hypersphere.objectives import Softmax
from hypersphere.orthogonal import overparameterize
from hypersphere.recipes.chapter7 import opt_few_shot, opt_gcn_cora, opt_pointnet
from hypersphere.training import Config, replace

from ..arms import Arm, Training
from ..claim import Check, Claim, Published, Size, read_text
from ..claim_pictures import bars
from ..tuning import Tuning, rates

METHODS: dict[str, Call | None] = {
    "baseline": None,
    "OPT (CP)": call(overparameterize, method="cayley"),
    # F.3 adds a rotation to the usual setting of graph networks, and does not say whether their weights are still trained.
    "OPT (CP), trained neurons": call(overparameterize, method="cayley", train_neurons=True),
}
GROUPS = {
    "Cora": tuple(METHODS),
    "Citeseer": ("baseline", "OPT (CP)"),
    "PointNet": ("baseline", "OPT (CP)", "OPT (CP), trained neurons"),
    "few-shot": ("baseline", "OPT (CP)"),
}


def arms(size: Size) -> dict[str, Arm]:
    """Each network as its recipe has it, with its neurons trained or rotated."""
    graph, episodes = opt_gcn_cora(size), opt_few_shot(size)
    if size == "laptop":
        graph = replace(graph, head=call(Softmax))  # with a bias, as the rows were recorded
        episodes = replace(episodes, steps=900, evaluate_every=900, checkpoint_every=300, channels_last=True)
    base = {
        "Cora": graph,
        "Citeseer": replace(graph, data=call(Planetoid, name="citeseer")),
        "PointNet": opt_pointnet(size),
        "few-shot": episodes,
    }
    found: dict[str, Arm] = {}
    for group, names in GROUPS.items():
        for name in names:
            found[f"{group}/{name}"] = Training(replace(base[group], orthogonal=METHODS[name]))
    return found


def _short(config: Config) -> Config:
    """The graph's run as it is, a third of the others'."""
    steps = config.steps if config.data.target is Planetoid else config.steps // 3
    return replace(config, steps=steps, evaluate_every=steps, checkpoint_every=steps)


def _below(group: str, name: str, published: tuple[float, float] | None = None) -> Check:
    arm, than = f"{group}/{name}", f"{group}/baseline"
    return Check(f"{group}, error: {name} below baseline", "error", arm, than, False, published=published)


CLAIM = Claim(
    id="opt-elsewhere",
    title="Orthogonal training elsewhere",
    text=read_text("opt-elsewhere"),
    published=(
        Published("7.11", "accuracy (%) of the GCN on Cora", {"baseline": 81.3, "OPT (CP)": 82.0, "OPT (OGD)": 82.3}),
        Published("7.12", "accuracy (%) of PointNet on ModelNet40", {"baseline": 87.1, "OPT (CP)": 87.86}),
        Published("7.10", "5-way 5-shot accuracy (%)", {"baseline": 62.53, "OPT": 63.27}),
    ),
    arms=arms,
    about=("orthogonal", "orthogonal.*"),
    metrics={
        "error": "test error (%)",
        "energy": "energy at the end",
        "accuracy": "accuracy, of episodes for few-shot (%)",
    },
    checks=(
        _below("Cora", "OPT (CP)", (18.0, 18.7)),
        _below("Cora", "OPT (CP), trained neurons", (18.0, 18.7)),
        _below("Citeseer", "OPT (CP)"),
        _below("PointNet", "OPT (CP)", (12.14, 12.9)),
        _below("PointNet", "OPT (CP), trained neurons"),
        Check(
            "few-shot, accuracy: OPT (CP) above baseline",
            "accuracy",
            "few-shot/OPT (CP)",
            "few-shot/baseline",
            published=(63.27, 62.53),
        ),
    ),
    picture=bars([("accuracy", "accuracy (%)")]),
    caption="Accuracy, of episodes for few-shot; means over seeds with their standard errors.",
    seeds=10,
    fewer={"PointNet/*": 5, "few-shot/*": 5},
    tuning=Tuning((rates(0.3, 1, 3),), _short),
)
