"""Add the hyperspherical energy to the loss, which spreads the neurons of each layer over the sphere."""

import torch
from torch import nn

import hypersphere as hs
from hypersphere.energy import layer_energies


def train(weight: float) -> dict[str, float]:
    """Train a small network with ``weight`` times the energy in its loss, and return the energies of its layers."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    energy = hs.MHE(network, hidden=weight, output=weight) if weight else None
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    for images, labels in hs.data.Loader(hs.data.Digits(), batch_size=128, seed=0):
        loss = nn.functional.cross_entropy(network(images.float() / 255), labels)
        if energy is not None:
            loss = loss + energy()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return dict(layer_energies(network))


plain, regularized = train(0.0), train(1.0)
for layer in plain:
    print(f"layer {layer}: energy {plain[layer]:.4f} without, {regularized[layer]:.4f} with the regularizer")
    assert regularized[layer] < plain[layer]
