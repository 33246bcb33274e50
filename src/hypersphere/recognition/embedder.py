"""Trained networks as one file: tensors, the constructor call that takes them, and how images are prepared. No pickle."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import safetensors.torch
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..config import Call, Kind, Parameter, decode, encode, remove_locations
from ..data import Preprocessing
from ..evaluation.features import append_mirrored
from ..files import checksum, is_finite, write_atomically
from ..geometry import faster_convolutions, normalize
from ..models import read_features
from ..models.network import evaluation_mode

FORMAT = "hypersphere-embedder/2"
NETWORK = Parameter("network", Annotated[Call, Kind(nn.Module, ("hypersphere.models",))], None)
# Input values that a CPU embeds at a time, about four aligned faces. With larger batches the activations exceed what the
# allocator keeps (32 MiB), and the system clears new pages for every layer: for sface 38 ms per face instead of 0.4 ms.
MAX_CPU_VALUES = 160_000
CLOSE = 1e-4  # relative difference of features allowed between a network and the one its file builds
DRAWS = frozenset({Tensor.normal_, Tensor.uniform_, Tensor.exponential_, Tensor.bernoulli_})


class Embedder(nn.Module):
    """A network with its preprocessing: pictures or recordings in, features out.

    Args:
        network: gives features of prepared images.
        preprocessing: how an image becomes its input.
        call: the constructor call that builds the network; without it the embedder works but cannot be saved.
        card: what is known of its making, kept in its file.

    >>> import tempfile
    >>> network = hs.config.call(hs.models.mlp, num_classes=None, input_size=4, hidden=(16,))
    >>> embedder = Embedder(network.build(), hs.data.PicturePreprocessing(size=(4, 4), channels=1), network)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     embedder.save(f"{folder}/small.safetensors")
    ...     Embedder.load(f"{folder}/small.safetensors")(torch.rand(3, 1, 4, 4)).shape
    torch.Size([3, 16])
    """

    def __init__(
        self,
        network: nn.Module,
        preprocessing: Preprocessing,
        call: Call | None = None,
        card: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        self.network, self.preprocessing, self.call, self.card = network, preprocessing, call, dict(card or {})
        self._fingerprint: str | None = None
        self.eval()

    @classmethod
    def from_call(cls, call: Call, tensors: Mapping[str, Tensor], preprocessing: Preprocessing) -> "Embedder":
        """Return the network that ``call`` builds with these weights; raise a ``ValueError`` if names or shapes differ.

        Shapes are compared before anything is allocated.
        """
        return cls(empty_network(call, tensors), preprocessing, call)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of weights, preprocessing and arguments of the network, to which galleries are pinned.

        It does not depend on where classes live or whether they were renamed.
        """
        if self._fingerprint is None:
            self._fingerprint = checksum(remove_locations(self.description()), self.network.state_dict())
        return self._fingerprint

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next((tensor.device for tensor in self.network.state_dict().values()), torch.device("cpu"))

    def forward(self, images: Any, batch: int = 64) -> Float[Tensor, "n d"]:
        """Return features of images, in evaluation mode and without gradients.

        ``images`` is a path, a PIL image, a ``Recording``, an array, a tensor (c, h, w) or a batch (n, c, h, w), of uint8 or of
        floating-point pixels in [0, 1]; or a list of these. A batch that has the size of the network's input is taken as
        prepared already, as datasets and :meth:`Preprocessing.load` give it: it is normalized, and not cropped a second time.
        The result is on the embedder's device.
        """
        if batch < 1:
            raise ValueError(f"batch must be an integer ≥ 1, got {batch!r}")
        with torch.no_grad(), evaluation_mode(self.network):
            if isinstance(images, Tensor) and tuple(images.shape[1:]) == self.preprocessing.shape:
                parts = [self.of_windows(list(part[:, None])) for part in images.split(batch)]
                return parts[0] if len(parts) == 1 else torch.cat(parts)
            if isinstance(images, Tensor) and images.ndim == len(self.preprocessing.shape) + 1:
                images = list(images)
            several = list(images) if isinstance(images, list | tuple) else [images]
            if not several:
                raise ValueError("images must be at least one image, got none")
            groups = [several[i : i + batch] for i in range(0, len(several), batch)]
            return torch.cat(
                [self.of_windows([self.preprocessing.load_windows(one) for one in group]) for group in groups]
            )

    def of_windows(self, samples: Sequence[Tensor], batch: int | None = None) -> Float[Tensor, "n d"]:
        """Return the features of samples that :meth:`Preprocessing.load_windows` prepared, in the network's own mode.

        If the preprocessing averages windows, the feature of a sample is the mean of the directions of its windows, of
        length 1.

        Args:
            samples: The windows (k, …) of each sample, as stored, or floating point.
            batch: Windows at a time; all by default. A CPU takes fewer large ones at a time (:data:`MAX_CPU_VALUES`).
        """
        counts = [len(windows) for windows in samples]
        if len({windows.dtype for windows in samples}) == 1:
            windows = torch.cat(list(samples))
            size = len(windows) if batch is None else batch
            if self.device.type == "cpu":
                size = min(size, max(1, MAX_CPU_VALUES // max(1, windows[0].numel())))
            parts = windows.split(size)
            inputs = (self.preprocessing.normalize(part.to(self.device)) for part in parts)
        else:  # floating-point samples are not rounded because others are stored in 8 bits
            inputs = (self.preprocessing.normalize(part.to(self.device)) for part in samples)
        features = torch.cat([self.of_inputs(x) for x in inputs])
        if not self.preprocessing.averages_windows:
            return features
        owner = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)).to(features.device)
        total = features.new_zeros(len(counts), features.shape[1]).index_add(0, owner, normalize(features))
        return normalize(total)

    def of_inputs(self, x: Tensor) -> Float[Tensor, "n d"]:
        """Return features of a batch that is prepared and on the embedder's device, in the network's own mode."""
        network = _Features(self.network)
        with faster_convolutions():
            features = append_mirrored(network, x) if self.preprocessing.mirror else network(x)
        return features.float()

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        compare: tuple[Callable[[Tensor], Tensor], Tensor] | None = None,
        card: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the file atomically, after building it again from what it will say and comparing the features.

        ``compare`` is a function and samples on which it must give the same features as the rebuilt network; by default the
        embedder itself on random samples. A difference is a ``ValueError``, and no file is written.
        """
        if self.call is None:
            raise ValueError("the embedder was made from a network alone; give it the call that builds the network")
        tensors = {
            name: tensor.detach().cpu().contiguous().clone() for name, tensor in self.network.state_dict().items()
        }
        if not is_finite(tensors):
            raise ValueError("weights must be finite, got NaN or infinity")
        content = self.description()
        trusted = Embedder(empty_network(_decode_call(content["network"], trust=True), tensors), self.preprocessing)
        drawn = self.preprocessing.draw_stored(4, torch.Generator().manual_seed(0))
        function, samples = (self, drawn) if compare is None else compare
        _check_same(function(samples), trusted(samples))
        header = json.dumps(
            {"sha256": _seal(content, tensors)[0], "content": content, "card": {**self.card, **(card or {})}}
        )
        write_atomically(path, lambda temporary: safetensors.torch.save_file(tensors, temporary, {FORMAT: header}))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, trust: bool = False, device: torch.device | str | None = None
    ) -> "Embedder":
        """Read what :meth:`save` wrote. Nothing in the file runs; its checksum is verified.

        A network outside this library, named by ``module:class``, is imported only with ``trust=True``.
        """
        header, tensors = read_file(path, FORMAT)
        content = header.get("content")
        if not isinstance(content, dict) or not isinstance(content.get("network"), dict):
            raise ValueError(f"{path} does not say how its network is built")
        seal, fingerprint = _seal(content, tensors)
        if header.get("sha256") != seal:
            raise ValueError(f"{path} is damaged: its checksum does not fit its content")
        if not is_finite(tensors):
            raise ValueError(f"{path} holds weights that are not finite")
        call = _decode_call(content["network"], trust)
        preprocessing = Preprocessing.from_dict(content.get("preprocessing", {}), trust=trust)
        try:
            network = empty_network(call, tensors)
        except ValueError as error:
            raise ValueError(f"the tensors of {path} do not fit its network: {error}") from error
        card = header.get("card")
        result = cls(network, preprocessing, call, card if isinstance(card, dict) else {})
        result._fingerprint = fingerprint
        return result if device is None else result.to(device)

    def description(self) -> dict[str, Any]:
        """Return the constructor call and the preprocessing as plain values, which the fingerprint covers."""
        network = None if self.call is None else encode(self.call)
        return {"network": network, "preprocessing": self.preprocessing.to_dict()}


def read_file(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return header and tensors of a safetensors file of this library. Raise a ``ValueError`` for other and damaged files."""
    if not Path(path).is_file():
        raise ValueError(f"there is no file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is not a safetensors file, or is damaged: {error}") from error
    if kind not in metadata:
        formats = ", ".join(metadata) or "none"
        raise ValueError(f"{path} must be a file of format {kind}, got format {formats}")
    try:
        header = json.loads(metadata[kind])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the header of {path} is damaged: {error}") from error
    if not isinstance(header, dict):
        raise ValueError(f"the header of {path} is damaged")
    return header, tensors


class _Features:
    """A network's features as a function, for mirrored images."""

    def __init__(self, network: nn.Module):
        self.network = network

    def __call__(self, x: Tensor) -> Tensor:
        return read_features(self.network, x)


def _decode_call(network: Any, trust: bool) -> Call:
    found = decode(network, NETWORK, "network", trust=trust)
    if not isinstance(found, Call):
        raise ValueError(f"network must be a constructor call, got {network!r}")
    return found


def _seal(content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[str, str]:
    """Return the checksum of a file and the fingerprint of its embedder. The tensors are hashed once for both."""
    fingerprint = checksum(remove_locations(content), tensors)
    return checksum({"content": content, "fingerprint": fingerprint}, {}), fingerprint


def _check_same(wanted: Tensor, got: Tensor) -> None:
    wanted, got = wanted.detach().cpu().double(), got.detach().cpu().double()
    same = wanted.shape == got.shape and bool((wanted - got).norm() <= CLOSE * (wanted.norm() + 1e-12))
    if not same:
        raise ValueError(
            "the network that the file would build gives other features: its constructor call does not say all"
        )


def empty_network(call: Call, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Return the network of a constructor call, holding ``tensors``.

    It is built on the meta device first, where nothing is allocated, and its names and shapes are compared; a difference is
    a ``ValueError``.
    """
    with torch.device("meta"), _NoDraws():
        network = _module(call)
    wanted = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    given = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if wanted != given:
        names = [name for name in {**wanted, **given} if wanted.get(name) != given.get(name)]
        name = names[0]
        raise ValueError(
            f"{len(names)} tensors differ from those of {call.name}, the first is {name}: "
            f"{given.get(name, 'absent')} instead of {wanted.get(name, 'absent')}"
        )
    # Cloned: a tensor read from a file may lie anywhere in memory, and products of unaligned memory differ in their last bits.
    network.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, assign=True)
    left = [name for name, buffer in network.named_buffers() if buffer.is_meta]
    if left or any(parameter.is_meta for parameter in network.parameters()):
        network = _module(call)  # it keeps more than its state says; the sizes are known to be right
        network.load_state_dict(dict(tensors))
    for parameter in network.parameters():
        parameter.requires_grad_(True)
    return network


class _NoDraws(TorchFunctionMode):
    """Skips random numbers for tensors without memory: PyTorch imports its compiler for them, which takes longer than itself."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in DRAWS and args[0].is_meta:
            return args[0]
        return func(*args, **(kwargs or {}))


def _module(call: Call) -> nn.Module:
    try:
        network = call.build()
    except (TypeError, RuntimeError, NotImplementedError, OverflowError, MemoryError) as error:
        raise ValueError(f"{call.name} cannot be built: {error}") from error
    if not isinstance(network, nn.Module):
        raise ValueError(f"{call.name} must build a module, got {type(network).__name__}")
    return network
