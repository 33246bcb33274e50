"""The objectives that ``which_objective.py`` compares: heads and pair losses of this library and of pytorch-metric-learning."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import hypersphere as hs
from hypersphere import objectives as ob
from hypersphere.objectives.margins import AdditiveAngle, InterTopK


@dataclass(frozen=True)
class Plan:
    """The properties of a run that objectives depend on: feature dimension, images per class, steps."""

    dim: int
    counts: list[int]
    steps: int

    @property
    def classes(self) -> int:
        """The number of training classes."""
        return len(self.counts)


@dataclass(frozen=True)
class Arm:
    """An objective, built from a plan and a setting. ``grid`` lists the settings to choose from; ``pairs`` needs P×K batches."""

    build: Callable[..., nn.Module]
    grid: tuple[dict[str, Any], ...] = ({},)
    pairs: bool = False


def make_head_arm(build: Callable[..., nn.Module], **setting: Any) -> Arm:
    """Return the arm of a head without a scale to choose."""
    return Arm(lambda plan: build(plan.dim, plan.classes, **setting))


def make_scaled_arm(build: Callable[..., nn.Module], usual: float, **setting: Any) -> Arm:
    """Return the arm of a head with two scales: the usual one, and 24 for small sets."""
    grid = tuple({"scale": s} for s in dict.fromkeys((usual, 24.0)))
    return Arm(lambda plan, scale: build(plan.dim, plan.classes, scale=scale, **setting), grid)


def make_planned_arm(m: Callable[[Plan], Any], usual: float = 64.0) -> Arm:
    """Return an arm of ArcFace whose margin depends on the plan."""
    grid = ({"scale": usual}, {"scale": 24.0})
    return Arm(lambda plan, scale: ob.ArcFace(plan.dim, plan.classes, m=m(plan), scale=scale), grid)


def make_pair_arm(build: Callable[..., nn.Module], **setting: Any) -> Arm:
    """Return the arm of a pair loss."""
    return Arm(lambda plan: build(**setting), pairs=True)


class Joint(nn.Module):
    """A weighted sum of objectives of the same features."""

    def __init__(self, *terms: tuple[float, nn.Module]):
        super().__init__()
        self.weights = [weight for weight, _ in terms]
        self.terms = nn.ModuleList([term for _, term in terms])

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """Σ weight·term."""
        total = features.new_zeros(())
        for weight, term in zip(self.weights, self.terms, strict=True):
            total = total + weight * term(features, labels)
        return total


def make_annealing(plan: Plan) -> ob.Annealing:
    """Return the annealing of SphereFace, scaled to the length of the run."""
    return ob.Annealing(start=1000, floor=5, rate=300 / plan.steps)


def spread_prototypes(classes: int, dim: int) -> Tensor:
    """Return unit rows of low energy: a simplex if the dimension allows it, otherwise spread random rows."""
    if classes <= dim + 1:
        return ob.simplex_prototypes(classes, dim)
    rows = nn.Parameter(F.normalize(torch.randn(classes, dim, generator=torch.Generator().manual_seed(0)), dim=1))
    optimizer = torch.optim.SGD([rows], lr=1.0)
    for _ in range(30):
        optimizer.zero_grad()
        (classes * hs.hyperspherical_energy(rows, s=1.0)).backward()
        optimizer.step()
    return F.normalize(rows.detach(), dim=1)


def make_prototypes(dim: int, classes: int, scale: float) -> nn.Module:
    """Return a head with fixed class weights."""
    return ob.PrototypeSoftmax(dim, classes, prototypes=spread_prototypes(classes, dim), scale=scale)


def make_inter_top_k(dim: int, classes: int, scale: float) -> nn.Module:
    """Return a head with an inter-top-k penalty and an additive angular margin."""
    return ob.MarginSoftmax(dim, classes, margin=InterTopK(AdditiveAngle(0.2), k=min(5, classes - 1)), scale=scale)


def make_koleo(dim: int, classes: int, scale: float) -> nn.Module:
    """Return CosFace plus KoLeo with the weight of Oquab et al. (2023)."""
    return Joint((1.0, ob.CosFace(dim, classes, m=0.35, scale=scale)), (0.1, ob.KoLeo()))


ARMS: dict[str, Arm] = {
    "Softmax": make_head_arm(ob.Softmax),
    "LSoftmax m 2": Arm(lambda plan: ob.LSoftmax(plan.dim, plan.classes, m=2, annealing=make_annealing(plan))),
    "SphereFace m 4": Arm(lambda plan: ob.SphereFace(plan.dim, plan.classes, m=4, annealing=make_annealing(plan))),
    "SphereFace-R v0": make_scaled_arm(ob.SphereFaceR, 30.0, version="v0"),
    "SphereFace-R v1": make_scaled_arm(ob.SphereFaceR, 30.0, version="v1"),
    "SphereFace-R v2": make_scaled_arm(ob.SphereFaceR, 30.0, version="v2"),
    "SSoftmax": make_scaled_arm(ob.SSoftmax, 30.0),
    "CosFace": make_scaled_arm(ob.CosFace, 64.0, m=0.35),
    "CosFace m 0.2": make_scaled_arm(ob.CosFace, 30.0, m=0.2),
    "ArcFace": make_scaled_arm(ob.ArcFace, 64.0, m=0.5),
    "ArcFace m 0.25": make_scaled_arm(ob.ArcFace, 30.0, m=0.25),
    "ArcFace, 3 sub-centers": make_scaled_arm(ob.ArcFace, 64.0, m=0.5, sub_centers=3),
    "ArcFace, margin by count": make_planned_arm(lambda plan: ob.ByCount(plan.counts)),
    "ArcFace, margin ramped": make_planned_arm(lambda plan: ob.Ramp(0.5, end=plan.steps // 2)),
    "ArcFace, large margin last": make_planned_arm(lambda plan: ob.Stages([0.2, 0.5], at=[plan.steps * 3 // 4])),
    "inter-top-k": make_scaled_arm(make_inter_top_k, 32.0),
    "AdaFace": make_scaled_arm(ob.AdaFace, 64.0),
    "MagFace": make_scaled_arm(ob.MagFace, 64.0),
    "CurricularFace": make_scaled_arm(ob.CurricularFace, 64.0),
    "MV-Softmax": make_scaled_arm(ob.MVSoftmax, 32.0),
    "ElasticFace": make_scaled_arm(ob.ElasticFace, 64.0),
    "AdaCos": make_head_arm(ob.AdaCos),
    "SphereFace2": make_scaled_arm(ob.SphereFace2, 40.0),
    "UniFace": make_scaled_arm(ob.UniFace, 64.0),
    "fixed prototypes": make_scaled_arm(make_prototypes, 30.0),
    "CosFace + KoLeo": make_scaled_arm(make_koleo, 64.0),
    "Contrastive": make_pair_arm(ob.Contrastive),
    "Triplet semi-hard": make_pair_arm(ob.Triplet, mining="semihard"),
    "Triplet hard": make_pair_arm(ob.Triplet, mining="hard"),
    "SupCon": make_pair_arm(ob.SupCon),
    "NT-Xent": make_pair_arm(ob.NTXent),
    "SigLIP": make_pair_arm(ob.SigLIP),
    "Circle": make_pair_arm(ob.Circle),
    "HUG": make_head_arm(ob.HUG),
    "alignment + uniformity": Arm(lambda plan: Joint((1.0, ob.Alignment()), (1.0, ob.Uniformity())), pairs=True),
    "Proxy-Anchor": make_head_arm(ob.ProxyAnchor),
    "SoftTriple": make_head_arm(ob.SoftTriple),
}


def list_peers() -> dict[str, Arm]:
    """Return arms of the losses of pytorch-metric-learning, whose margins are in degrees."""
    from pytorch_metric_learning import losses as pml
    from pytorch_metric_learning import miners

    def of(build: Callable[..., nn.Module], **setting: Any) -> Callable[..., nn.Module]:
        return lambda dim, classes, **more: build(num_classes=classes, embedding_size=dim, **setting, **more)

    class MinedTriplets(nn.Module):
        """A triplet loss with a miner."""

        def __init__(self, miner: nn.Module):
            super().__init__()
            self.loss, self.miner = pml.TripletMarginLoss(margin=0.2), miner

        def forward(self, features: Tensor, labels: Tensor) -> Tensor:
            return self.loss(features, labels, self.miner(features, labels))

    return {
        "PML CosFace": make_scaled_arm(of(pml.CosFaceLoss, margin=0.35), 64.0),
        "PML ArcFace": make_scaled_arm(of(pml.ArcFaceLoss, margin=28.648), 64.0),
        "PML SubCenterArcFace": make_scaled_arm(of(pml.SubCenterArcFaceLoss, margin=28.648), 64.0),
        "PML LargeMarginSoftmax": make_head_arm(of(pml.LargeMarginSoftmaxLoss, margin=2)),
        "PML SphereFace": make_head_arm(of(pml.SphereFaceLoss, margin=4)),
        "PML NormalizedSoftmax": make_head_arm(of(pml.NormalizedSoftmaxLoss, temperature=1 / 30)),
        "PML Contrastive": make_pair_arm(pml.ContrastiveLoss),
        "PML Triplet semi-hard": make_pair_arm(MinedTriplets, miner=miners.TripletMarginMiner(0.2, "semihard")),
        "PML Triplet hard": make_pair_arm(MinedTriplets, miner=miners.BatchHardMiner()),
        "PML SupCon": make_pair_arm(pml.SupConLoss),
        "PML NT-Xent": make_pair_arm(pml.NTXentLoss),
        "PML Circle": make_pair_arm(pml.CircleLoss),
        "PML Proxy-Anchor": make_head_arm(of(pml.ProxyAnchorLoss)),
        "PML SoftTriple": make_head_arm(of(pml.SoftTripleLoss)),
    }
