import json

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import hypersphere as hs
from hypersphere.config import call
from hypersphere.data import PicturePreprocessing, Preprocessing
from hypersphere.operators import Operator
from hypersphere.recognition import Embedder, export_onnx
from tests.recognition.drawn import picture, small_embedder

IMAGES = torch.from_numpy(np.stack([picture(i, 0) for i in range(5)]))[:, None]

pytestmark = pytest.mark.untyped  # torch.export cannot trace the shape checks


def test_a_graph_of_any_batch_gives_the_same_features(tmp_path):
    embedder = small_embedder(mirror=True)
    written = export_onnx(embedder, tmp_path / "m.onnx", IMAGES)
    assert written.difference < 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for count in (1, 2, 5):
        got = session.run(["features"], {"pixels": IMAGES[:count].numpy()})[0]
        torch.testing.assert_close(torch.from_numpy(got), embedder(IMAGES[:count]), atol=1e-5, rtol=1e-4)
    beside = json.loads((tmp_path / "m.onnx.json").read_text())
    assert Preprocessing.from_dict(beside["preprocessing"]) == embedder.preprocessing
    stored = session.get_modelmeta().custom_metadata_map
    assert stored["hypersphere.fingerprint"] == beside["fingerprint"] == embedder.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "m.onnx.json"]


def test_operators_are_part_of_the_graph(tmp_path):
    made = call(
        hs.models.sphereface4,
        input_size=16,
        in_channels=1,
        widths=(4, 4, 4, 4),
        feature_dim=4,
        operator=call(Operator, magnitude=call(hs.magnitudes.Tanh)),
    )
    torch.manual_seed(0)
    preprocessing = PicturePreprocessing(size=(16, 16), channels=1)
    embedder = Embedder.from_call(made, made.build().state_dict(), preprocessing)
    assert export_onnx(embedder, tmp_path / "m.onnx", IMAGES).difference < 1e-4


class Batched(nn.Module):
    """Correct in torch, but cannot be exported for any batch size: it counts its images in Python."""

    def features(self, x):
        return x.flatten(1)[:, :3] * (1.0 if len(x) > 3 else 2.0)


def test_a_network_that_is_no_graph_leaves_no_file(tmp_path):
    embedder = Embedder(Batched(), PicturePreprocessing(size=(16, 16), channels=1), call(nn.Identity))
    with pytest.raises(ValueError, match=r"ONNX graph"):
        export_onnx(embedder, tmp_path / "m.onnx", IMAGES)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("images", [IMAGES[:1], IMAGES.float(), IMAGES[:, :, :8]], ids=["one", "float", "size"])
def test_refuses(tmp_path, images):
    with pytest.raises(ValueError, match=r"images must be at least two of shape \(1, 16, 16\) in uint8"):
        export_onnx(small_embedder(), tmp_path / "m.onnx", images)
