"""Diagnose a checkpoint: its energy compared with that of random neurons, dead neurons and duplicate neurons."""

import torch
from torch import nn

from hypersphere.energy.checkpoint_report import energy_changes, energy_report

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
with torch.no_grad():
    network[0].weight[7] = 2 * network[0].weight[3]  # a duplicate: same direction, twice the length
    network[0].weight[9] = 0  # a dead neuron
    network[2].weight.copy_(network[2].weight @ torch.linalg.qr(torch.randn(64, 64)).Q)  # rotate the whole layer

for layer in energy_report(network.state_dict()):
    print(
        f"{layer.name}: energy {layer.energy:.4g}, of random neurons {layer.random_mean:.3f} ± {layer.random_std:.3f}, "
        f"dead {layer.dead}, duplicates {layer.duplicates}"
    )
    if layer.name == "0.weight":
        assert layer.dead == [9]
        assert layer.duplicates == [(3, 7)]
for change in energy_changes(before, network.state_dict()):
    print(f"{change.name}: turned by {change.angle:.2f} rad, {change.rotated:.0%} of the change is one rotation")
    assert change.name != "2.weight" or change.rotated > 0.999
