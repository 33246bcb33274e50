"""GE2E against an independent implementation in float64 numpy, from samples to features, on real recordings."""

import dataclasses

import numpy as np
import pytest
import torch

from hypersphere.data import AudioPreprocessing
from hypersphere.models import GE2E, FetchError, load_network
from hypersphere.models.ge2e import CPU_BATCH, read_ge2e
from hypersphere.recognition import Embedder, embed, evaluate, load
from tests.data.test_spectrograms import reference_filters, reference_power
from tests.data.voices import unpack_speakers, voice


def reference_network(state, frames):
    """Compute three LSTM layers, a linear layer, ReLU and the unit length step by step; ``frames`` is (time, bands)."""

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    layers = sum(name.startswith("lstm.weight_ih") for name in state)
    for layer in range(layers):
        wi, wh, bi, bh = (state[f"lstm.{n}_l{layer}"] for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        h = c = np.zeros(wh.shape[1])
        outputs = []
        for x in frames:
            i, f, g, o = np.split(wi @ x + bi + wh @ h + bh, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            outputs.append(h)
        frames = np.stack(outputs)
    feature = np.maximum(state["linear.weight"] @ frames[-1] + state["linear.bias"], 0)
    return feature / np.linalg.norm(feature)


def reference_feature(state, samples):
    """Follow the published procedure except silence removal: −30 dB, 1.3 windows per second, mean of features."""
    samples = samples.astype(np.float64)
    level = 20 * np.log10(np.sqrt(np.mean(samples**2)))
    samples = samples * 10 ** (max(0, -30 - level) / 20)
    total, step = int(np.ceil((len(samples) + 1) / 160)), round(16000 / 1.3 / 160)
    starts = list(range(0, max(1, total - 160 + step + 1), step))
    if len(starts) > 1 and (len(samples) - starts[-1] * 160) / 25600 < 0.75:
        starts.pop()
    samples = np.pad(samples, (0, max(0, (starts[-1] + 160) * 160 - len(samples))))
    power = reference_power(np.pad(samples, 200), 400, 400, 160)
    mel = (reference_filters(16000, 400, 40, 0, 8000, "slaney") @ power).T
    features = [reference_network(state, mel[start : start + 160]) for start in starts]
    mean = np.mean(features, 0)
    return mean / np.linalg.norm(mean)


def small_state(network):
    return {name: tensor.double().numpy() for name, tensor in network.state_dict().items()}


def test_the_network_is_its_formula():
    network = GE2E(bands=8, hidden=12, layers=3, feature_dim=6)
    x = torch.rand(2, 8, 9)
    expected = [reference_network(small_state(network), one.T.double().numpy()) for one in x]
    np.testing.assert_allclose(network(x).detach().numpy(), np.stack(expected), atol=1e-6)


def test_a_checkpoint_is_read_without_its_loss():
    state = GE2E().state_dict()
    read = read_ge2e({"step": 1, "model_state": {**state, "similarity_weight": torch.ones(1)}})
    assert torch.equal(read.linear.weight, state["linear.weight"])


def test_windows_are_averaged_and_the_file_keeps_everything(tmp_path):
    from hypersphere.config import call

    torch.manual_seed(0)
    made = call(GE2E, bands=16, hidden=8, layers=1, feature_dim=8)
    prepare = AudioPreprocessing(frames=40, step=20, bands=16, trim=None)
    embedder = Embedder(made.build(), prepare, made)
    sound = voice(0, seconds=1.4)
    one = embedder.network(prepare.normalize(prepare.load_windows(sound))).detach()
    mean = torch.nn.functional.normalize(one.mean(0), dim=0)
    torch.testing.assert_close(embedder(sound)[0], mean)
    torch.testing.assert_close(embedder([sound, voice(1)])[0], mean)
    embedder.save(tmp_path / "voices.safetensors")
    again = Embedder.load(tmp_path / "voices.safetensors")
    assert again.fingerprint == embedder.fingerprint
    torch.testing.assert_close(again(sound)[0], mean)


@pytest.fixture(scope="module")
def ge2e():
    try:
        load_network("ge2e")
    except FetchError as error:
        pytest.skip(f"ge2e cannot be fetched: {error}")
    return load("ge2e")


def test_it_equals_the_published_procedure_on_real_recordings(ge2e, tmp_path):
    folder = unpack_speakers(tmp_path)
    plain = Embedder(ge2e.network, dataclasses.replace(ge2e.preprocessing, trim=None), ge2e.call)
    files = [folder / f"speaker{i:02d}" / "03.ogg" for i in (1, 17, 48)]
    for file in files:
        samples = plain.preprocessing._read(file).samples[:, 0]
        expected = reference_feature(small_state(plain.network), samples)
        np.testing.assert_allclose(plain(file)[0].numpy(), expected, atol=1e-5)


@pytest.mark.slow
def test_unseen_speakers_are_told_apart(ge2e, tmp_path):
    result = evaluate(ge2e, unpack_speakers(tmp_path), baselines=False)
    assert float(result.report.eer) <= 0.02
    assert float(result.report.rank(1)) >= 0.99


def test_twelve_speakers_are_told_apart(ge2e, tmp_path):
    folder = unpack_speakers(tmp_path)
    files = [folder / f"speaker{i:02d}" / f"0{j}.ogg" for i in range(1, 13) for j in range(2)]
    found = embed(ge2e, files)
    cosine = found.features @ found.features.T
    cosine.fill_diagonal_(-1)
    assert [found.labels[i] for i in cosine.argmax(1).tolist()] == list(found.labels)


def test_windows_are_computed_in_parts_without_gradients():
    network = GE2E(bands=6, hidden=8, layers=2, feature_dim=5)
    x = torch.rand(2 * CPU_BATCH + 3, 6, 9)
    with torch.no_grad():
        parts = network(x)
    torch.testing.assert_close(parts, network(x).detach(), atol=1e-6, rtol=1e-5)
