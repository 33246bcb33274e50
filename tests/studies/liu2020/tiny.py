"""A claim that runs in a second: two heads on the bundled digits."""

from hypersphere import models
from hypersphere.config import call
from hypersphere.objectives import LSoftmax
from hypersphere.recipes.recipe_book import make_sgd
from hypersphere.training import Config, replace
from studies.liu2020 import Check, Claim, ClaimText, Published, Training, Tuning, make_rate_axis
from studies.liu2020.claim_pictures import make_curve_picture


def arms(size):
    base = Config(
        steps=4 if size == "laptop" else 400,
        evaluate_every=2,
        checkpoint_every=2,
        batch_size=32,
        normalize="unit",
        backbone=call(models.mlp, width=0.03125),
        optimizer=make_sgd(0.1),
    )
    return {"a/softmax": Training(base), "b/margin": Training(replace(base, head=call(LSoftmax, m=2)))}


def claim(tuned=True):
    return Claim(
        id="tiny",
        title="A tiny claim",
        text=ClaimText("Heads differ.", "Because.", ("everything is smaller",)),
        published=(Published("0.1", "accuracy (%)", {"softmax": 90.0, "margin": "N/C"}),),
        arms=arms,
        about=("head", "head.*"),
        metrics={"accuracy": "accuracy (%)", "early": "early (%)", "energy": "energy"},
        checks=(
            Check("margin above softmax", "accuracy", "b/margin", "a/softmax", published=(95.0, 90.0)),
            Check("not nothing", "accuracy", "a/softmax", 1.0),
        ),
        picture=make_curve_picture([("accuracy", "accuracy (%)", ["a/softmax", "b/margin"])]),
        caption="Curves.",
        tuning=Tuning((make_rate_axis(0.5, 1, 2),), lambda config: replace(config, steps=2)) if tuned else None,
    )
