import torch

from hypersphere.evaluation.patch_fitting import fit_patches


def stripes():
    """Pictures of horizontal and of vertical stripes at random places, with a little noise."""
    generator = torch.Generator().manual_seed(0)
    wave = torch.sin(torch.arange(16) * 1.5 + 6 * torch.rand(40, 1, generator=generator))
    pictures = torch.cat([wave[:20, None].expand(20, 16, 16), wave[20:, :, None].expand(20, 16, 16)])[:, None]
    return pictures + 0.05 * torch.randn(40, 1, 16, 16, generator=generator)


def test_filters_respond_to_what_the_pictures_show():
    x = stripes()
    found = fit_patches(x, 12)(x)
    found = found - found.mean(0)
    both = torch.nn.functional.cosine_similarity(found[:, None], found[None], dim=2)
    assert both[:20, :20].mean() > 0.5
    assert both[:20, 20:].mean() < -0.5


def test_filters_are_the_same_for_the_same_seed():
    x = stripes()
    first, second, other = fit_patches(x, 8), fit_patches(x, 8), fit_patches(x, 8, seed=1)
    assert torch.equal(first.weight, second.weight)
    assert not torch.equal(first.weight, other.weight)


def test_equal_pictures_have_finite_filters():
    assert fit_patches(torch.ones(3, 1, 10, 10), 5).weight.isfinite().all()
    assert fit_patches(torch.rand(3, 1, 4, 5), 5).side == 2
