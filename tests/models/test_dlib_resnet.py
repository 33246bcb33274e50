"""The face network of dlib: its file format, written by an independent writer, and the features that dlib 20.0.1 computes."""

import numpy as np
import pytest
import torch

from hypersphere.models import DlibResNet, FetchError, load_network
from hypersphere.models.dlib_resnet import read_dlib_resnet

# First components and length of the descriptor that dlib 20.0.1 computes for `draw_picture()`, measured on 2026-11-18.
DLIB_FEATURE = [-0.081512, 0.115706, 0.040352, -0.036916, -0.104638, -0.046953, -0.019712, 0.006203]
DLIB_LENGTH = 1.3750106


def draw_picture():
    y, x = np.mgrid[:150, :150]
    return np.stack([(x * 7 + y * 3) % 256, (x * y) % 256, (x * 2 + 255 - y) % 256]).astype(np.uint8)


def pack(number):
    size = max(1, (abs(number).bit_length() + 7) // 8)
    return bytes([size | (0x80 if number < 0 else 0)]) + abs(number).to_bytes(size, "little")


def write_tensor(*parts):
    values = np.concatenate([part.detach().numpy().ravel() for part in parts]).astype("<f4")
    return b"".join(map(pack, (2, len(values), 1, 1, 1))) + values.tobytes()


def write_file(network, path):
    """Return the content of a file of dlib without the settings between the tensors, which the reader skips."""
    pairs = [(network.stem, network.stem_scale)]
    for block in network.blocks:
        pairs += [(block.first, block.first_scale), (block.second, block.second_scale)]
    content = b"\x01\x01\x0dloss_metric_2" + pack(3)
    for conv, scale in pairs:
        content += b"\x05con_4" + write_tensor(conv.weight, conv.bias) + b"\x01\x00"
        content += b"\x07affine_" + write_tensor(scale.weight, scale.bias) + b"\x08relu_110"
    content += b"\x04fc_2" + pack(128) + pack(256) + write_tensor(network.embedding.weight.T) + pack(-28)
    path.write_bytes(content)


@pytest.fixture
def network():
    torch.manual_seed(0)
    made = DlibResNet()
    for parameter in made.parameters():
        torch.nn.init.uniform_(parameter, -0.1, 0.1)
    return made


def test_a_file_is_read_back(network, tmp_path):
    write_file(network, tmp_path / "network.dat")
    read = read_dlib_resnet(tmp_path / "network.dat")
    for name, tensor in network.state_dict().items():
        assert torch.equal(read.state_dict()[name], tensor), name


def test_other_and_damaged_files_end_in_one_sentence(network, tmp_path):
    path = tmp_path / "network.dat"
    write_file(network, path)
    content = path.read_bytes()
    place = content.index(b"\x05con_4") + 6
    for changed, message in [
        (b"", "does not contain dlib's face network: layers are missing after byte 0"),
        (content[:5000], "is damaged at byte"),
        (content[: len(content) // 2], r"is damaged at byte|layers are missing"),
        (content[:place] + b"\x01\x03" + content[place + 2 :], "is damaged at byte"),
        (content[:place] + b"\x01\x02\x08" + b"\xff" * 40 + content[place:], "is damaged at byte"),
        (content[:place] + b"\x0f" + content[place:], "is damaged at byte"),
        (content.replace(b"\x05con_4", b"\x07affine_", 1)[: place + 30000], "a tensor has|is damaged|missing"),
        (content[content.index(b"\x07affine_") :], "a tensor has 64 values"),
    ]:
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=message):
            read_dlib_resnet(path)


def test_features_are_those_of_dlib():
    try:
        network = load_network("dlib-resnet")
    except FetchError as error:
        pytest.skip(f"the weights of dlib-resnet cannot be fetched: {error}")
    with torch.no_grad():
        feature = network(torch.tensor(draw_picture())[None].float())[0]
    assert feature[:8].tolist() == pytest.approx(DLIB_FEATURE, abs=2e-6)
    assert float(feature.norm()) == pytest.approx(DLIB_LENGTH, abs=1e-5)
