"""Learn one rotation of the fixed neurons of each layer, then multiply it into the weights."""

import torch
from torch import nn

import hypersphere as hs

torch.manual_seed(0)
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))
before = hs.hyperspherical_energy(network[1].weight).item()
hs.overparameterize(network, "cayley")  # the classifier, the last layer, is trained as usual
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)  # create it afterwards, because the parameters are new

for epoch in range(3):
    for images, labels in hs.data.Loader(hs.data.Digits(), batch_size=128, seed=epoch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images.float() / 255), labels).backward()
        optimizer.step()
print(f"largest entry of |RᵀR − I|: {hs.orthogonality_error(network):.1e}")

digits = hs.data.Digits(train=False)
outputs = network(digits.data.float() / 255)
hs.merge(network)  # a plain network again: same keys, shapes and speed as before
assert torch.allclose(network(digits.data.float() / 255), outputs, atol=1e-4)
after = hs.hyperspherical_energy(network[1].weight).item()
print(f"energy of the hidden layer {before:.5f} before, {after:.5f} after training")
assert abs(after - before) < 1e-4 * before
