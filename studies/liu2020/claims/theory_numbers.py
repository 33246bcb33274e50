"""The lemmas and theorems of Liu (2020) as numbers: each function computes one statement for one seed."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from hypersphere.angular import Cosine
from hypersphere.energy import (
    expected_hole_moment,
    hole_moment,
    hyperspherical_energy,
    kernel_discrepancy,
    minimize_energy,
)
from hypersphere.geometry import cosine, normalize, uniform
from hypersphere.operators import apply_operator, magnitudes
from hypersphere.orthogonal.maps import as_map
from hypersphere.orthogonal.maps.orthogonal_map import Method

from ..arms import Row

Scaled = Literal["product", "cosine", "cosine, lengths kept"]


def fit_condition_exponent(operator: Scaled, seed: int, rows: int = 6, columns: int = 5, rank: int = 3) -> Row:
    """Fit the exponent a of κ(∇²G(cU, V/c)) ~ c^a over c = 1 … 16, at a global optimum F = UVᵀ (lemmas 1 and 2).

    κ is the largest eigenvalue of the Hessian divided by the smallest one that is not 0. Lemma 1: a ≥ 2 for the inner product.
    Lemma 2: a = 0 for the cosine, if U and V are normalized after each step, as in its proof; ``"cosine, lengths kept"`` does not
    normalize them.
    """
    generator = torch.Generator().manual_seed(seed)
    u, v = (uniform(n, rank, dtype=torch.float64, generator=generator) for n in (rows, columns))
    magnitude = magnitudes.InnerProduct() if operator == "product" else magnitudes.Sphere()
    scales, kappas = [1.0, 2.0, 4.0, 8.0, 16.0], []
    for c in scales:
        pair = (c * u, v / c)
        if operator == "cosine":
            pair = (normalize(pair[0]), normalize(pair[1]))
        kappas.append(_compute_condition(_compute_hessian(magnitude, *pair, u @ v.T)))
    logs = torch.tensor(kappas, dtype=torch.float64).log()
    metrics = {"exponent": _fit_slope(torch.tensor(scales, dtype=torch.float64).log(), logs), "condition": kappas[0]}
    return {"metrics": metrics, "curve": {"step": scales, "condition": kappas}}


def fit_energy_exponent(s: float, seed: int, dim: int = 3, largest: int = 128) -> Row:
    """Fit the exponent a of the least energy ε(N) ~ N^a (ε/log N for s = d) on S^d, d = dim − 1.

    Theorem 2: a = 2 for s ≤ d, 1 + s/d beyond. The exponent is that of the largest two N. For s < d the limit is I_s·N², with
    I_s = 2^{1−s}/(2 − s) on S²; for s = d it is N²·log N·Γ((d+1)/2)/(d·√π·Γ(d/2)).
    """
    d, numbers = dim - 1, [largest // 4, largest // 2, largest]
    energies = [2 * minimize_energy(n, dim, s, starts=1, tolerance=1e-5, seed=seed)[1].item() for n in numbers]
    scaled = [e / math.log(n) if s == d else e for n, e in zip(numbers, energies, strict=True)]
    exponent, expected = math.log2(scaled[-1] / scaled[-2]), 2.0 if s <= d else 1 + s / d
    metrics = {"exponent": exponent, "exponent_gap": abs(exponent - expected)}
    return {"metrics": metrics, "curve": {"step": [float(n) for n in numbers], "energy": energies}}


def measure_angle_bounds(
    theorem: Literal[3, 4], k: int, seed: int, epsilon: float = 0.5, dim: int = 200, draws: int = 2000
) -> Row:
    """Measure how often the bounds on cos θ(Pw₁, Pw₂) hold for random P, and compute the probability of theorem 3 or 4.

    The two vectors have a positive inner product, as theorem 4 requires. ``margin`` is the frequency minus the stated probability;
    a negative probability counts as 0.
    """
    generator = torch.Generator().manual_seed(seed)
    pair = torch.randn(2, dim, generator=generator, dtype=torch.float64)
    pair[1] = pair[1] + torch.rand((), generator=generator, dtype=torch.float64) * pair[0]
    pair[1] = pair[1] * torch.sign(pair[0] @ pair[1])
    before = cosine(pair[0], pair[1])
    matrices = torch.randn(draws, k, dim, generator=generator) / math.sqrt(k)
    after = cosine(matrices @ pair[0].float(), matrices @ pair[1].float()).double()
    e = epsilon
    if theorem == 3:
        low, high = (before - e) / (1 + e), (before + e) / (1 - e)
        stated = (1 - 2 * math.exp(-k * e**2 / 8)) ** 2 if 2 * math.exp(-k * e**2 / 8) < 1 else 0.0
    else:
        low = (1 + e) / (1 - e) * before - 2 * e / (1 - e)
        high = (1 - e) / (1 + e) * before + (1 + 2 * e) / (1 + e) - math.sqrt(1 - e**2) / (1 + e)
        stated = max(0.0, 1 - 6 * math.exp(-k / 2 * (e**2 / 2 - e**3 / 3)))
    frequency = ((after > low) & (after < high)).double().mean().item()
    metrics = {"frequency": frequency, "stated": stated, "margin": frequency - stated}
    return {"metrics": metrics}


def measure_neuron_spread(
    neurons: Literal["least energy", "random", "shifted"], seed: int, count: int = 400, dim: int = 8, samples: int = 60
) -> Row:
    """Measure L₂(W) of lemma 14, the least singular value of D (F.30) over √n, and the energy, for three placements of neurons.

    D has the columns σ'(w_iᵀx_j)·x_j for a ReLU network with one hidden layer and m samples on the sphere. Lemma 14: the smaller
    L₂(W), the larger the lower bound of s_m(D). ``"shifted"`` adds 0.5 to every entry, like the means of table 7.2.
    """
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    if neurons == "least energy":
        w = minimize_energy(count, dim, 2, starts=1, tolerance=1e-3, steps=200, seed=seed)[0]
    elif neurons == "shifted":
        w = w + 0.5
    x = uniform(samples, dim, generator=generator, dtype=torch.float64)
    active = (w @ x.T > 0).double()  # (neurons, samples)
    gram = (active.T @ active) * (x @ x.T) / count  # DᵀD/n
    metrics = {
        "discrepancy": kernel_discrepancy(w).item(),
        "least_singular": torch.linalg.eigvalsh(gram)[0].clamp(min=0).sqrt().item(),
        "energy": hyperspherical_energy(w, reduction="mean").item(),
    }
    return {"metrics": metrics}


def measure_holes(p: float, seed: int, n: int = 2000, d: int = 2) -> Row:
    """Divide Σρ_i^p over the holes of n random neurons on S^d by its expectation (lemma 15); the ratio tends to 1."""
    w = uniform(n, d + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ratio = hole_moment(w, p).item() / expected_hole_moment(n, d, p)
    return {"metrics": {"ratio": ratio, "ratio_gap": 100 * abs(ratio - 1)}}


def measure_energy_change(method: Method, seed: int, neurons: int = 64, dim: int = 96) -> Row:
    """Return the change of the energy in percent if neurons v_i become R·v_i (7.2); ``method`` computes R from a random matrix."""
    generator = torch.Generator().manual_seed(seed)
    v = torch.randn(neurons, dim, generator=generator)
    free = torch.randn(dim, dim, generator=generator) / math.sqrt(dim)
    r = as_map(method)(free)
    before, after = (hyperspherical_energy(rows.double(), reduction="mean").item() for rows in (v, v @ r.T))
    return {"metrics": {"energy_drift": 100 * abs(after - before) / before}}


def _compute_hessian(
    magnitude: magnitudes.Magnitude,
    u: Float[Tensor, "rows rank"],
    v: Float[Tensor, "columns rank"],
    target: Float[Tensor, "rows columns"],
) -> Float[Tensor, "entries entries"]:
    """Return ∇² of ½‖F − f(U, V)‖² in all entries of U and V, where f is the operator between rows."""
    size = u.numel()

    def loss(flat: Tensor) -> Tensor:
        a, b = flat[:size].reshape(u.shape), flat[size:].reshape(v.shape)
        return 0.5 * (target - apply_operator(b, a, None, magnitude, Cosine()).T).square().sum()

    found: Tensor = torch.autograd.functional.hessian(loss, torch.cat([u.flatten(), v.flatten()]))
    return found


def _compute_condition(matrix: Float[Tensor, "n n"]) -> float:
    values = torch.linalg.eigvalsh((matrix + matrix.T) / 2)
    return (values[-1] / values[values > 1e-9 * values[-1]][0]).item()


def _fit_slope(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> float:
    return ((x - x.mean()) @ (y - y.mean()) / (x - x.mean()).square().sum()).item()
