"""Fine-tune a network by rotating its neurons, save the small adapter, and merge it into a plain network."""

import pathlib
import tempfile

import torch
from torch import nn

import hypersphere as hs
from hypersphere.orthogonal import finetune, save_adapters

torch.manual_seed(0)
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
finetune(network, "oft", block=16)  # freezes everything except the rotations and the classifier
trainable = [parameter for parameter in network.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(trainable, lr=1e-2, weight_decay=0.0)

for images, labels in hs.data.Loader(hs.data.Digits(), batch_size=128, seed=0):
    loss = nn.functional.cross_entropy(network(images.float() / 255), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "digits.safetensors")
    save_adapters(network, path)
    count = sum(parameter.numel() for parameter in trainable)
    print(f"loss {loss.item():.2f}; {count} trainable parameters, {path.stat().st_size} bytes on disk")
digits = hs.data.Digits(train=False).data.float() / 255
outputs = network(digits)
assert torch.allclose(hs.merge(network)(digits), outputs, atol=1e-4)
