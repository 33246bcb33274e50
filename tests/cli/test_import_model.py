import numpy as np
import torch

from hypersphere import load
from hypersphere.cli.main import main
from hypersphere.data import FacePreprocessing
from hypersphere.models import import_onnx, read_insightface
from tests.models.test_insightface_import import make_mobile_state
from tests.models.test_onnx_import import small


def test_an_onnx_file_becomes_an_embedder(tmp_path, capsys):
    path, output = small(tmp_path), tmp_path / "e.safetensors"
    assert main(["import", str(path), "-o", str(output), "--normalize", "unit"]) == 0
    assert "input (3, 4, 4)" in capsys.readouterr().out
    picture = np.random.default_rng(0).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    x = torch.from_numpy(picture).permute(2, 0, 1)[None] / 255
    torch.testing.assert_close(load(output)([picture]), import_onnx(path)(x).detach())


def test_a_state_dict_of_insightface_becomes_an_embedder_of_faces(tmp_path, capsys):
    path, output = tmp_path / "backbone.pth", tmp_path / "e.safetensors"
    torch.save(make_mobile_state(), path)
    assert main(["import", str(path), "-o", str(output), "--architecture", "mobilefacenet"]) == 0
    assert "input (3, 112, 112)" in capsys.readouterr().out
    embedder = load(output)
    assert embedder.preprocessing == FacePreprocessing(size=(112, 112), mean=0.5, std=0.5)
    x = torch.rand(1, 3, 112, 112)
    with torch.no_grad():
        assert torch.equal(embedder.network(x), read_insightface(path)(x))
    assert main(["import", str(path), "-o", str(output), "--architecture", "iresnet50"]) == 1
    assert "architecture must be 'mobilefacenet'" in capsys.readouterr().err
    assert main(["import", str(path), "-o", str(output), "--size", "64", "64"]) == 1
    assert "--size is for ONNX files" in capsys.readouterr().err


def test_wrong_uses_end_in_one_sentence(tmp_path, capsys):
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    assert main(["import", str(tmp_path / "bad.onnx"), "-o", str(tmp_path / "e.safetensors")]) == 1
    assert "is not a readable ONNX file" in capsys.readouterr().err
    onnx = str(small(tmp_path))
    assert main(["import", onnx, "-o", str(tmp_path / "e.safetensors"), "--architecture", "iresnet18"]) == 1
    assert "--architecture is for state dicts" in capsys.readouterr().err
    assert main(["import", onnx, "-o", str(tmp_path / "e.txt")]) == 1
    assert "--output must be a file .safetensors" in capsys.readouterr().err
