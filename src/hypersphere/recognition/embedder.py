"""Embedders: a trained network with its preprocessing, saved in one file without pickle."""

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
# Input values per batch on a CPU, about four aligned faces. The activations of larger batches exceed the memory that the
# allocator keeps (32 MiB), so the system clears new pages for every layer: 38 ms instead of 0.4 ms per face for sface.
MAX_CPU_VALUES = 160_000
MAX_DIFFERENCE = 1e-4  # relative difference of the features of a network and of the network built from its file
RANDOM_FILLS = frozenset({Tensor.normal_, Tensor.uniform_, Tensor.exponential_, Tensor.bernoulli_})


class Embedder(nn.Module):
    """A network with its preprocessing: pictures or recordings in, features out.

    Args:
        network: Computes the features of prepared samples.
        preprocessing: Converts pictures or recordings to inputs of the network.
        call: The constructor call that builds the network. Without it, the embedder cannot be saved.
        card: Information about its training, saved in its file.

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
        """Return an embedder with the network that ``call`` builds and these weights.

        Names and shapes are compared before memory is allocated.

        Raises:
            ValueError: If names or shapes differ.
        """
        return cls(build_network(call, tensors), preprocessing, call)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of weights, preprocessing and arguments of the network. A gallery accepts features of one fingerprint.

        It does not depend on the modules or names of classes.
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
        floating-point pixels in [0, 1]; or a list of these. A batch with the size of the network's input counts as prepared,
        such as by datasets or :meth:`Preprocessing.load`: it is normalized, but not cropped again.
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
        """Return the features of samples that :meth:`Preprocessing.load_windows` prepared, in the current mode of the network.

        If the preprocessing averages windows, the feature of a sample is the mean of the directions of its windows, of
        length 1.

        Args:
            samples: The windows (k, …) of each sample, as stored or in floating point.
            batch: Windows per batch; all by default. A CPU takes fewer large windows per batch (:data:`MAX_CPU_VALUES`).
        """
        counts = [len(windows) for windows in samples]
        if len({windows.dtype for windows in samples}) == 1:
            windows = torch.cat(list(samples))
            size = len(windows) if batch is None else batch
            if self.device.type == "cpu":
                size = min(size, max(1, MAX_CPU_VALUES // max(1, windows[0].numel())))
            parts = windows.split(size)
            inputs = (self.preprocessing.normalize(part.to(self.device)) for part in parts)
        else:  # one batch would round floating-point samples to the 8 bits of the others
            inputs = (self.preprocessing.normalize(part.to(self.device)) for part in samples)
        features = torch.cat([self.of_inputs(x) for x in inputs])
        if not self.preprocessing.averages_windows:
            return features
        owner = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)).to(features.device)
        total = features.new_zeros(len(counts), features.shape[1]).index_add(0, owner, normalize(features))
        return normalize(total)

    def of_inputs(self, x: Tensor) -> Float[Tensor, "n d"]:
        """Return the features of normalized inputs on the embedder's device, in the current mode of the network."""
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
        """Write the file atomically, after rebuilding the network from its content and comparing the features.

        ``compare`` is a function and samples, for which the rebuilt network must compute the same features; by default the
        embedder itself and random samples.

        Raises:
            ValueError: If the features differ, or the embedder has no constructor call. No file is written.
        """
        if self.call is None:
            raise ValueError("the embedder cannot be saved without the constructor call of its network: give call")
        tensors = {
            name: tensor.detach().cpu().contiguous().clone() for name, tensor in self.network.state_dict().items()
        }
        if not is_finite(tensors):
            raise ValueError("weights must be finite, got NaN or infinity")
        content = self.description()
        rebuilt = Embedder(build_network(_decode_call(content["network"], trust=True), tensors), self.preprocessing)
        random_samples = self.preprocessing.draw_stored(4, torch.Generator().manual_seed(0))
        function, samples = (self, random_samples) if compare is None else compare
        _check_equal(function(samples), rebuilt(samples))
        header = json.dumps(
            {"sha256": _seal(content, tensors)[0], "content": content, "card": {**self.card, **(card or {})}}
        )
        write_atomically(path, lambda temporary: safetensors.torch.save_file(tensors, temporary, {FORMAT: header}))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, trust: bool = False, device: torch.device | str | None = None
    ) -> "Embedder":
        """Read a file of :meth:`save` and verify its checksum. No code in the file runs.

        A network outside this library, named by ``module:class``, is imported only with ``trust=True``.
        """
        header, tensors = read_file(path, FORMAT)
        content = header.get("content")
        if not isinstance(content, dict) or not isinstance(content.get("network"), dict):
            raise ValueError(f"{path} does not contain the constructor call of its network")
        seal, fingerprint = _seal(content, tensors)
        if header.get("sha256") != seal:
            raise ValueError(f"{path} is damaged: its checksum does not match its content")
        if not is_finite(tensors):
            raise ValueError(f"the weights in {path} must be finite, got NaN or infinity")
        call = _decode_call(content["network"], trust)
        preprocessing = Preprocessing.from_dict(content.get("preprocessing", {}), trust=trust)
        try:
            network = build_network(call, tensors)
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
    """The features of a network as a function."""

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


def _check_equal(expected: Tensor, actual: Tensor) -> None:
    expected, actual = expected.detach().cpu().double(), actual.detach().cpu().double()
    is_close = expected.shape == actual.shape and bool(
        (expected - actual).norm() <= MAX_DIFFERENCE * (expected.norm() + 1e-12)
    )
    if not is_close:
        raise ValueError(
            "the network built from the file computes other features: its constructor call must be incomplete"
        )


def build_network(call: Call, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Build the network of a constructor call with the weights ``tensors``.

    It is first built on the meta device, without memory, to compare names and shapes.

    Raises:
        ValueError: If they differ.
    """
    with torch.device("meta"), _NoDraws():
        network = _call_constructor(call)
    expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    actual = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if expected != actual:
        names = [name for name in {**expected, **actual} if expected.get(name) != actual.get(name)]
        name = names[0]
        raise ValueError(
            f"{len(names)} tensors differ from those of {call.name}, the first is {name}: "
            f"{actual.get(name, 'absent')} instead of {expected.get(name, 'absent')}"
        )
    # Clone, because tensors read from a file may be unaligned in memory, which changes the last bits of products.
    network.load_state_dict({name: tensor.clone() for name, tensor in tensors.items()}, assign=True)
    meta_buffers = [name for name, buffer in network.named_buffers() if buffer.is_meta]
    if meta_buffers or any(parameter.is_meta for parameter in network.parameters()):
        network = _call_constructor(call)  # it has tensors that are not in its state; the sizes were compared above
        network.load_state_dict(dict(tensors))
    for parameter in network.parameters():
        parameter.requires_grad_(True)
    return network


class _NoDraws(TorchFunctionMode):
    """Skips random initialization of tensors on the meta device, for which PyTorch would import its compiler."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in RANDOM_FILLS and args[0].is_meta:
            return args[0]
        return func(*args, **(kwargs or {}))


def _call_constructor(call: Call) -> nn.Module:
    try:
        network = call.build()
    except (TypeError, RuntimeError, NotImplementedError, OverflowError, MemoryError) as error:
        raise ValueError(f"{call.name} cannot be built: {error}") from error
    if not isinstance(network, nn.Module):
        raise ValueError(f"{call.name} must build a module, got {type(network).__name__}")
    return network
