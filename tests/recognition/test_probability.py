"""Same-person probabilities are those of logistic regression. Strangers who look alike lower them."""

import torch

from hypersphere.recognition import Gallery
from hypersphere.recognition.probability import collect_same_scores, fit_probability


def draw_people(count, shots, seed=0):
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(count, 1, 32, generator=generator)
    return (centers + 0.5 * torch.randn(count, shots, 32, generator=generator)).flatten(0, 1)


def test_the_fit_is_calibrated_on_other_scores():
    """Scores from two normal distributions have a logistic posterior. The fit finds its slope and offset."""
    generator = torch.Generator().manual_seed(0)
    same, different = (0.2 * torch.randn(20_000, generator=generator) + mean for mean in (0.7, 0.3))
    slope, offset = fit_probability(same, different)
    assert abs(slope - 0.4 / 0.04) < 0.5
    assert abs(-offset / slope - 0.5) < 0.01


def test_few_scores_and_scores_that_fall_have_no_probability():
    many = torch.linspace(0, 1, 50)
    assert fit_probability(many[:5], many) is None
    assert fit_probability(many[:20], many[30:]) is None  # strangers score higher than genuine pairs


def test_same_scores_are_of_pairs_of_strangers_and_of_other_templates():
    x = torch.nn.functional.normalize(torch.randn(5, 8), dim=1).double()
    people, own = torch.tensor([0, 0, 0, 1, 2]), x[:3]
    found = collect_same_scores(x, people, ["ada", "gone"], {"ada": own, "gone": None}.get)
    products = own @ own.T
    expected = [products[0, 1], products[0, 2], products[1, 2]]
    expected += [max(float(products[i, j]) for j in range(3) if j != i) for i in range(3)]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.double))


def test_a_calibrated_gallery_gives_probabilities(tmp_path):
    members, strangers = draw_people(20, 2), draw_people(200, 2, seed=1)
    path = tmp_path / "known.db"
    with Gallery(path) as gallery:
        gallery.enrol([f"person {i // 2}" for i in range(40)], members)
        assert gallery.identify(members[:1], threshold=0.5)[0].best.probability is None
        gallery.calibrate(fpir=0.05, strangers=strangers, people=torch.arange(200).repeat_interleave(2))
    with Gallery(path) as gallery:  # the probability is stored with the threshold
        known = [answer.best.probability for answer in gallery.identify(members)]
        strange = [answer.best.probability for answer in gallery.identify(draw_people(50, 1, seed=2))]
        assert min(known) > 0.9
        assert sum(strange) / len(strange) < 0.3
        gallery.calibrate(far=0.002, pairs=(torch.cat([torch.rand(50) + 0.5, torch.rand(500)]), torch.arange(550) < 50))
        assert 0 <= gallery.verify("person 3", members[6])[0].probability <= 1
