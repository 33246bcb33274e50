"""Train a margin head in a plain training loop; the head is the last layer and the loss."""

import torch
from torch import nn

import hypersphere as hs

torch.manual_seed(0)
digits, test = hs.data.Digits(train=True), hs.data.Digits(train=False)
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))  # returns features
head = hs.ArcFace(32, 10, m=0.3, scale=16.0)
optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], lr=3e-3)

for epoch in range(5):
    for images, labels in hs.data.Loader(digits, batch_size=128, seed=epoch):
        loss = head(network(images.float() / 255), labels)  # with the margin
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        head.step()  # advances schedules such as annealing; a plain ArcFace has none

with torch.no_grad():
    features = network(test.data.float() / 255)
accuracy = (head.predict(features) == test.labels).float().mean().item()  # without the margin
print(f"accuracy {accuracy:.1%}, loss {loss.item():.2f}")
assert accuracy > 0.9
