"""Claim: a larger margin makes classes more compact and farther apart, at the same accuracy (tables 2.2, A.1; figures 2.2, A.5)."""

from hypersphere.config import call
from hypersphere.data import MNIST
from hypersphere.models import lsoftmax_mnist_2d, sphereface4
from hypersphere.objectives import Annealing, ASoftmax, LSoftmax, Softmax, WSoftmax
from hypersphere.recipes.chapter2 import MNIST_LAMBDA, SPHEREFACE_LAMBDA, lsoftmax_mnist
from hypersphere.recipes.recipe_book import decay_at, make_sgd
from hypersphere.training import Config, CosineRate, Selection, replace

from ..arms import Arm, Training
from ..claim import Check, Claim, Published, Size, read_text
from ..claim_pictures import make_planar_picture
from ..tuning import Tuning, make_rate_axis

MARGINS = (1, 2, 3, 4)
STEPS = 1200
# Table A.1: angular Fisher score and accuracy. A to D remove parts of the softmax, E to G add a margin.
ABLATION = {
    "A: ReLU, bias": (0.3477, 95.13),
    "B: bias": (0.2835, 96.37),
    "C: softmax without bias": (0.2815, 96.40),
    "D: weights normalized": (0.2462, 96.63),
    "E: A-Softmax m = 2": (0.2277, 97.67),
    "F: A-Softmax m = 3": (0.1791, 97.82),
    "G: A-Softmax m = 4": (0.1709, 98.20),
}


def make_arms(size: Size) -> dict[str, Arm]:
    """Return arms of L-Softmax with two-dimensional features and m = 1 … 4 (m = 1 is softmax without a bias), and of table A.1."""
    paper = size == "paper"
    base = replace(lsoftmax_mnist("paper"), backbone=call(lsoftmax_mnist_2d)) if paper else _make_small_config()
    law = MNIST_LAMBDA if paper else _shorten_annealing(18000)
    planar = {f"2-D/m = {m}": replace(base, head=call(LSoftmax, m=m, annealing=law)) for m in MARGINS}
    return {name: Training(config) for name, config in {**planar, **_make_ablation_configs(size)}.items()}


def _make_small_config() -> Config:
    return Config(
        steps=STEPS,
        evaluate_every=STEPS,
        checkpoint_every=400,
        data=call(MNIST),
        samples=Selection(measured=5000),
        size=16,
        normalize="unit",
        backbone=call(lsoftmax_mnist_2d, width=0.125),
        optimizer=make_sgd(0.02),
        schedule=call(CosineRate),
    )


def _shorten_annealing(steps: int) -> object:
    """Return the annealing of the authors' code for MNIST, 1000·(1 + γ·step)^−35, with γ scaled to the length of the run."""
    return MNIST_LAMBDA.replace(rate=float(f"{2.5e-5 * steps / STEPS:.6g}"))


def _make_ablation_configs(size: Size) -> dict[str, Config]:
    """Return the settings of table A.1 with the four-layer network of table 2.7; λ decreases as in SphereFace's code."""
    paper = size == "paper"
    wide = 1.0 if paper else 0.125
    base = replace(
        lsoftmax_mnist("paper") if paper else _make_small_config(),
        size=32 if paper else 16,
        normalize="unit",
        backbone=call(sphereface4, width=wide, feature_dim=512 if paper else 8, norm="batch"),
        optimizer=make_sgd(0.1 if paper else 0.05),
        **({"steps": 28000, "schedule": decay_at(16000, 24000)} if paper else {}),
    )
    law = SPHEREFACE_LAMBDA if paper else call(Annealing, start=1000.0, floor=5.0, rate=0.4, power=1.0)
    heads = {
        "A: ReLU, bias": call(Softmax, bias=True),
        "B: bias": call(Softmax, bias=True),
        "C: softmax without bias": call(Softmax, bias=False),
        "D: weights normalized": call(WSoftmax),
        **{f"{letter}: A-Softmax m = {m}": call(ASoftmax, m=m, annealing=law) for letter, m in zip("EFG", MARGINS[1:], strict=True)},
    }  # fmt: skip
    found = {f"A.1/{name}": replace(base, head=head) for name, head in heads.items()}
    found["A.1/A: ReLU, bias"] = replace(found["A.1/A: ReLU, bias"], {"backbone.last_activation": "relu"})
    return found


def _shorten(config: Config) -> Config:
    """Halve the steps; an annealed λ decreases twice as fast."""
    config = replace(config, steps=config.steps // 2, evaluate_every=config.steps // 2)
    annealing = config.head.arguments.get("annealing")
    return config if annealing is None else replace(config, {"head.annealing.rate": 2 * annealing.get("rate")})


def _make_check(name: str, than: str) -> Check:
    a, b = f"A.1/{name}", f"A.1/{than}"
    values = ABLATION[name][0], ABLATION[than][0]
    return Check(f"A.1, Fisher score: {name} below {than}", "angular_fisher", a, b, False, published=values)


CLAIM = Claim(
    id="objectives-mnist",
    title="Margins make classes compact",
    text=read_text("objectives-mnist"),
    published=(
        Published("2.2", "test error (%) on MNIST", {"m = 1": 0.40, "m = 2": 0.32, "m = 3": 0.31, "m = 4": 0.31}),
        Published("A.1", "angular Fisher score on LFW", {name: values[0] for name, values in ABLATION.items()}),
    ),
    arms=make_arms,
    about=("head", "head.*", "backbone.last_activation"),
    metrics={
        "error": "test error (%)",
        "angular_fisher": "angular Fisher score",
        "intra_angle": "angle to the class center (rad)",
        "nearest_angle": "angle of the nearest two centers (rad)",
    },
    checks=(
        *(
            Check(f"2-D, Fisher score: m = {m} below m = 1", "angular_fisher", f"2-D/m = {m}", "2-D/m = 1", larger=False)
            for m in MARGINS[1:]
        ),
        Check("2-D: classes of m = 4 are tighter than of m = 1", "intra_angle", "2-D/m = 4", "2-D/m = 1", larger=False),
        Check("2-D: the nearest two classes of m = 4 further apart than of m = 1", "nearest_angle", "2-D/m = 4", "2-D/m = 1"),
        Check("2-D: error of m = 4 no worse than of m = 1", "error", "2-D/m = 4", "2-D/m = 1", False, True, (0.31, 0.40)),
        *(_make_check(name, than) for than, name in zip(list(ABLATION)[:-1], list(ABLATION)[1:], strict=True)),
        _make_check("G: A-Softmax m = 4", "D: weights normalized"),
        _make_check("G: A-Softmax m = 4", "A: ReLU, bias"),
    ),
    picture=make_planar_picture(tuple(f"2-D/m = {m}" for m in MARGINS)),
    caption="Two-dimensional features of test digits for m = 1 … 4 (first seed).",
    tuning=Tuning((make_rate_axis(0.3, 1, 3),), _shorten),
)  # fmt: skip
