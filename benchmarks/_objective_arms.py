"""The objectives that ``which_objective.py`` compares: every head and pair loss at its usual setting, and the same of PML."""

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
    """What an objective may know of the run it is built for: feature dimension, images of each class, steps."""

    dim: int
    counts: list[int]
    steps: int

    @property
    def classes(self) -> int:
        """How many classes are trained on."""
        return len(self.counts)


@dataclass(frozen=True)
class Arm:
    """An objective by its plan and a setting; ``grid`` are the settings to choose from; ``pairs`` wants P×K batches."""

    build: Callable[..., nn.Module]
    grid: tuple[dict[str, Any], ...] = ({},)
    pairs: bool = False


def head(build: Callable[..., nn.Module], **setting: Any) -> Arm:
    """An arm of ``build(dim, classes, **setting)`` that has no scale to choose."""
    return Arm(lambda plan: build(plan.dim, plan.classes, **setting))


def scaled(build: Callable[..., nn.Module], usual: float, **setting: Any) -> Arm:
    """A head whose scale is the usual one, or 24, which suits small sets."""
    grid = tuple({"scale": s} for s in dict.fromkeys((usual, 24.0)))
    return Arm(lambda plan, scale: build(plan.dim, plan.classes, scale=scale, **setting), grid)


def planned(m: Callable[[Plan], Any], usual: float = 64.0) -> Arm:
    """ArcFace whose margin depends on the plan."""
    grid = ({"scale": usual}, {"scale": 24.0})
    return Arm(lambda plan, scale: ob.ArcFace(plan.dim, plan.classes, m=m(plan), scale=scale), grid)


def pair(build: Callable[..., nn.Module], **setting: Any) -> Arm:
    """A loss over pairs, which has no classes."""
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


def annealed(plan: Plan) -> ob.Annealing:
    """The plain softmax fades to a sixth over the run, as in SphereFace, at this run's length."""
    return ob.Annealing(start=1000, floor=5, rate=300 / plan.steps)


def spread(classes: int, dim: int) -> Tensor:
    """Unit rows of low energy: a simplex where the dimension has room for one, else random rows pushed apart."""
    if classes <= dim + 1:
        return ob.simplex_prototypes(classes, dim)
    rows = nn.Parameter(F.normalize(torch.randn(classes, dim, generator=torch.Generator().manual_seed(0)), dim=1))
    optimizer = torch.optim.SGD([rows], lr=1.0)
    for _ in range(30):
        optimizer.zero_grad()
        (classes * hs.hyperspherical_energy(rows, s=1.0)).backward()
        optimizer.step()
    return F.normalize(rows.detach(), dim=1)


def prototypes(dim: int, classes: int, scale: float) -> nn.Module:
    """Classes that do not move."""
    return ob.PrototypeSoftmax(dim, classes, prototypes=spread(classes, dim), scale=scale)


def inter_top_k(dim: int, classes: int, scale: float) -> nn.Module:
    """The inter-top-k penalty around an additive angle."""
    return ob.MarginSoftmax(dim, classes, margin=InterTopK(AdditiveAngle(0.2), k=min(5, classes - 1)), scale=scale)


def with_koleo(dim: int, classes: int, scale: float) -> nn.Module:
    """CosFace with KoLeo at the weight that Oquab et al. (2023) give it."""
    return Joint((1.0, ob.CosFace(dim, classes, m=0.35, scale=scale)), (0.1, ob.KoLeo()))


ARMS: dict[str, Arm] = {
    "Softmax": head(ob.Softmax),
    "LSoftmax m 2": Arm(lambda plan: ob.LSoftmax(plan.dim, plan.classes, m=2, annealing=annealed(plan))),
    "SphereFace m 4": Arm(lambda plan: ob.SphereFace(plan.dim, plan.classes, m=4, annealing=annealed(plan))),
    "SphereFace-R v0": scaled(ob.SphereFaceR, 30.0, version="v0"),
    "SphereFace-R v1": scaled(ob.SphereFaceR, 30.0, version="v1"),
    "SphereFace-R v2": scaled(ob.SphereFaceR, 30.0, version="v2"),
    "SSoftmax": scaled(ob.SSoftmax, 30.0),
    "CosFace": scaled(ob.CosFace, 64.0, m=0.35),
    "CosFace m 0.2": scaled(ob.CosFace, 30.0, m=0.2),
    "ArcFace": scaled(ob.ArcFace, 64.0, m=0.5),
    "ArcFace m 0.25": scaled(ob.ArcFace, 30.0, m=0.25),
    "ArcFace, 3 sub-centres": scaled(ob.ArcFace, 64.0, m=0.5, sub_centers=3),
    "ArcFace, margin by count": planned(lambda plan: ob.ByCount(plan.counts)),
    "ArcFace, margin ramped": planned(lambda plan: ob.Ramp(0.5, end=plan.steps // 2)),
    "ArcFace, large margin last": planned(lambda plan: ob.Stages([0.2, 0.5], at=[plan.steps * 3 // 4])),
    "inter-top-k": scaled(inter_top_k, 32.0),
    "AdaFace": scaled(ob.AdaFace, 64.0),
    "MagFace": scaled(ob.MagFace, 64.0),
    "CurricularFace": scaled(ob.CurricularFace, 64.0),
    "MV-Softmax": scaled(ob.MVSoftmax, 32.0),
    "ElasticFace": scaled(ob.ElasticFace, 64.0),
    "AdaCos": head(ob.AdaCos),
    "SphereFace2": scaled(ob.SphereFace2, 40.0),
    "UniFace": scaled(ob.UniFace, 64.0),
    "fixed prototypes": scaled(prototypes, 30.0),
    "CosFace + KoLeo": scaled(with_koleo, 64.0),
    "Contrastive": pair(ob.Contrastive),
    "Triplet semi-hard": pair(ob.Triplet, mining="semihard"),
    "Triplet hard": pair(ob.Triplet, mining="hard"),
    "SupCon": pair(ob.SupCon),
    "NT-Xent": pair(ob.NTXent),
    "SigLIP": pair(ob.SigLIP),
    "Circle": pair(ob.Circle),
    "HUG": head(ob.HUG),
    "alignment + uniformity": Arm(lambda plan: Joint((1.0, ob.Alignment()), (1.0, ob.Uniformity())), pairs=True),
    "Proxy-Anchor": head(ob.ProxyAnchor),
    "SoftTriple": head(ob.SoftTriple),
}


def peers() -> dict[str, Arm]:
    """The same losses of pytorch-metric-learning; margins in degrees there."""
    from pytorch_metric_learning import losses as pml
    from pytorch_metric_learning import miners

    def of(build: Callable[..., nn.Module], **setting: Any) -> Callable[..., nn.Module]:
        return lambda dim, classes, **more: build(num_classes=classes, embedding_size=dim, **setting, **more)

    class Mined(nn.Module):
        """A loss of the triplets that a miner finds."""

        def __init__(self, miner: nn.Module):
            super().__init__()
            self.loss, self.miner = pml.TripletMarginLoss(margin=0.2), miner

        def forward(self, features: Tensor, labels: Tensor) -> Tensor:
            return self.loss(features, labels, self.miner(features, labels))

    return {
        "PML CosFace": scaled(of(pml.CosFaceLoss, margin=0.35), 64.0),
        "PML ArcFace": scaled(of(pml.ArcFaceLoss, margin=28.648), 64.0),
        "PML SubCenterArcFace": scaled(of(pml.SubCenterArcFaceLoss, margin=28.648), 64.0),
        "PML LargeMarginSoftmax": head(of(pml.LargeMarginSoftmaxLoss, margin=2)),
        "PML SphereFace": head(of(pml.SphereFaceLoss, margin=4)),
        "PML NormalizedSoftmax": head(of(pml.NormalizedSoftmaxLoss, temperature=1 / 30)),
        "PML Contrastive": pair(pml.ContrastiveLoss),
        "PML Triplet semi-hard": pair(Mined, miner=miners.TripletMarginMiner(0.2, "semihard")),
        "PML Triplet hard": pair(Mined, miner=miners.BatchHardMiner()),
        "PML SupCon": pair(pml.SupConLoss),
        "PML NT-Xent": pair(pml.NTXentLoss),
        "PML Circle": pair(pml.CircleLoss),
        "PML Proxy-Anchor": head(of(pml.ProxyAnchorLoss)),
        "PML SoftTriple": head(of(pml.SoftTripleLoss)),
    }
