import torch
from torch import nn

from hypersphere.data import InMemory, PicturePreprocessing
from hypersphere.evaluation import all_pairs
from hypersphere.models import Projected
from hypersphere.objectives import CosFace
from hypersphere.training.tasks import Headed
from hypersphere.training.tasks.recognition import Recognition


def task(**options):
    torch.manual_seed(0)
    data = InMemory(
        torch.randint(0, 256, (40, 1, 6, 6), dtype=torch.uint8), torch.arange(8).repeat(5), list("abcdefgh")
    )
    body = Projected(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), 4, 3)
    prepare = options.pop("preprocessing", PicturePreprocessing(size=(6, 6), channels=1))
    model = Headed(body, CosFace(3, 8))
    return Recognition(model, model.classifier, data, data, preprocessing=prepare, batch_size=8, **options)


def moved(made, steps):
    before = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    loader = iter(made.loader)
    for step in range(steps):
        made.train()
        optimizer.zero_grad()
        made(step, *next(loader))[0].backward()
        optimizer.step()
    return {name for name, tensor in made.state_dict().items() if not torch.equal(tensor, before[name])}


def test_a_still_backbone_keeps_its_statistics_too():
    changed = moved(task(frozen=True), 2)
    assert "model.body.projection.weight" in changed
    assert not [name for name in changed if ".network." in name]


def test_the_backbone_rests_in_the_first_stage_only():
    assert not [name for name in moved(task(head_first=3), 3) if ".network." in name]
    assert [name for name in moved(task(head_first=2), 3) if ".network." in name]


def test_measures_are_those_of_all_pairs():
    made = task().eval()
    with torch.no_grad():
        found = made.evaluate()
        features = made.embed(made.measured_samples)
    assert found["eer"] == 100 * float(all_pairs(features, made.measured_samples.labels).roc.eer)
    assert set(found) == {"eer", "rank1", "tar@0.01"} or set(found) == {"eer", "rank1"}


def test_mirror_images_double_the_features():
    made = task(preprocessing=PicturePreprocessing(size=(6, 6), channels=1, mirror=True)).eval()
    picture = torch.randint(0, 256, (1, 1, 6, 6), dtype=torch.uint8)
    with torch.no_grad():
        one, other = made.embed_batch(picture), made.embed_batch(picture.flip(3))
    assert one.shape == (1, 6)
    torch.testing.assert_close(one[:, :3], other[:, 3:])
