"""Maps fitted in closed form: principal components, the discriminant, and classical descriptors weighted by cross-validation."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ..geometry import normalize
from ..models.descriptors import PATCH_RESPONSES, Descriptors, describe_pictures, descriptor_sizes, take_logarithm
from ..models.patches import MIN_ELONGATION, PatchResponses
from .patch_fitting import fit_patches
from .roc import roc_curve

FILTERS = 150  # learned from patches
MIN_FILTERED_SIDE = 8  # pixels; smaller pictures get no patch responses
SHRINK = 0.1  # of the discriminants
BETWEEN_SHRINK = 0.6  # of their covariance between identities, toward that of all pictures
PLAIN_IDENTITIES = 10  # training identities with which PCA alone counts as much as a discriminant that is as good
MAX_COMPONENTS = 400  # of PCA in front of a discriminant
MAX_PCA_PICTURES = 1000  # that PCA is fitted to, because its time grows with the third power
MAX_DIM = 128  # outputs of the discriminant of one descriptor
MAX_VALIDATED_PICTURES = 1500  # in the cross-validation
FOLDS = 3
MIN_MIRROR_GAIN = 0.02  # part of the EER by which mirror images must lower it
EER_RANGE = (0.002, 0.498)  # within which an EER is taken to be, so that weights stay finite

MapKey = tuple[str, bool]  # a descriptor, and whether it has PCA alone
MAX_BASELINE_COMPONENTS = 150  # dimensions of PCA in a baseline


@dataclass(frozen=True)
class FittedDescriptors:
    """Descriptors that were fitted to pictures, and their errors in cross-validation.

    Attributes:
        network: The module: pictures in, directions out.
        eer: EER of all descriptors together on identities left out of the fit, or None if there are too few.
        eers: EER of each descriptor behind PCA and a discriminant, by its name.
        mirrored: Whether mirror images were added to the training pictures.
        mirrored_eer: EER with mirror images, or None if they were not tried.
        plain_eer: EER without mirror images, or None if there are too few identities.

    >>> labels = torch.arange(40) % 8
    >>> fitted = fit_descriptors(torch.rand(8, 1, 16, 16)[labels] + 0.1 * torch.rand(40, 1, 16, 16), labels)
    >>> fitted.mirrored == (fitted.mirrored_eer < 0.98 * fitted.plain_eer)
    True
    """

    network: Descriptors
    eer: float | None
    eers: Mapping[str, float]
    mirrored: bool
    mirrored_eer: float | None
    plain_eer: float | None


def fit_descriptors(
    pictures: Float[Tensor, "n c h w"],
    labels: Int[Tensor, "n"],
    *,
    names: Collection[str] | None = None,
    mirror: bool | None = None,
    filters: int = FILTERS,
    logarithm: bool = False,
    seed: int = 0,
) -> FittedDescriptors:
    """Fit PCA and a linear discriminant to every classical descriptor of pictures, and weight the descriptors.

    The identities are divided into three folds. On the pairs of each fold, descriptors fitted to the other folds are
    measured. A descriptor with sensitivity d′ = 2 Φ⁻¹(1 − EER) has a weight proportional to d′², and one at chance has
    none. The same pairs tell whether mirror images belong to the training pictures. The final fit is to all identities.

    Every descriptor is used twice: behind PCA and a discriminant, and behind PCA alone. Few identities span few directions
    and say little about the others, so the weight of PCA alone is also multiplied by 10/identities. The numbers were chosen
    on small sets of several kinds (``docs/log/fit.md``).

    Args:
        pictures: Training pictures as the network receives them.
        labels: Their identities, two or more, one of them with two or more pictures.
        names: The descriptors to use, of those of :func:`~hypersphere.models.describe_pictures` and "patch responses",
            whose filters are learned from the pictures without labels (Coates and Ng, 2012); all by default.
        mirror: Whether mirror images are added; None lets the cross-validation decide.
        filters: Number of filters that are learned for patch responses; 0 leaves this descriptor out.
        logarithm: Whether the module takes the logarithm of its input first, for spectra of power.
        seed: Seed of the folds, of the patches, and of the subset to which PCA is fitted if there are many pictures.

    Returns:
        The module with what the cross-validation found. Each map has at most 128 outputs.

    Raises:
        ValueError: If there are too few identities or pictures.

    >>> labels = torch.arange(40) % 8
    >>> pictures = torch.rand(8, 1, 16, 16)[labels] + 0.1 * torch.rand(40, 1, 16, 16)
    >>> fitted = fit_descriptors(pictures, labels)
    >>> fitted.network(pictures[:3]).shape[0], fitted.eer < 0.2
    (3, True)
    """
    tall, wide = pictures.shape[2:]
    if logarithm:
        pictures = take_logarithm(pictures)
    tries = [False, True] if mirror is None else [mirror]
    if mirror is None and max(tall, wide) >= MIN_ELONGATION * min(tall, wide):
        tries = [False]  # long pictures such as spectra
    patches = None
    if filters and (names is None or PATCH_RESPONSES in names) and min(tall, wide) >= MIN_FILTERED_SIDE:
        patches = fit_patches(pictures, filters, seed=seed)
    views = {flips: _describe(pictures.flip(-1) if flips else pictures, names, patches) for flips in tries}
    if False not in views:
        views[False] = _describe(pictures, names, patches)
    folds = _divide_identities(labels, seed)
    found = {flips: _cross_validate(views, flips, labels, folds, seed) for flips in tries} if folds else {}
    chosen = tries[0]
    if len(found) == 2:
        chosen = found[True][1] < (1 - MIN_MIRROR_GAIN) * found[False][1]
    maps = [(name, plain) for plain in (False, True) for name in views[False]]
    eers = found[chosen][0] if found else dict.fromkeys(maps, 0.25)
    weights = _weigh(eers, len(labels.unique()))
    fitted = {}
    for name in views[False]:
        components = _components(views, name, chosen, slice(None), seed)
        for plain in (False, True):
            fitted[name, plain] = _fit_map(views, (name, plain), chosen, slice(None), labels, components)
    known = [*descriptor_sizes(pictures.shape[1], (tall, wide)), *([] if patches is None else [PATCH_RESPONSES])]
    places = [(name, plain) for plain in (False, True) for name in known]
    dims = [len(fitted[key][1]) if weights.get(key) else 0 for key in places]
    shares = [weights.get(key, 0.0) for key in places]
    network = Descriptors(pictures.shape[1], (tall, wide), dims, shares, 0 if patches is None else filters, logarithm)
    if patches is not None:
        network.patches = patches
    with torch.no_grad():
        for layer, key in zip(network.maps, [key for key, dim in zip(places, dims, strict=True) if dim], strict=True):
            assert isinstance(layer, torch.nn.Linear)
            layer.weight.copy_(fitted[key][0])
            layer.bias.copy_(fitted[key][1])
    return FittedDescriptors(
        network.eval(),
        found[chosen][1] if found else None,
        {name: eer for (name, plain), eer in eers.items() if not plain},
        chosen,
        found[True][1] if True in found else None,
        found[False][1] if False in found else None,
    )


def weigh_by_error(eers: Sequence[float]) -> list[float]:
    """Return weights with sum 1, proportional to the square of the sensitivity 2 Φ⁻¹(1 − EER); equal weights at chance level.

    >>> [round(weight, 3) for weight in weigh_by_error([0.1, 0.3, 0.5])]
    [0.857, 0.143, 0.0]
    """
    errors = torch.tensor(eers, dtype=torch.float64)
    bounded = errors.clamp(*EER_RANGE)
    sensitivity = torch.where(errors < EER_RANGE[1], 2 * torch.special.ndtri(1 - bounded), 0.0)
    power = sensitivity.square()
    if not float(power.sum()) > 0:
        return [1 / len(eers)] * len(eers)
    return (power / power.sum()).tolist()


def _weigh(eers: Mapping[MapKey, float], identities: int) -> dict[MapKey, float]:
    """Return the weight of each map; maps of PCA alone get less weight with more identities."""
    weights = dict(zip(eers, weigh_by_error(list(eers.values())), strict=True))
    return {key: weight * (PLAIN_IDENTITIES / identities if key[1] else 1.0) for key, weight in weights.items()}


def _describe(
    pictures: Tensor, names: Collection[str] | None, patches: PatchResponses | None = None
) -> dict[str, Tensor]:
    parts = []
    with torch.no_grad():
        for part in pictures.split(128):
            parts.append(describe_pictures(part, names))
            if patches is not None:
                parts[-1][PATCH_RESPONSES] = torch.cat([patches(few) for few in part.split(32)])
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _divide_identities(labels: Tensor, seed: int) -> list[Bool[Tensor, "n"]]:
    """Return masks of the folds, none if there are too few identities. At most ``MAX_VALIDATED_PICTURES`` belong to a fold."""
    names, counts = labels.unique(return_counts=True)
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed))
    kept = names[order][counts[order].cumsum(0) <= max(MAX_VALIDATED_PICTURES, int(counts.max()) * 2 * FOLDS)]
    if len(kept) < 2 * FOLDS:
        return []
    folds = [torch.isin(labels, kept[i::FOLDS]) for i in range(FOLDS)]
    used = torch.isin(labels, kept)
    sides = [labels[side].unique(return_counts=True)[1] for fold in folds for side in (fold, used & ~fold)]
    return folds if all(int(side.max()) > 1 for side in sides) else []


def _cross_validate(
    views: Mapping[bool, Mapping[str, Tensor]], flips: bool, labels: Tensor, folds: Sequence[Tensor], seed: int
) -> tuple[dict[MapKey, float], float]:
    """Return the EER of each map on the pairs inside the folds, and the EER of their weighted sum."""
    used = torch.stack(list(folds)).any(0)
    scores: dict[MapKey, list[Tensor]] = {(name, plain): [] for plain in (False, True) for name in views[False]}
    same = []
    for fold in folds:
        mine = labels[fold]
        first, second = torch.triu_indices(len(mine), len(mine), 1)
        same.append(mine[first] == mine[second])
        for name in views[False]:
            components = _components(views, name, flips, used & ~fold, seed)
            for plain in (False, True):
                weight, bias = _fit_map(views, (name, plain), flips, used & ~fold, labels, components)
                x = normalize(views[False][name][fold] @ weight.mT + bias)
                scores[name, plain].append((x @ x.mT)[first, second])
    which = torch.cat(same)
    joined = {key: torch.cat(parts) for key, parts in scores.items()}
    eers = {key: float(roc_curve(part, which).eer) for key, part in joined.items()}
    weights = _weigh(eers, len(labels.unique()))
    total = torch.stack([weights[key] * part for key, part in joined.items()]).sum(0)
    return eers, float(roc_curve(total, which).eer)


def _components(
    views: Mapping[bool, Mapping[str, Tensor]], name: str, flips: bool, rows: Tensor | slice, seed: int
) -> Tensor:
    """Compute the principal components of a descriptor."""
    x = _stack_views(views, name, flips, rows)
    known = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:MAX_PCA_PICTURES]
    return principal_components(x[known], min(MAX_COMPONENTS, len(known) - 1))


def _stack_views(views: Mapping[bool, Mapping[str, Tensor]], name: str, flips: bool, rows: Tensor | slice) -> Tensor:
    return torch.cat([views[side][name][rows] for side in ([False, True] if flips else [False])])


def _fit_map(
    views: Mapping[bool, Mapping[str, Tensor]],
    key: MapKey,
    flips: bool,
    rows: Tensor | slice,
    labels: Tensor,
    components: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return weight and bias of PCA, followed by a discriminant unless it is plain, with at most ``MAX_DIM`` outputs."""
    name, plain = key
    x = _stack_views(views, name, flips, rows)
    whose = labels[rows].repeat(2 if flips else 1)
    reduced = (x @ components.mT).float()
    if plain or _has_equal_samples(reduced, whose):
        weight = components[:MAX_DIM]
        return weight, -weight @ x.mean(0)
    layer = discriminant(reduced, whose, SHRINK, between=BETWEEN_SHRINK)
    count = min(MAX_DIM, layer.out_features)
    # The discriminant orders its directions by how well they separate identities, the best last.
    return (layer.weight[-count:] @ components.float()).detach(), layer.bias[-count:].detach()


def _has_equal_samples(x: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> bool:
    """Return whether all samples of every identity are equal, so that a discriminant cannot be fitted."""
    return all(bool((x[labels == name] == x[labels == name][0]).all()) for name in labels.unique())


def discriminant(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], shrink: float = 0.03, *, between: float = 0.0
) -> nn.Linear:
    r"""Fit a linear layer that puts more weight on directions in which classes differ, to append to an embedder.

    Classes are taken as Gaussian with the covariance W around means that are Gaussian with the covariance B (Ioffe 2006, "Probabilistic
    linear discriminant analysis"). In the basis in which W is the identity and B is diagonal with entries β, the mean is subtracted and
    every direction is multiplied by √(β/(1 + β)), so that the product of two outputs is that of one feature with the expected place of the
    other's class. Without that factor it would be within-class whitening, which blows up directions in which classes do not differ.

    Args:
        features: of training samples, as the embedder gives them; not of the samples that are to be recognized.
        labels: their classes, two or more, one of them with two or more samples.
        shrink: added to the diagonal of W, in parts of its mean: directions that do not vary are not trusted.
        between: shrinks B toward the covariance of all samples, scaled to the trace of B, from 0 (not at all) to 1. Means of
            few classes span few directions; without this the others are lost, although new classes differ in them.

    >>> generator = torch.Generator().manual_seed(0)
    >>> labels = torch.arange(50).repeat_interleave(20)
    >>> telling, noise = torch.randn(50, 1, generator=generator)[labels], 5 * torch.randn(1000, 1, generator=generator)
    >>> layer = discriminant(torch.cat([telling + 0.1 * torch.randn(1000, 1, generator=generator), noise], 1), labels)
    >>> layer(torch.tensor([[1.0, 0.0], [0.0, 1.0]])).sub(layer.bias).norm(dim=1).mul(10).round().tolist()
    [14.0, 0.0]
    """
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise ValueError(
            f"features must be n×d with n labels, got {tuple(features.shape)} and labels {tuple(labels.shape)}"
        )
    if not shrink > 0:
        raise ValueError(f"shrink must be > 0, got {shrink}")
    if not 0 <= between <= 1:
        raise ValueError(f"between must lie in 0 … 1, got {between}")
    classes, index, counts = labels.unique(return_inverse=True, return_counts=True)
    if len(classes) < 2 or int(counts.max()) < 2:
        raise ValueError(
            f"two classes or more, and two samples of one of them, are needed, got {len(classes)} classes of at most "
            f"{int(counts.max()) if len(classes) else 0} samples"
        )
    x = features.double()
    if not bool(x.isfinite().all()):
        raise ValueError("features must be finite")
    means = x.new_zeros(len(classes), x.shape[1]).index_add_(0, index, x) / counts[:, None]
    center = means.mean(0)
    within, spread_of_means = _covariance(x - means[index]), _covariance(means - center)
    if between:
        whole = _covariance(x - center)
        share = spread_of_means.diagonal().sum() / whole.diagonal().sum()
        spread_of_means = (1 - between) * spread_of_means + between * share * whole
    scale = within.diagonal().mean()
    if not scale > 0:
        raise ValueError("samples of a class must differ, got classes whose samples are all the same")
    within.diagonal().add_(shrink * scale)
    whiten = torch.linalg.inv(torch.linalg.cholesky(within)).mT  # x ↦ x @ whiten has the identity within classes
    spread, basis = torch.linalg.eigh(whiten.mT @ spread_of_means @ whiten)
    spread = spread.clamp(min=0)
    weight = ((whiten @ basis) * (spread / (1 + spread)).sqrt()).mT
    layer = nn.Linear(x.shape[1], x.shape[1], device=features.device, dtype=features.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(-weight @ center)
    return layer.requires_grad_(False)


def principal_components(x: Float[Tensor, "n d"], count: int = MAX_BASELINE_COMPONENTS) -> Float[Tensor, "k d"]:
    """Return the leading directions of variation, unit vectors in rows, at most ``count`` and at most n − 1.

    >>> principal_components(torch.tensor([[0.0, 0.0], [2.0, 0.1], [4.0, 0.0]])).abs().round()[0].tolist()
    [1.0, 0.0]
    """
    centered = x.double() - x.double().mean(0)
    rank = max(1, min(count, len(x) - 1, x.shape[1]))
    wide = len(x) <= x.shape[1]  # then the small Gram matrix has the same nonzero eigenvalues
    spread, vectors = torch.linalg.eigh(centered @ centered.mT if wide else centered.mT @ centered)
    leading = vectors[:, -rank:].mT.flip(0)
    rows = leading @ centered if wide else leading
    keep = spread.flip(0)[:rank] > 1e-10 * spread[-1].clamp_min(1e-300)
    keep[0] = True
    return normalize(rows[keep]).to(x.dtype)


def _covariance(x: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    return x.mT @ x / len(x)
