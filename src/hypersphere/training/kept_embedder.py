"""What is kept of training where features are all that counts: a file that ``hypersphere embed`` and galleries take."""

import inspect
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ..config import Call, parameters
from ..data import Preprocessing
from ..recognition import Embedder

if TYPE_CHECKING:
    from .tasks.classification import Classification


def save_embedder(
    task: "Classification", weights: Mapping[str, Tensor], sample: Tensor, path: pathlib.Path, **card: Any
) -> str | None:
    """Write the network up to its features, with how images are prepared; returns the reason where a file cannot say it.

    The file is built again and compared with the network on ``sample`` before it takes its place.
    """
    prepared = preprocessing_of(task, sample)
    if isinstance(prepared, str):
        return prepared
    call = network_call(task)
    if isinstance(call, str):
        return call
    body = getattr(task.model, "body", None) if type(task.model).__name__ == "Headed" else task.model
    assert isinstance(body, nn.Module)
    prefix = "body." if body is not task.model else ""
    own = {
        name.removeprefix(prefix): tensor
        for name, tensor in weights.items()
        if name.startswith(prefix) and not name.startswith("classifier.")
    }
    try:
        Embedder.from_call(call, own, prepared).save(path, compare=(task.embed_batch, sample), card=card)
    except ValueError as error:
        return str(error)
    return None


def preprocessing_of(task: "Classification", sample: Tensor) -> Preprocessing | str:
    """How files become inputs of this task's network, or why that cannot be said."""
    if sample.ndim != 4:
        return f"inputs of shape {tuple(sample.shape[1:])} are not images"
    known = getattr(task.scaling, "preprocessing", None)
    if known is not None:
        return known if isinstance(known, Preprocessing) else "its preprocessing is of another kind"
    if task.scaling is not None:
        return f"a normalization by {type(task.scaling).__name__} is not one of files"
    if not sample.is_floating_point():
        return "its dataset gives pixels in integers and no scaling says how a network sees them"
    size = (int(sample.shape[2]), int(sample.shape[3]))
    return Preprocessing(size=size, channels=int(sample.shape[1]), mean=0.0, std=1.0)


def network_call(task: "Classification") -> Call | str:
    """The call that builds the network without its head, or why there is none."""
    if task.recipe is not None:
        arguments = {"num_classes": None} if "num_classes" in parameters(task.recipe.target) else {}
        return Call(task.recipe.target, {**task.recipe.arguments, **arguments})
    body = getattr(task.model, "body", task.model)
    kind: Any = type(body)
    if "<locals>" in kind.__qualname__ or kind.__module__ == "__main__":
        return f"{kind.__qualname__} cannot be imported by name; define it in a module"
    needed = [name for name, p in parameters(kind).items() if p.required]
    if needed or inspect.isabstract(kind):
        return (
            f"how {kind.__qualname__} was built is not known; pass the task call({kind.__qualname__}, …) as its model"
        )
    return Call(kind)
