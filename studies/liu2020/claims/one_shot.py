"""Claim: an embedding with an angular margin solves Omniglot's published one-shot runs better than people and than BPL."""

import math
import statistics
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hypersphere.config import call
from hypersphere.data import Elastic, Omniglot
from hypersphere.evaluation import fit_discriminant
from hypersphere.geometry import normalize
from hypersphere.models import sphereface10
from hypersphere.objectives import ArcFace
from hypersphere.recipes.recipe_book import make_sgd
from hypersphere.training import Config, CosineRate, Distillation, OpenSet, Selection, replace

from ..arms import Arm, Training
from ..claim import Check, Claim, Published, Size, read_text
from ..claim_pictures import make_comparison_picture
from ..distillation import TeacherStudent

ARM = "student"
PIXELS, FEATURES, TURNS, SHRINK = 48, 128, 4, 0.03
STEPS, TAUGHT_STEPS = 7500, 2000
DRAWERS = 20  # people who drew every character
WAYS = 20
DRAWER_OFFSETS = (1, 7, 11)  # queries are by the drawers this many places after the drawer of the support set
PEOPLE, BPL = 4.5, 3.3
ERRORS = {
    "people": PEOPLE,
    "BPL": BPL,
    "RCN": 7.3,
    "convolutional Siamese network": 8.0,
    "prototypical networks": 13.7,
}
HELD_OUT = 5  # background alphabets on which the settings were chosen


def measure_one_shot_errors(experiment: Any, shrink: float | None = None) -> dict[str, float]:
    """Measure errors (%) of runs of 20 random characters of one alphabet, and of the 20 published runs if the task has them.

    With ``shrink``, a last linear layer is first fitted to the training drawings (:func:`fit_discriminant`).
    """
    task = experiment.task
    layer: torch.nn.Module = torch.nn.Identity()
    if shrink is not None:
        layer = fit_discriminant(task.embed(task.train_samples).float(), task.train_samples.labels, shrink)
    found = {"within": _measure_within_alphabets(task, layer(task.embed(task.measured_samples).float()))}
    if task.runs:
        found["published_error"] = _measure_published_runs(task, layer)
        found["turned_error"] = _measure_published_runs(task, layer, turns=4)
    return found


def _measure_within_alphabets(task: Any, features: Float[Tensor, "n d"]) -> float:
    """Return the error (%) of runs within alphabets; query and support are by different drawers."""
    samples, features = task.measured_samples, normalize(features)
    drawings = torch.argsort(samples.labels, stable=True).reshape(len(samples.classes), DRAWERS)
    owners = [name.partition("/")[0] for name in samples.classes]
    generator, errors = torch.Generator().manual_seed(0), []
    for alphabet in sorted(set(owners)):
        characters = torch.tensor([i for i, owner in enumerate(owners) if owner == alphabet])
        for drawer in range(DRAWERS):
            for offset in DRAWER_OFFSETS:
                some = characters[torch.randperm(len(characters), generator=generator)[:WAYS]]
                support, query = drawings[some, drawer], drawings[some, (drawer + offset) % DRAWERS]
                found = (features[query] @ features[support].T).argmax(1)
                errors.append((found != torch.arange(len(some))).double().mean().item())
    return 100 * statistics.mean(errors)


def _measure_published_runs(task: Any, layer: torch.nn.Module, turns: int = 1) -> float:
    """Return the error (%) of the 20 published runs; scores are summed over ``turns`` rotations of query and support."""

    def embed(images: Tensor, k: int) -> Tensor:
        return normalize(layer(task.embed_batch(images.rot90(k, (2, 3))).float().cpu()))

    def wrong(run: Any) -> float:
        scores = torch.stack([embed(run.query, k) @ embed(run.support, k).T for k in range(turns)]).sum(0)
        return (scores.argmax(1) != run.answers).double().mean().item()

    return 100 * statistics.mean(map(wrong, task.runs))


def make_arms(size: Size) -> dict[str, Arm]:
    """Return one arm: SphereFace-10 of half width with ArcFace, four rotations of each character as classes, and its student."""
    teacher = Config(
        task=call(OpenSet, published_runs=True),
        steps=STEPS,
        evaluate_every=STEPS,
        checkpoint_every=500,
        monitor="rank1",
        channels_last=True,
        compile=True,
        precision="bf16",
        data=call(Omniglot),
        samples=Selection(rotations=True),
        size=PIXELS,
        augment=call(
            Elastic,
            bend=PIXELS / 7,
            rotation=math.radians(15),
            scale=0.15,
            shear=0.2,
            shift=PIXELS / 14,
            fill=255.0,
        ),
        backbone=call(sphereface10, width=0.5, feature_dim=FEATURES, norm="batch"),
        head=call(ArcFace, m=0.25, scale=24.0),
        optimizer=make_sgd(0.1, 2e-3, nesterov=True),
        schedule=call(CosineRate),
    )
    student = replace(
        teacher,
        {"backbone.feature_dim": TURNS * FEATURES},
        task=call(Distillation, turns=TURNS, shrink=SHRINK, published_runs=True),
        steps=TAUGHT_STEPS,
        evaluate_every=TAUGHT_STEPS,
        samples=Selection(),
        batch_size=128 // TURNS,
        optimizer=call(torch.optim.AdamW, lr=1e-3, weight_decay=0.02),
    )
    validation = {"data.held_out": HELD_OUT, "task.published_runs": False}
    theirs, own = (call(measure_one_shot_errors, shrink=SHRINK),), (call(measure_one_shot_errors),)
    return {ARM: TeacherStudent(student, own, validation, own, teacher=Training(teacher, theirs, validation, theirs))}


CLAIM = Claim(
    id="one-shot",
    title="Published one-shot runs",
    text=read_text("one-shot"),
    published=(
        Published(
            "Lake et al. (2015, 2019)",
            "error (%) of the 20 runs",
            ERRORS,
        ),
    ),
    arms=make_arms,
    about=(),
    metrics={
        "published_error": "error of the 20 runs (%)",
        "within": "error of runs from all alphabets (%)",
        "one_shot": "20-way 1-shot by episodes (%)",
        "rank1": "rank-1 of 659 (%)",
        "tar": "TAR at FAR 1e-3 (%)",
        "eer": "EER (%)",
        "turned_error": "the 20 runs, four turns added (%)",
        "teacher_published_error": "the teacher's 20 runs (%)",
        "teacher_within": "the teacher's, all alphabets (%)",
        "teacher_turned_error": "the teacher's, four turns added (%)",
    },
    checks=(
        Check("error of the runs: below that of people", "published_error", ARM, PEOPLE, False),
        Check("error of the runs: below that of BPL", "published_error", ARM, BPL, False),
        Check("episodes: above 97.5 %", "one_shot", ARM, 97.5),
    ),
    picture=make_comparison_picture(
        ERRORS,
        {"one embedding": "published_error", "one embedding, four turns added": "turned_error"},
        "error of the 20 published runs (%)",
    ),
    caption="Error of the 20 published runs: published (gray), and measured here (blue), mean over seeds and each seed as a small dot.",
    seeds=5,
)
