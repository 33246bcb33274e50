import numpy as np
import torch

from hypersphere import load
from hypersphere.cli.main import main
from hypersphere.models import import_onnx
from tests.models.test_onnx_import import small


def test_an_onnx_file_becomes_an_embedder(tmp_path, capsys):
    path, output = small(tmp_path), tmp_path / "e.safetensors"
    assert main(["import", str(path), "-o", str(output), "--normalize", "unit"]) == 0
    assert "input (3, 4, 4)" in capsys.readouterr().out
    picture = np.random.default_rng(0).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    x = torch.from_numpy(picture).permute(2, 0, 1)[None] / 255
    torch.testing.assert_close(load(output)([picture]), import_onnx(path)(x).detach())


def test_wrong_uses_end_in_one_sentence(tmp_path, capsys):
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    assert main(["import", str(tmp_path / "bad.onnx"), "-o", str(tmp_path / "e.safetensors")]) == 1
    assert "is not a readable ONNX file" in capsys.readouterr().err
    assert main(["import", str(small(tmp_path)), "-o", str(tmp_path / "e.txt")]) == 1
    assert "--output must be a file .safetensors" in capsys.readouterr().err
