"""From settings and samples to the task of a fit: network, projection and head, put together."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..._extras import require
from ...config import Call, parameters
from ...data import Compose, PicturePreprocessing
from ...models import Projected, TransformersNetwork
from ...recognition.networks import feature_dim
from ..tasks.classification import with_head
from .backbones import with_dim
from .fit_settings import FitSettings
from .fit_sides import Sides
from .recognising import Recognising


def build(
    settings: FitSettings,
    sides: Sides,
    preprocessing: PicturePreprocessing,
    *,
    pretrained: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Recognising:
    """Return the task; the network starts from the settings' seed.

    Args:
        settings: All knobs, with those that the data decides.
        sides: Samples to train on, to measure and to watch.
        preprocessing: How pictures become inputs.
        pretrained: The folder of a model of ``transformers`` whose weights the backbone starts from.
        facts: What the embedder's file says of its making.
    """
    torch.manual_seed(settings.seed)
    sample = preprocessing.normalize(sides.watched.batch(torch.arange(2))[0])
    recipe = network_call(settings, preprocessing, sample)
    body = cast(nn.Module, recipe.build())
    if pretrained is not None:
        _start_from_folder(body, pretrained)
    dim, classes = feature_dim(body, sample), len(sides.train.classes)
    context = {"in_features": dim, "num_classes": classes, "feature_dim": dim}
    head = settings.head.build(**context)
    model = with_head(body, head)
    if settings.orthogonal is not None:
        settings.orthogonal.build(model=model, generator=torch.Generator().manual_seed(settings.seed))
    regularizers = [part for part in (settings.energy, settings.regularizer) if part is not None]
    steps = [step.build() for step in settings.augmentations]
    task = Recognising(
        model,
        head,
        sides.train,
        sides.watched,
        preprocessing=preprocessing,
        still=settings.frozen,
        head_first=settings.head_first,
        facts=facts,
        losses=[(term.weight, term.objective.build(**context)) for term in settings.losses],
        regularizers=[part.build(model=model, seed=settings.seed) for part in regularizers],
        batch_size=settings.batch_size,
        augment=Compose(*steps) if steps else None,
        seed=settings.seed,
        sampler=None if settings.sampler is None else settings.sampler.build(labels=sides.train.labels),
        workers=settings.workers or 0,
    )
    task.recipe = recipe
    return task


def network_call(settings: FitSettings, preprocessing: PicturePreprocessing, sample: Tensor) -> Call:
    """Return the call of the network up to its features: the backbone at the pictures' size, and a projection if wanted."""
    known = parameters(settings.backbone.target)
    sizes = {"in_channels": preprocessing.channels, "input_size": preprocessing.size, "num_classes": None}
    sizes["in_features"] = sample[0].numel()
    added = {name: value for name, value in sizes.items() if name in known and name not in settings.backbone.arguments}
    backbone = Call(settings.backbone.target, {**settings.backbone.arguments, **added})
    chosen = with_dim(backbone, settings.feature_dim)
    project = settings.project
    if project is None:
        project = settings.frozen or ("feature_dim" not in known)
    if not project:
        return chosen
    with torch.random.fork_rng():
        dim = feature_dim(cast(nn.Module, chosen.build()), sample)
    return Call(Projected, {"network": chosen, "in_features": dim, "feature_dim": settings.feature_dim})


def _start_from_folder(body: nn.Module, folder: str) -> None:
    holder = next(module for module in body.modules() if isinstance(module, TransformersNetwork))
    transformers = require("transformers", "hub")
    bars = transformers.utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()  # a bar of a moment between the lines of a fit
    try:
        stored = transformers.AutoModel.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(f"backbone: the weights in {folder} cannot be read: {error}") from error
    finally:
        if shown:
            bars.enable_progress_bar()
    holder.model.load_state_dict(stored.state_dict())
