"""Chapter 2: margin objectives, L-Softmax networks (2.2) and SphereFace (2.3)."""

from ..config import Config, Data, Head, Model, Optimizer
from .base import Size, recipe


@recipe("lsoftmax-mnist", tables="2.2, fig. 2.2", data="MNIST")
def lsoftmax_mnist(size: Size) -> Config:
    """L-Softmax with m = 4 on digits.

    The text: batch 256, 20,000 steps at 0.1, divided by 10 after 12,000 and 15,000, weight decay 5e-4, no augmentation.
    """
    head = Head("LSoftmax", m=4, annealed=True, floor=0.0, start=1000.0, rate=0.1, power=1.0)
    if size == "paper":
        optimizer = Optimizer(lr=0.1, milestones=(12000, 15000))
        data = Data("MNIST", batch_size=256, normalize="unit")
        return Config(steps=20000, evaluate_every=1000, data=data, model=Model("lsoftmax_mnist"), head=head, optimizer=optimizer)
    if size == "laptop":
        data, model = Data("MNIST", batch_size=128, normalize="unit"), Model("lsoftmax_mnist", width=0.25)
        return Config(steps=1500, data=data, model=model, head=head, optimizer=Optimizer(lr=0.05, milestones=(1000, 1300)))
    data, model = Data("Digits", size=16, normalize="unit"), Model("lsoftmax_mnist", width=0.125)
    return Config(steps=20, evaluate_every=10, log_every=5, checkpoint_every=10, data=data, model=model, head=head)
