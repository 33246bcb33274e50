"""Claim: orthogonal training also helps for graphs, point clouds and few-shot recognition (tables 7.10–7.12)."""

from hypersphere.config import Call, call
from hypersphere.data import Planetoid
from hypersphere.objectives import Softmax
from hypersphere.orthogonal import overparameterize
from hypersphere.recipes.chapter7 import opt_few_shot, opt_gcn_cora, opt_pointnet
from hypersphere.training import Config, replace

from ..arms import Arm, Training
from ..claim import Check, Claim, Published, Size, read_text
from ..claim_pictures import make_bar_picture
from ..tuning import Tuning, make_rate_axis

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


def make_arms(size: Size) -> dict[str, Arm]:
    """Return arms of the network of each recipe, with trained and with rotated neurons."""
    graph, episodes = opt_gcn_cora(size), opt_few_shot(size)
    if size == "laptop":
        graph = replace(graph, head=call(Softmax))  # with a bias, like the recorded rows
        episodes = replace(episodes, steps=900, evaluate_every=900, checkpoint_every=300, channels_last=True)
    base = {
        "Cora": graph,
        "Citeseer": replace(graph, data=call(Planetoid, name="citeseer")),
        "PointNet": opt_pointnet(size),
        "few-shot": episodes,
    }
    arms: dict[str, Arm] = {}
    for group, names in GROUPS.items():
        for name in names:
            arms[f"{group}/{name}"] = Training(replace(base[group], orthogonal=METHODS[name]))
    return arms


def _shorten(config: Config) -> Config:
    """Return whole runs for graphs, and a third of the steps for the others."""
    steps = config.steps if config.data.target is Planetoid else config.steps // 3
    return replace(config, steps=steps, evaluate_every=steps, checkpoint_every=steps)


def _make_check(group: str, name: str, published: tuple[float, float] | None = None) -> Check:
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
    arms=make_arms,
    about=("orthogonal", "orthogonal.*"),
    metrics={
        "error": "test error (%)",
        "energy": "energy at the end",
        "accuracy": "accuracy, of episodes for few-shot (%)",
    },
    checks=(
        _make_check("Cora", "OPT (CP)", (18.0, 18.7)),
        _make_check("Cora", "OPT (CP), trained neurons", (18.0, 18.7)),
        _make_check("Citeseer", "OPT (CP)"),
        _make_check("PointNet", "OPT (CP)", (12.14, 12.9)),
        _make_check("PointNet", "OPT (CP), trained neurons"),
        Check(
            "few-shot, accuracy: OPT (CP) above baseline",
            "accuracy",
            "few-shot/OPT (CP)",
            "few-shot/baseline",
            published=(63.27, 62.53),
        ),
    ),
    picture=make_bar_picture([("accuracy", "accuracy (%)")]),
    caption="Accuracy, of episodes for few-shot; means over seeds with their standard errors.",
    seeds=10,
    fewer={"PointNet/*": 5, "few-shot/*": 5},
    tuning=Tuning((make_rate_axis(0.3, 1, 3),), _shorten),
)
