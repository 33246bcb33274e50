"""Draw the pictures of the theory pages with the library: ``make pictures`` writes them to ``docs/assets``.

Seeds are fixed, so a picture changes only if the library does.
"""

import math
import pathlib
import sys

import torch
from torch import nn

import hypersphere as hs
from hypersphere.data import Digits
from hypersphere.plots import plot_angular, plot_dynamics, plot_magnitude, plot_neurons
from hypersphere.plots.canvas import panels

ASSETS = pathlib.Path(__file__).parent / "assets"
STEPS = 150


def draw_objectives(folder: pathlib.Path) -> None:
    """Draw ψ(θ) of four margins, and the loss of a feature between two classes for each of them."""
    chosen = {
        "none (softmax)": hs.margins.NoMargin(),
        "SphereFace, m = 4": hs.margins.Multiplicative(4),
        "CosFace, m = 0.35": hs.margins.AdditiveCosine(0.35),
        "ArcFace, m = 0.5": hs.margins.AdditiveAngle(0.5),
    }
    figure, (left, right) = panels(2, size=(5.2, 3.6))
    plot_angular({name: margin.target for name, margin in chosen.items()}, ylabel="ψ(θ)", ax=left)
    left.set_title("Score of the target class")

    def loss(margin: hs.margins.Margin) -> object:
        """Return the loss of a feature at θ from its own class and π/2 − θ from another class at a right angle."""
        return lambda cos: nn.functional.softplus(8 * (torch.sin(cos.arccos()) - margin.target(cos)))

    plot_angular({name: loss(margin) for name, margin in chosen.items()}, ylabel="loss, scale 8", ax=right)
    right.set_xlim(0, math.pi / 2)
    right.set_ylim(0, 10)
    right.set_xticks([0, math.pi / 8, math.pi / 4, 3 * math.pi / 8, math.pi / 2], ["0", "π/8", "π/4", "3π/8", "π/2"])
    right.axvline(math.pi / 4, color="0.7", linewidth=0.8)
    right.set_title("Loss between two classes at a right angle (border: π/4)")
    figure.savefig(folder / "objectives.png", dpi=100)


def draw_operators(folder: pathlib.Path) -> None:
    """Draw magnitudes over the length of the input, and angular functions over the angle."""
    figure, (left, right) = panels(2, size=(5.2, 3.6))
    kinds = hs.magnitudes
    lengths = {
        "Sphere": kinds.Sphere(),
        "Ball, ρ = 2": kinds.Ball(radius=2.0),
        "Tanh, ρ = 2": kinds.Tanh(radius=2.0),
        "Linear": kinds.Linear(),
        "Seg, ρ = 2": kinds.Seg(radius=2.0),
        "Log": kinds.Log(),
    }
    plot_magnitude({name: respond_to_length(magnitude) for name, magnitude in lengths.items()}, ax=left)
    left.set_title("Magnitudes h")
    angles = {
        "cosine": hs.angular.Cosine(),
        "linear": hs.angular.Linear(),
        "sigmoid, k = 0.3": hs.angular.Sigmoid(0.3),
        "square cosine": hs.angular.SquareCosine(),
    }
    plot_angular(angles, ax=right)
    right.set_title("Angular functions g")
    figure.savefig(folder / "operators.png", dpi=100)


def respond_to_length(magnitude: nn.Module) -> object:
    """Return the output of a layer with one neuron for inputs parallel to it, as a function of their length."""
    layer = hs.operators.Linear(2, 1, bias=False, magnitude=magnitude).eval()
    layer.weight.data = torch.tensor([[1.0, 0.0]])
    return lambda length: layer(torch.stack([length.float(), 0 * length.float()], 1))[:, 0].double()


def draw_energy(folder: pathlib.Path) -> None:
    """Draw random neurons, neurons of least energy, and neurons of least energy in half space."""
    torch.manual_seed(0)
    drawn = hs.geometry.uniform(40, 3)
    least, _ = hs.minimize_energy(40, 3, s=2, seed=0)
    half, _ = hs.minimize_energy(20, 3, s=2, seed=0, half_space=True)
    figure, axes = panels(3, size=(3.9, 4.2), projection="3d")
    shown = [
        ("40 random neurons", drawn, False),
        ("40 at the least energy", least, False),
        ("20 at the least half-space energy", half, True),
    ]
    for ax, (title, weight, opposites) in zip(axes, shown, strict=True):
        value = float(hs.hyperspherical_energy(weight.float(), half_space=opposites))
        plot_neurons(weight.float(), half_space=opposites, view=(20, -60), title=f"{title}\nE = {value:.3f}", ax=ax)
    figure.savefig(folder / "energy.png", dpi=100)


def draw_orthogonal(folder: pathlib.Path) -> None:
    """Draw the loss and the energy of hidden neurons of two networks: trained neurons, and one learned rotation."""
    torch.set_num_threads(1)
    digits = Digits()
    x, y = digits.data.flatten(1).float() / 255, digits.labels
    courses: dict[str, list[float]] = {}
    losses: dict[str, list[float]] = {}
    for name, turned in (("trained neurons", False), ("one learned rotation (OPT)", True)):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(64, 48, bias=False), nn.ReLU(), nn.Linear(48, 10))
        if turned:
            hs.overparameterize(net, "cayley")
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
        courses[name], losses[name] = [], []
        for _ in range(STEPS):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            courses[name].append(float(hs.hyperspherical_energy(net[0].weight.detach())))
            losses[name].append(float(loss.detach()))
            optimizer.step()
    figure, (left, right) = panels(2, size=(5.2, 3.6))
    plot_dynamics(range(STEPS), losses, ylabel="training loss", log=True, ax=left)
    plot_dynamics(range(STEPS), courses, ylabel="energy", ax=right)
    left.set_title("Training loss")
    right.set_title("Energy of the hidden neurons")
    figure.savefig(folder / "orthogonal.png", dpi=100)


PICTURES = {
    "objectives": draw_objectives,
    "operators": draw_operators,
    "energy": draw_energy,
    "orthogonal": draw_orthogonal,
}


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ASSETS
    for make in PICTURES.values():
        make(target)
