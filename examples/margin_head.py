"""A margin head in a plain training loop: the head is the last layer and the loss in one."""

import torch
from torch import nn

import hypersphere as hs

torch.manual_seed(0)
digits, held_out = hs.data.Digits(train=True), hs.data.Digits(train=False)
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))  # ends in features
head = hs.ArcFace(32, 10, m=0.3, scale=16.0)
optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], lr=3e-3)

for epoch in range(5):
    for images, labels in hs.data.Loader(digits, batch_size=128, seed=epoch):
        loss = head(network(images.float() / 255), labels)  # with the margin
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        head.step()  # moves what changes over time, such as annealing; nothing for a plain ArcFace

with torch.no_grad():
    features = network(held_out.data.float() / 255)
accuracy = (head.predict(features) == held_out.labels).float().mean().item()  # without the margin
print(f"accuracy {accuracy:.1%}, loss {loss.item():.2f}")
assert accuracy > 0.9
