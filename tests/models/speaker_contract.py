"""The contract of all networks over spectrograms. The test of a new network inherits it and defines how it is built."""

import torch
from torch import nn

from hypersphere.data import AudioPreprocessing
from hypersphere.recognition import Embedder
from tests.data.voices import voice

BANDS, FEATURES = 16, 8


class SpeakerNetworkContract:
    """``make`` is the constructor call of a network with ``BANDS`` mel bands and ``FEATURES`` features."""

    make = None

    def build(self):
        torch.manual_seed(0)
        return self.make.build()

    def test_any_number_of_frames(self):
        network = self.build()
        for frames in (16, 50):
            assert network(torch.rand(3, BANDS, frames)).shape == (3, FEATURES)
        assert network.feature_dim == FEATURES

    def test_gradients_reach_every_parameter(self):
        network = self.build()
        network(torch.rand(3, BANDS, 50)).square().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())

    def test_samples_of_a_batch_do_not_see_each_other(self):
        network = self.build().eval()
        x = torch.rand(3, BANDS, 40)
        torch.testing.assert_close(network(x)[1:2], network(x[1:2]), atol=1e-5, rtol=1e-4)

    def test_an_embedder_file_gives_the_same_features(self, tmp_path):
        embedder = Embedder(self.build(), AudioPreprocessing(frames=40, step=20, bands=BANDS), self.make)
        embedder.save(tmp_path / "a.safetensors")
        again = Embedder.load(tmp_path / "a.safetensors")
        torch.testing.assert_close(again(voice(0)), embedder(voice(0)))

    def test_it_learns_three_voices(self):
        network, head = self.build(), nn.Linear(FEATURES, 3)
        prepare = AudioPreprocessing(frames=40, step=20, bands=BANDS)
        x = torch.cat([prepare(voice(person, take, 0.5))[None] for person in range(3) for take in range(4)])
        labels = torch.arange(3).repeat_interleave(4)
        optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], lr=1e-2)
        for _ in range(20):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(head(network(x)), labels)
            loss.backward()
            optimizer.step()
        assert loss.item() < 0.5
