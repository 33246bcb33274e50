"""Augmentation of recordings: levels, lengths and spectra follow from the arguments and the random numbers."""

import numpy as np
import pytest
import soundfile
import torch

from hypersphere.data import AddNoise, DataError, Gain, RandomCrop, Reverberate, SpecAugment, Speed
from tests.data.voices import voice

SOUND = torch.from_numpy(np.stack([voice(i, seconds=1) for i in range(4)]))
ALL = [RandomCrop(8000), Gain(), AddNoise(share=1.0), Speed(), Reverberate(share=1.0)]


def numbers(augmentation, shape=SOUND.shape[1:], seed=0):
    draws = augmentation.draws(torch.Size(shape))
    return torch.rand(4, draws, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


@pytest.mark.parametrize("augmentation", ALL, ids=lambda one: type(one).__name__)
def test_samples_do_not_depend_on_each_other(augmentation):
    u = numbers(augmentation)
    whole = augmentation(SOUND, u)
    assert whole.dtype == torch.float32
    assert whole.isfinite().all()
    torch.testing.assert_close(whole[2:3], augmentation(SOUND[2:3], u[2:3]), atol=1e-6, rtol=1e-4)
    assert not torch.equal(whole[:, :8000], SOUND[:, :8000])


def test_a_crop_is_a_part_and_every_part_occurs():
    cut = RandomCrop(3)(torch.arange(5.0).expand(4, 5), torch.tensor([[0.0], [0.34], [0.67], [0.999]]))
    assert cut[:, 0].tolist() == [0, 1, 2, 2]
    assert RandomCrop(9)(torch.ones(1, 5), torch.rand(1, 1)).shape == (1, 5)


@pytest.mark.parametrize("u", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("color", [0.0, 0.5, 0.9])
def test_noise_has_the_requested_ratio(u, color):
    draw = torch.tensor([[0.0, u, color, 0.3]], dtype=torch.double)
    noise = AddNoise(low=0.0, high=20.0, share=1.0)(SOUND[:1], draw) - SOUND[:1]
    ratio = 10 * torch.log10(SOUND[0].square().mean() / noise.square().mean())
    assert float(ratio) == pytest.approx(20 * u, abs=0.05)
    assert torch.equal(AddNoise(share=0.0)(SOUND[:1], draw), SOUND[:1])


def test_noise_from_a_folder(tmp_path):
    (tmp_path / "street").mkdir()
    tone = np.sin(np.arange(4000) / 3).astype(np.float32)
    soundfile.write(tmp_path / "street" / "a.wav", tone, 16000)
    draw = torch.tensor([[0.0, 0.5, 0.0, 0.0]], dtype=torch.double)
    noise = (AddNoise(share=1.0, folder=tmp_path)(SOUND[:1], draw) - SOUND[:1])[0, :4000]
    assert float(torch.cosine_similarity(noise, torch.from_numpy(tone), 0)) > 0.999
    with pytest.raises(DataError, match="holds no recording of noise"):
        AddNoise(folder=tmp_path / "none")(SOUND[:1], draw)


def test_speed_changes_the_pitch():
    tone = torch.sin(2 * torch.pi * 440 * torch.arange(16000) / 16000)[None]
    fast = Speed(0.1)(tone, torch.tensor([[1.0]], dtype=torch.double))
    assert int(torch.fft.rfft(fast[0, :14000]).abs().argmax()) == pytest.approx(484 * 14000 / 16000, abs=2)


def test_reverberation_keeps_the_level_and_lengthens_sounds():
    click = torch.zeros(1, 16000)
    click[0, 100] = 1.0
    wet = Reverberate(0.5, share=1.0)(click, torch.tensor([[0.0, 1.0, 1.0, 0.2]], dtype=torch.double))
    assert float(wet.square().sum()) == pytest.approx(1, rel=1e-4)
    early, late = wet[0, 101:1000].square().sum(), wet[0, 4000:4899].square().sum()
    assert early > late > 0
    assert wet[0, :100].abs().max() < 1e-5


def test_masks_hide_bands_and_frames():
    x = torch.rand(4, 20, 50)
    masked = SpecAugment(bands=5, frames=10, masks=1)(x, torch.full((4, 4), 0.999, dtype=torch.double))
    hidden = masked != x
    assert hidden.all(2).sum(1).tolist() == [5] * 4
    assert hidden.all(1).sum(1).tolist() == [10] * 4
    assert torch.equal(SpecAugment(0, 0)(x, torch.rand(4, 8).double()), x)


@pytest.mark.parametrize(
    "make", [lambda: RandomCrop(0), lambda: Gain(-1.0), lambda: AddNoise(9.0, 1.0), lambda: Speed(1.0),
             lambda: Reverberate(0.0), lambda: SpecAugment(masks=0)]
)  # fmt: skip
def test_refuses(make):
    with pytest.raises(ValueError, match="got"):
        make()
