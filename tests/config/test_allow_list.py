"""A file may name only what is on the allow-list, anywhere in the file."""

import importlib
import inspect
import json
import pathlib
import pkgutil
import subprocess
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import hypersphere
from hypersphere.config import CONSTRUCTIBLE, Call, Parameter, decode, decode_arguments, list_constructible, parameters
from hypersphere.config.names import ALIASES, list_packages, list_public
from hypersphere.data import PicturePreprocessing
from hypersphere.recipes import RECIPES, SIZES
from hypersphere.recognition import Embedder
from hypersphere.recognition.embedder import FORMAT, NETWORK, _seal
from hypersphere.training import Config, from_json, to_json

VERBS = (
    "load",
    "parse",
    "build",
    "read",
    "write",
    "fetch",
    "get",
    "open",
    "save",
    "from_",
    "to_",
    "cache_decoded",
    "fit",
    "call",
)


def all_public_names() -> list[str]:
    """Return every public name of the package in three spellings: plain, with its package, and as an import path."""
    names = set()
    for info in pkgutil.walk_packages(hypersphere.__path__, "hypersphere."):
        if ".pretrained" in info.name or info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if callable(value) and not name.startswith("_"):
                names |= {name, f"{info.name.rpartition('.')[2]}.{name}", f"{info.name}:{name}"}
    outside = [
        "os:system",
        "subprocess:run",
        "builtins:eval",
        "builtins:exec",
        "torch:load",
        "pickle:loads",
        "exec",
        "Module",
    ]
    return sorted(names) + outside + [name for package in ("torch.nn", "torch.optim") for name in list_public(package)]


NAMES = all_public_names()
PLAIN_NAMES = [name for i, name in enumerate(NAMES) if "." not in name or i % 20 == 0]
KEYS = sorted(
    {key for target in list_constructible() for key in parameters(target)} | {"text", "trust", "config", "command"}
)


def calls_in(value: Any) -> list[Call]:
    if isinstance(value, Call):
        return [value, *(inner for argument in value.arguments.values() for inner in calls_in(argument))]
    if isinstance(value, list | tuple):
        return [inner for item in value for inner in calls_in(item)]
    if isinstance(value, dict):
        return [inner for item in value.values() for inner in calls_in(item)]
    return []


def attack(command: str) -> dict[str, Any]:
    """Return the network description with which a reviewer ran a command through ``Embedder.load``."""
    inner = json.dumps({"data": {"call": "os:system", "command": command}})
    loader = {"call": "from_json", "trust": True, "text": inner}
    return {"call": "mlp", "input_size": 4, "hidden": [16], "num_classes": {"call": "build_task", "config": loader}}


def write_embedder(path, network: Any) -> None:
    tensors = {"weight": torch.zeros(2)}
    content = {"network": network, "preprocessing": PicturePreprocessing(size=(4, 4), channels=1).to_dict()}
    header = json.dumps({"sha256": _seal(content, tensors)[0], "content": content, "card": {}})
    save_file(tensors, path, {FORMAT: header})


def test_the_file_that_ran_a_command_is_refused(tmp_path):
    marker = tmp_path / "ran"
    write_embedder(tmp_path / "e.safetensors", attack(f"touch {marker}"))
    with pytest.raises(ValueError, match=r"network\.num_classes must be .*, got a call of 'build_task'"):
        Embedder.load(tmp_path / "e.safetensors")
    with pytest.raises(ValueError, match="num_classes"):
        hypersphere.load(tmp_path / "e.safetensors")
    assert not marker.exists()


def test_a_run_configuration_cannot_run_a_command(tmp_path):
    marker = tmp_path / "ran"
    document = json.loads(to_json(Config()))
    for slot in document.keys() - {"call"}:
        changed = {**document, slot: attack(f"touch {marker}")}
        with pytest.raises(ValueError, match=slot):
            from_json(json.dumps(changed)).data.build()
    assert not marker.exists()


@pytest.mark.untyped
def test_no_public_name_outside_the_list_is_found_in_any_slot():
    reached = set()
    for slot in [NETWORK, *parameters(Config).values(), Parameter("x", Any, None)]:
        for name in PLAIN_NAMES:
            try:
                found = decode({"call": name}, slot, "x")
            except ValueError:
                continue
            assert all(call.target in list_constructible() for call in calls_in(found)), name
            reached.add(name)
    assert len(reached) > 100  # the slots accept names on the list


names = st.sampled_from(NAMES) | st.sampled_from(sorted(n for group in CONSTRUCTIBLE.values() for n in group))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 100) | st.floats(0, 1) | st.sampled_from(NAMES) | st.just("x"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.builds(
            lambda name, arguments: {"call": name, **arguments},
            names,
            st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
        )
    ),
    max_leaves=12,
)


@settings(max_examples=400)
@given(network=values, slot=st.sampled_from(sorted(parameters(Config))), value=values)
def test_random_descriptions_never_reach_anything_outside_the_list(network, slot, value):
    for read in (lambda: decode(network, NETWORK, "network"), lambda: decode_arguments(Config, {slot: value})):
        try:
            found = read()
        except ValueError:
            continue
        assert all(call.target in list_constructible() for call in calls_in(found))


def test_nothing_listed_loads_builds_by_name_or_takes_trust():
    for package, listed in CONSTRUCTIBLE.items():
        for name in listed:
            target = list_public(package)[name]
            assert "trust" not in parameters(target), name
            assert inspect.isclass(target) or not name.startswith(VERBS), name
            if package == "hypersphere.models" and not inspect.isclass(target):
                assert name == "he_normal" or issubclass(
                    inspect.get_annotations(target, eval_str=True)["return"], torch.nn.Module
                )


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_read_without_trust(name):
    for size in SIZES:
        text = to_json(RECIPES[name].config(size))
        assert to_json(from_json(text)) == text


def test_every_exported_class_of_the_slots_is_listed_or_excluded_by_reason():
    """A new public class must be added to the allow-list or excluded here."""
    abstract = {
        value
        for package in list_packages()
        for value in list_public(package).values()
        if inspect.isabstract(value) or getattr(value, "_is_protocol", False)
    }
    by_function = {"CustomAngular", "CustomMagnitude", "Penalty"}  # hold a Python function, which a file cannot store
    parts = {
        "Context",
        "Margin",
        "Checkpoint",
        "NoLayersError",
        "LayerChange",
        "LayerReport",
        "FinetuningSplit",
        "Int4Linear",
        "Int8Linear",
        "Map",
        "MatrixGroups",
        "ParamGroups",
        "Layers",
        "Targets",  # a batch of tensors, never a setting
    }
    for package in ("objectives", "objectives.margins", "operators", "operators.magnitudes", "energy", "orthogonal"):
        for name, value in list_public(f"hypersphere.{package}").items():
            if inspect.isclass(value) and value not in abstract and name not in by_function | parts:
                assert name in CONSTRUCTIBLE[f"hypersphere.{package}"], (package, name)


@pytest.mark.parametrize("command", ["embed", "export", "evaluate", "enrol", "serve"])
def test_commands_refuse_the_file(command, tmp_path, capsys):
    from hypersphere.cli.main import main

    marker = tmp_path / "ran"
    file = tmp_path / "e.safetensors"
    write_embedder(file, attack(f"touch {marker}"))
    (tmp_path / "pictures" / "ann").mkdir(parents=True)
    pictures = str(tmp_path / "pictures")
    arguments = {
        "embed": ["embed", str(file), pictures, "-o", str(tmp_path / "f.npy")],
        "export": ["export", str(file), "--onnx", str(tmp_path / "f.onnx")],
        "evaluate": ["evaluate", str(file), pictures],
        "enrol": ["gallery", "enrol", str(tmp_path / "g.db"), str(file), pictures],
        "serve": ["serve", str(file), str(tmp_path / "g.db")],
    }
    try:
        code = main(arguments[command])
    except SystemExit as stop:
        code = stop.code
    assert code not in (0, None)
    assert not marker.exists()
    assert "Traceback" not in capsys.readouterr().err


def test_reading_a_file_opens_no_connection(tmp_path, monkeypatch):
    import socket

    def refuse(*args, **kwargs):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    config = {
        "model_type": "vit",
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    for extra in (
        {"attn_implementation": "owner/kernel"},
        {"_attn_implementation": "owner/kernel"},
        {"use_pretrained_backbone": True, "backbone": "resnet18"},
        {"auto_map": {"AutoModel": "owner/code--model.Model"}},
        {"trust_remote_code": True},
        {"model_type": "detr"},
    ):
        text = json.dumps({**config, "image_size": 8, "patch_size": 4, **extra})
        network = {"call": "TransformersNetwork", "config": text}
        with pytest.raises(ValueError, match="config"):
            decode(network, NETWORK, "network").build()
    for name in ("hf-hub:owner/model", "local-dir:/tmp/x", "https://host/model"):
        with pytest.raises(ValueError, match="name must be the plain name of a timm model"):
            decode({"call": "timm_network", "name": name}, NETWORK, "network").build()


def test_every_name_that_a_file_may_carry_still_resolves():
    """``names_in_files.txt`` only grows: a renamed class keeps its old name in ``ALIASES``."""
    current = {name for names in CONSTRUCTIBLE.values() for name in names}
    recorded = (pathlib.Path(__file__).parent / "names_in_files.txt").read_text().split()
    assert sorted(name for name in recorded if ALIASES.get(name, name) not in current) == []
    own = {name for package, names in CONSTRUCTIBLE.items() if package.startswith("hypersphere") for name in names}
    assert sorted(own - set(recorded)) == [], "add the new names to names_in_files.txt"
