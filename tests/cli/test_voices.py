"""Recordings through all commands (check, evaluate, embed, gallery, export), with synthetic and real voices."""

import json
import shutil

import numpy as np
import pytest
import safetensors.torch
import soundfile
import torch

from hypersphere.config import call
from hypersphere.data import AudioPreprocessing
from hypersphere.models import GE2E, FetchError, fetch_model
from hypersphere.recognition import Embedder
from tests.data.voices import unpack_speakers, voice, write_people
from tests.processes import typed


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a command in the test's folder and returns its output."""

    def do(*words):
        return typed(*words, cwd=tmp_path).stdout

    return do


@pytest.fixture
def embedder(tmp_path):
    torch.manual_seed(0)
    made = call(GE2E, bands=20, hidden=16, layers=1, feature_dim=24)
    prepare = AudioPreprocessing(frames=60, step=30, bands=20)
    path = tmp_path / "voices.safetensors"
    Embedder(made.build(), prepare, made).save(path)
    return path


def test_synthetic_voices_go_the_whole_road(tmp_path, embedder, run):
    people = write_people(tmp_path / "people", people=6, takes=3, ending="flac")
    probe = tmp_path / "probe.wav"
    soundfile.write(probe, np.stack([voice(2, take=0)] * 2, 1), 16000)
    assert "18 recordings of 6 identities" in run("data", "check", people)
    report = run("evaluate", embedder, people, "-o", tmp_path / "report")
    assert "EER" in report
    assert "18 recordings" in report
    run("embed", embedder, people, "-o", tmp_path / "features.safetensors")
    assert safetensors.torch.load_file(tmp_path / "features.safetensors")["features"].shape == (18, 24)
    gallery = tmp_path / "known.db"
    assert "enrolled person0 with 3 templates" in run("gallery", "enrol", gallery, embedder, people)
    run("gallery", "calibrate", gallery, embedder, people, "--far", "0.5")
    answer = run("gallery", "identify", gallery, embedder, probe, "--threshold", "0.99", "--json")
    assert json.loads(answer)["identity"] == "person2"
    (people / "person0" / "bad.wav").write_bytes(b"RIFF")
    assert "bad.wav" in typed("gallery", "enrol", gallery, embedder, people, cwd=tmp_path, code=1).stderr
    assert "enrolled person1" in run("gallery", "enrol", gallery, embedder, people, "--skip-errors")


def test_an_onnx_graph_has_the_front_end_in_it(tmp_path, embedder, run):
    runtime = pytest.importorskip("onnxruntime")
    people = write_people(tmp_path / "people", people=2, takes=2)
    graph = tmp_path / "voices.onnx"
    run("export", embedder, "--onnx", graph, "--images", people)
    loaded = Embedder.load(embedder)
    windows = loaded.preprocessing.load_windows(voice(0, seconds=2))
    (found,) = runtime.InferenceSession(str(graph)).run(None, {"samples": windows.numpy()})
    mean = torch.nn.functional.normalize(torch.nn.functional.normalize(torch.from_numpy(found)).sum(0), dim=0)
    torch.testing.assert_close(mean, loaded(voice(0, seconds=2))[0], atol=1e-4, rtol=0)
    assert "mel spectrogram is in the graph" in json.loads((tmp_path / "voices.onnx.json").read_text())["input"]


def test_real_speakers_go_the_whole_road(tmp_path, run):
    speakers = unpack_speakers(tmp_path)
    try:
        fetch_model("ge2e")
    except FetchError as error:
        pytest.skip(f"ge2e cannot be fetched: {error}")
    small, others, probes = tmp_path / "small", tmp_path / "others", tmp_path / "probes"
    for i in range(1, 13):
        home = (small if i <= 6 else others) / f"speaker{i:02d}"
        home.mkdir(parents=True)
        for j in range(3):
            shutil.copy(speakers / home.name / f"{j:02d}.ogg", home)
    probes.mkdir()
    shutil.copy(speakers / "speaker03" / "07.ogg", probes / "known.ogg")
    shutil.copy(speakers / "speaker20" / "07.ogg", probes / "stranger.ogg")
    assert "18 recordings of 6 identities: 3 recordings each" in run("data", "check", small)
    report = tmp_path / "report"
    assert "EER" in run("evaluate", "ge2e", small, "-o", report)
    gallery = tmp_path / "known.db"
    run("gallery", "enrol", gallery, "ge2e", small)
    run("gallery", "calibrate", gallery, "ge2e", others, "--far", "0.02")
    lines = run("gallery", "identify", gallery, "ge2e", probes, "--threshold", "0.88", "--json").splitlines()
    found = {json.loads(line)["file"].rpartition("/")[2]: json.loads(line)["identity"] for line in lines}
    assert found == {"known.ogg": "speaker03", "stranger.ogg": None}


def test_a_network_is_fitted_to_recordings(tmp_path, run):
    people = write_people(tmp_path / "people", people=9, takes=4, seconds=1.2)
    said = run("fit", people, "-o", "run", "steps=4", "backbone.widths=4,4,8,8", "feature_dim=16", "threads=1")
    assert "36 recordings of 9 identities: 4 recordings each" in said
    assert "preprocessing=AudioPreprocessing(frames=112" in said
    assert "spectrogram statistics, LDA" in said
    assert "row covariances with PCA and LDA" in said
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["figures"]["identities"]["value"] == 3
    assert (tmp_path / "run" / "pictures" / "worst_different.png").is_file()
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Hardest samples" in page
    assert '<audio controls preload="none" src="data:audio/wav;base64,UklGR' in page
    assert "EER" in run("evaluate", "run", people)
    run("gallery", "enrol", "known.db", "run", people)
    run("gallery", "calibrate", "known.db", "run", people, "--far", "0.5")
    probe = people / "person4" / "1.wav"
    assert run("gallery", "identify", "known.db", "run", probe, "--threshold", "0.9").split("\t")[1] == "person4"
    run("export", "run", "--onnx", "run/voices.onnx", "--images", people)
    again = [
        "backbone=ECAPA",
        "backbone.channels=16",
        "head.m=Ramp",
        "head.m.stop=0.2",
        "head.m.end=2",
        "selection=0.4",
    ]
    assert "ECAPA" in run(
        "fit", people, "-o", "other", "steps=3", "threads=1", "pictures=false", "baselines=false", *again
    )


def test_a_pretrained_network_is_not_trained_on_few_recordings(tmp_path, embedder, run):
    people = write_people(tmp_path / "people", people=9, takes=3, seconds=1.2)
    said = run("fit", people, "--from", embedder, "-o", "run", "pictures=false", "threads=1")
    assert "tune=frozen: " in said
    assert "too few to train a pretrained network" in said
    assert "so the pretrained features are not changed" in said
    first, second = (Embedder.load(path) for path in (embedder, tmp_path / "run" / "embedder.safetensors"))
    network = second.network.networks[0]  # fit joins this random network with descriptors, which are better
    for name, tensor in first.network.state_dict().items():
        torch.testing.assert_close(network.state_dict()[name], tensor)
    assert "--from" not in (tmp_path / "run" / "command.txt").read_text().replace("start=", "")
    assert "start=" in (tmp_path / "run" / "command.txt").read_text()
    tuned = run("fit", people, "--from", embedder, "-o", "tuned", "tune=full", "steps=2", "pictures=false", "threads=1")
    assert "tune=full: you asked for it" in tuned
    error = typed("fit", people, "--from", "characters", "-o", "no", cwd=tmp_path, code=1).stderr
    assert "holds recordings, but characters was trained on pictures" in error


@pytest.mark.slow
def test_real_speakers_from_a_folder_to_a_gallery(tmp_path, run):
    speakers = unpack_speakers(tmp_path)
    train, others = tmp_path / "train", tmp_path / "others"
    for i in range(1, 31):
        home = (train if i <= 24 else others) / f"speaker{i:02d}"
        home.mkdir(parents=True)
        for j in range(8):
            shutil.copy(speakers / home.name / f"{j:02d}.ogg", home)
    run("fit", train, "-o", "run", "steps=60", "threads=1", "pictures=false")
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    lda = next(b["eer"] for b in report["baselines"] if b["name"] == "spectrogram statistics, LDA")
    assert report["figures"]["EER"]["value"] <= lda
    figures = json.loads(run("evaluate", "run", others, "--json"))["figures"]
    assert figures["EER"]["value"] < 0.15
    run("gallery", "enrol", "known.db", "run", others)
    run("gallery", "calibrate", "known.db", "run", train, "--far", "0.01")
    probe = speakers / "speaker27" / "09.ogg"
    assert run("gallery", "identify", "known.db", "run", probe, "--threshold", "0").split("\t")[1] == "speaker27"
    run("export", "run", "--onnx", "run/voices.onnx", "--images", others)
    try:
        fetch_model("ge2e")
    except FetchError as error:
        pytest.skip(f"ge2e cannot be fetched: {error}")
    run("fit", train, "--from", "ge2e", "-o", "tuned", "threads=1", "pictures=false")
    after = json.loads(run("evaluate", "tuned", others, "--json"))["figures"]["EER"]["value"]
    before = json.loads(run("evaluate", "ge2e", others, "--json"))["figures"]["EER"]["value"]
    assert after <= before + 0.005
