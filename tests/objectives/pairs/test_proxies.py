import torch

from hypersphere.objectives import Circle, NTXent, Proxies, SSoftmax, Triplet

from .contracts import CLASSES, DIM, ProxyContract, batch


class TestProxies(ProxyContract):
    """Compare with the loss over pairs, with the proxies as references; that loss has its own tests."""

    def make(self, chunk="auto", **options):
        return Proxies(DIM, CLASSES, loss=Circle(0.25, 32.0, chunk=chunk), **options)

    def brute_force(self, loss, x, y):
        return loss.loss(x.double(), y, loss.weight.detach().double(), torch.arange(CLASSES)).item()


def test_ntxent_with_proxies_is_the_normalized_softmax():
    x, y = batch()
    head, softmax = Proxies(DIM, CLASSES, dtype=torch.float64), SSoftmax(DIM, CLASSES, scale=1 / 0.07).double()
    softmax.load_state_dict(head.state_dict())
    assert isinstance(head.loss, NTXent)
    assert torch.allclose(head(x, y), softmax(x, y), rtol=1e-10)


def test_the_loss_learns_with_the_head():
    from hypersphere.objectives import SigLIP

    head = Proxies(DIM, CLASSES, loss=SigLIP())
    assert {"weight", "loss.log_scale", "loss.bias"} == set(head.state_dict())
    assert Proxies(DIM, CLASSES, loss=Triplet())(*batch(6, torch.float32)).ndim == 0
