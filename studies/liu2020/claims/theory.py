"""Claim: lemmas 1, 2, 14 and 15, theorems 2–4, figure 1.1 and the Fourier example of the poster, as numbers."""

from hypersphere.config import call

from ..arms import Arm, Computation
from ..claim import Check, Claim, Published, Size, read_text
from .theory_images import reconstruct_from_code, reconstruct_from_spectrum
from .theory_numbers import (
    fit_condition_exponent,
    fit_energy_exponent,
    measure_angle_bounds,
    measure_energy_change,
    measure_holes,
    measure_neuron_spread,
)
from .theory_pictures import draw_theory

SCALED = ("product", "cosine", "cosine, lengths kept")
METHODS = ("gram_schmidt", "householder", "lowdin", "cayley", "exponential")


def make_arms(size: Size) -> dict[str, Arm]:
    """Return one computation per statement; both sizes are equal."""
    spread = ("least energy", "random", "shifted")
    return {
        **{f"conditioning/{name}": Computation(call(fit_condition_exponent, operator=name)) for name in SCALED},
        **{f"growth/s = {s:g}": Computation(call(fit_energy_exponent, s=s)) for s in (1.0, 2.0, 4.0)},
        **{
            f"projection/theorem {t}, k = {k}": Computation(call(measure_angle_bounds, theorem=t, k=k))
            for t in (3, 4) for k in (30, 100, 200)
        },
        **{f"neurons/{name}": Computation(call(measure_neuron_spread, neurons=name)) for name in spread},
        **{f"holes/p = {p:g}": Computation(call(measure_holes, p=p)) for p in (1.0, 2.0)},
        **{f"rotation/{method}": Computation(call(measure_energy_change, method=method)) for method in (*METHODS, "unconstrained")},
        **{f"autoencoder/{keep}": Computation(call(reconstruct_from_code, keep=keep), "CIFAR10") for keep in ("product", "angle", "norm")},
        **{f"Fourier/{keep}": Computation(call(reconstruct_from_spectrum, keep=keep), "CIFAR10") for keep in ("phase", "magnitude")},
    }  # fmt: skip


CLAIM = Claim(
    id="theory",
    title="Lemmas, theorems and the two pictures",
    text=read_text("theory"),
    published=(
        Published("lemma 1, 2", "exponent of c in the condition", {"product": "≥ 2", "cosine": "0"}),
        Published("theorem 2", "exponent of N in the least energy on S²", {"s = 1": 2.0, "s = 2": "2 (and log N)", "s = 4": 3.0}),
        Published("theorem 3, 4", "probability of the bounds, ε = 0.5", {"k = 200": "0.992, 0.999"}),
        Published("lemma 15", "holes of random neurons", {"measured over expected": "1 + O(1/N)"}),
        Published("figure 1.1", "reconstruction", {"angle": "very well", "norm": "nothing meaningful"}),
        Published("poster", "Fourier transform", {"phase": "recognizable", "magnitude": "not recognizable"}),
    ),
    arms=make_arms,
    about=("function*",),
    metrics={
        "exponent": "exponent",
        "exponent_gap": "distance from the stated exponent",
        "frequency": "share of draws within the bounds",
        "stated": "stated probability",
        "discrepancy": "L₂(W)",
        "least_singular": "least singular value / √n",
        "energy": "energy (s = 2)",
        "ratio": "measured over expected",
        "energy_drift": "change of energy (%)",
        "correlation": "correlation of pixels",
        "edges": "correlation of edges",
    },
    checks=(
        Check("lemma 1: condition grows at least as c²", "exponent", "conditioning/product", 2.0),
        Check("lemma 2: condition of cosines grows less", "exponent", "conditioning/cosine", "conditioning/product", False),
        Check("lemma 2: condition of cosines is constant (exponent below 0.001)", "exponent", "conditioning/cosine", 0.001, False),
        Check("theorem 2, s = 1: exponent within 0.15 of 2", "exponent_gap", "growth/s = 1", 0.15, False),
        Check("theorem 2, s = 2: exponent within 0.15 of 2", "exponent_gap", "growth/s = 2", 0.15, False),
        Check("theorem 2, s = 4: exponent within 0.15 of 3", "exponent_gap", "growth/s = 4", 0.15, False),
        *(
            Check(f"theorem {t}, k = {k}: bounds hold as often as stated", "margin", f"projection/theorem {t}, k = {k}", 0.0, True, True)
            for t in (3, 4) for k in (30, 100, 200)
        ),
        Check("lemma 14: L₂ of least energy below random", "discrepancy", "neurons/least energy", "neurons/random", False),
        Check("lemma 14: L₂ of random below shifted", "discrepancy", "neurons/random", "neurons/shifted", False),
        Check("lemma 14: least singular value of random above shifted", "least_singular", "neurons/random", "neurons/shifted"),
        *(Check(f"lemma 15: holes within 5 % of expected, p = {p:g}", "ratio_gap", f"holes/p = {p:g}", 5.0, False) for p in (1.0, 2.0)),
        *(Check(f"7.2: {m} keeps the energy to 0.001 %", "energy_drift", f"rotation/{m}", 0.001, False) for m in METHODS),
        Check("7.2: an unconstrained matrix moves it by more than 0.1 %", "energy_drift", "rotation/unconstrained", 0.1),
        Check("figure 1.1: angles reconstruct better than norms", "correlation", "autoencoder/angle", "autoencoder/norm"),
        Check("figure 1.1: edges by angles better than by norms", "edges", "autoencoder/angle", "autoencoder/norm"),
        Check("Fourier: phases keep edges better than magnitudes", "edges", "Fourier/phase", "Fourier/magnitude"),
        Check("Fourier: phases keep pixels better than magnitudes", "correlation", "Fourier/phase", "Fourier/magnitude"),
    ),
    picture=draw_theory,
    caption="Condition number of a layer over the scale c (lemmas 1 and 2), least energy over N (theorem 2), and images reconstructed from "
    "parts of their spectra and codes (first seed).",
    seeds=5,
)  # fmt: skip
