"""Convert the layers of a network into decoupled operators, list the skipped layers, and restore the network."""

import torch
from torch import nn

import hypersphere as hs

torch.manual_seed(0)
network = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
)
images = torch.randn(4, 3, 16, 16)
plain = network.eval()(images)

hs.convert(network, magnitude=hs.magnitudes.Tanh(radius=2.0), angular=hs.angular.SquareCosine(), skip="5")
print(hs.get_change_report(network))
bounded = network[0](1e4 * images)
print(f"largest response to a huge input: {bounded.abs().max().item():.2f}")
assert bounded.abs().max() < 2

hs.restore(network)
assert torch.equal(network(images), plain)
