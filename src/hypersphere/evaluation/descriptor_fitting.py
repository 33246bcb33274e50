"""Maps fitted in closed form: principal components, a discriminant, and classical descriptors weighted by cross-validation."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ..geometry import normalize
from ..models.descriptors import (
    MIN_ELONGATION,
    PATCH_RESPONSES,
    Descriptors,
    PatchResponses,
    compute_descriptor_sizes,
    describe_pictures,
    take_logarithm,
)
from .roc import roc_curve

NUM_FILTERS = 150  # of patch responses
MIN_FILTERED_SIDE = 8  # pixels; smaller pictures get no patch responses
WITHIN_SHRINK = 0.1  # of the discriminants of descriptors (the argument shrink of fit_discriminant)
BETWEEN_SHRINK = 0.6  # of the same (the argument between)
PCA_IDENTITIES = (
    10  # number of training identities at which PCA alone has the weight of a discriminant with the same EER
)
MAX_COMPONENTS = 400  # of PCA in front of a discriminant
MAX_BASELINE_COMPONENTS = 150  # of PCA in a baseline
MAX_PCA_PICTURES = 1000  # to which PCA is fitted, because its time grows with the third power of their number
MAX_DIM = 128  # outputs of one map
MAX_VALIDATED_PICTURES = 1500  # in the cross-validation
FOLDS = 3  # of the cross-validation
MIN_MIRROR_GAIN = 0.02  # relative decrease of the EER from which on mirror images are used
EER_RANGE = (0.002, 0.498)  # to which an EER is limited, so that weights stay finite
MAX_PATCHES = 20_000  # from which filters are learned
KMEANS_STEPS = 10
PATCH_SHRINK = 0.1  # added to the variances of patches before whitening, as a share of their mean
CONTRAST_SHRINK = 0.1  # added to the variance of each patch, as a share of the mean variance of all patches

MapKey = tuple[str, bool]  # name of a descriptor, and whether its map is PCA alone
LinearMap = tuple[Tensor, Tensor]  # weight and bias


@dataclass(frozen=True)
class FittedDescriptors:
    """Descriptors that were fitted to pictures, and their errors in cross-validation.

    Attributes:
        network: The fitted network: pictures in, features out.
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
    filters: int = NUM_FILTERS,
    logarithm: bool = False,
    seed: int = 0,
) -> FittedDescriptors:
    """Fit PCA and a linear discriminant to every classical descriptor of pictures, and weight the descriptors.

    The identities are divided into three folds. Descriptors are fitted to two folds and measured on the pairs of the third.
    A descriptor with sensitivity d′ = 2 Φ⁻¹(1 − EER) has a weight proportional to d′²; a descriptor at chance level has the
    weight 0. The same pairs decide whether mirror images are added to the training pictures. The final fit is to all
    identities.

    Every descriptor has two maps: PCA with a discriminant, and PCA alone. A discriminant that is fitted to few identities
    knows few directions in which new identities differ, so the weight of PCA alone is also multiplied by 10/identities. These
    numbers were chosen on small sets of several kinds (``docs/log/fit.md``).

    Args:
        pictures: Training pictures as the network receives them.
        labels: Their identities, two or more, one of them with two or more pictures.
        names: The descriptors to use: names of :func:`~hypersphere.models.describe_pictures`, or "patch responses", whose
            filters are learned from the pictures without labels (Coates and Ng, 2012); all by default.
        mirror: Whether mirror images are added; None lets the cross-validation decide.
        filters: Number of filters that are learned for patch responses; 0 leaves this descriptor out.
        logarithm: Whether the network takes the logarithm of its input first, for power spectra.
        seed: Seed of the folds, of the patches, and of the subset to which PCA is fitted if there are many pictures.

    Returns:
        The network with the results of the cross-validation. Each map has at most 128 outputs.

    Raises:
        ValueError: If there are too few identities or pictures.

    >>> labels = torch.arange(40) % 8
    >>> pictures = torch.rand(8, 1, 16, 16)[labels] + 0.1 * torch.rand(40, 1, 16, 16)
    >>> fitted = fit_descriptors(pictures, labels)
    >>> fitted.network(pictures[:3]).shape[0], fitted.eer < 0.2
    (3, True)
    """
    channels, height, width = pictures.shape[1:]
    if logarithm:
        pictures = take_logarithm(pictures)
    options = [False, True] if mirror is None else [mirror]
    if mirror is None and max(height, width) >= MIN_ELONGATION * min(height, width):
        options = [False]  # the mirror image of a spectrum runs backward in time
    patches = None
    if filters and (names is None or PATCH_RESPONSES in names) and min(height, width) >= MIN_FILTERED_SIDE:
        patches = learn_filters(pictures, filters, seed=seed)
    plain = _describe(pictures, names, patches)
    mirrored = _describe(pictures.flip(-1), names, patches) if True in options else None
    sets = {flips: _TrainingSet(plain, mirrored if flips else None, labels, seed) for flips in options}

    folds = _divide_identities(labels, seed)
    errors = {flips: _cross_validate(sets[flips], folds) for flips in options} if folds else {}
    flips = options[0]
    if len(errors) == 2:
        flips = errors[True].joint < (1 - MIN_MIRROR_GAIN) * errors[False].joint
    maps = sets[flips].fit_maps(slice(None))
    eers = errors[flips].by_map if errors else dict.fromkeys(maps, 0.25)
    weights = _weigh_maps(eers, len(labels.unique()))

    known = [*compute_descriptor_sizes(channels, (height, width)), *([] if patches is None else [PATCH_RESPONSES])]
    keys = [(name, pca_only) for pca_only in (False, True) for name in known]
    dims = [len(maps[key][1]) if weights.get(key) else 0 for key in keys]
    shares = [weights.get(key, 0.0) for key in keys]
    network = Descriptors(channels, (height, width), dims, shares, 0 if patches is None else filters, logarithm)
    if patches is not None:
        network.patches = patches
    with torch.no_grad():
        for layer, key in zip(network.maps, [key for key, dim in zip(keys, dims, strict=True) if dim], strict=True):
            assert isinstance(layer, nn.Linear)
            layer.weight.copy_(maps[key][0])
            layer.bias.copy_(maps[key][1])
    return FittedDescriptors(
        network.eval(),
        errors[flips].joint if errors else None,
        {name: eer for (name, pca_only), eer in eers.items() if not pca_only},
        flips,
        errors[True].joint if True in errors else None,
        errors[False].joint if False in errors else None,
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


def learn_filters(
    pictures: Float[Tensor, "n c h w"], filters: int = NUM_FILTERS, side: int = 6, *, seed: int = 0
) -> PatchResponses:
    """Learn the filters of patch responses by k-means on directions of whitened patches, without labels.

    The method is that of Coates and Ng (2012, "Learning feature representations with k-means").

    Args:
        pictures: Pictures as the network receives them.
        filters: Number of filters.
        side: Height and width of a filter, reduced for very small pictures.
        seed: Seed of the patches and of the initial centers.

    >>> learn_filters(torch.rand(10, 1, 16, 16), filters=20).feature_dim
    640
    """
    channels, height, width = pictures.shape[1:]
    network = PatchResponses(channels, (height, width), filters, side)
    side = network.side
    generator = torch.Generator().manual_seed(seed)
    patches = _draw_patches(pictures, side, generator)
    network.contrast.copy_(CONTRAST_SHRINK * patches.var(1).mean().clamp_min(1e-6))
    patches = patches - patches.mean(1, keepdim=True)
    patches = patches / (patches.var(1, keepdim=True) + network.contrast).sqrt()
    mean = patches.mean(0)
    variances, basis = torch.linalg.eigh(torch.cov(patches.T))
    scale = (variances.clamp(min=0) + PATCH_SHRINK * variances.mean().clamp_min(1e-6)).rsqrt()
    whiten = (basis * scale) @ basis.T
    directions = normalize((patches - mean) @ whiten)
    centers = directions[torch.randint(len(directions), (filters,), generator=generator)].clone()
    for _ in range(KMEANS_STEPS):
        nearest = (directions @ centers.T).argmax(1)
        total = torch.zeros_like(centers).index_add_(0, nearest, directions)
        assigned = total.norm(dim=1) > 1e-6  # centers without a patch stay
        centers[assigned] = normalize(total[assigned])
    # The response c·W(p − μ) of center c to patch p is computed as a filter cW with the bias −cWμ.
    weight = centers @ whiten
    network.weight.copy_(weight.unflatten(1, (channels, side, side)))
    network.bias.copy_(-weight @ mean)
    return network.eval()


def fit_discriminant(
    features: Float[Tensor, "n d"], labels: Int[Tensor, "n"], shrink: float = 0.03, *, between: float = 0.0
) -> nn.Linear:
    r"""Fit a linear layer that weights directions by how much classes differ in them, to append to an embedder.

    Classes are modeled as Gaussians with a common covariance W, whose means are Gaussian with the covariance B (Ioffe, 2006,
    "Probabilistic linear discriminant analysis"). In the basis in which W is the identity and B is diagonal with entries β,
    the layer subtracts the mean and multiplies every direction by √(β/(1 + β)). The inner product of two outputs is then the
    product of one feature with the expected class mean of the other. Without this factor the layer would be within-class
    whitening, which amplifies directions in which classes do not differ.

    Args:
        features: Features of training samples by the embedder. Do not use the samples that will be recognized.
        labels: Their classes, two or more, one of them with two or more samples.
        shrink: Share of the mean of the diagonal of W that is added to the diagonal. It limits the weight of directions in
            which the training samples of a class hardly vary.
        between: Shrinks B toward the covariance of all samples, scaled to the trace of B, from 0 (not at all) to 1. The means
            of few classes span few directions. With 0 all other directions are removed, although new classes differ in them.

    Returns:
        A frozen layer from d to d features. Its outputs are sorted: the last one separates the classes best.

    Raises:
        ValueError: If the shapes do not match, an argument is out of range, a feature is not finite, there are too few
            classes or samples, or all samples of every class are equal.

    >>> generator = torch.Generator().manual_seed(0)
    >>> labels = torch.arange(50).repeat_interleave(20)
    >>> telling, noise = torch.randn(50, 1, generator=generator)[labels], 5 * torch.randn(1000, 1, generator=generator)
    >>> layer = fit_discriminant(torch.cat([telling + 0.1 * torch.randn(1000, 1, generator=generator), noise], 1), labels)
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


class _Errors(NamedTuple):
    """EERs in cross-validation: of each map, and of the weighted sum of their cosines."""

    by_map: dict[MapKey, float]
    joint: float


@dataclass(frozen=True)
class _TrainingSet:
    """Descriptors of the training pictures and, if they are used, of their mirror images, by name."""

    plain: Mapping[str, Tensor]
    mirrored: Mapping[str, Tensor] | None
    labels: Tensor
    seed: int

    def fit_maps(self, rows: Tensor | slice) -> dict[MapKey, LinearMap]:
        """Fit both maps of every descriptor to some rows, each with at most ``MAX_DIM`` outputs.

        If all pictures of every identity are equal, no discriminant exists, and both maps are PCA alone.
        """
        maps: dict[MapKey, LinearMap] = {}
        labels = self.labels[rows].repeat(1 if self.mirrored is None else 2)
        for name in self.plain:
            x = self.plain[name][rows]
            if self.mirrored is not None:
                x = torch.cat([x, self.mirrored[name][rows]])
            subset = torch.randperm(len(x), generator=torch.Generator().manual_seed(self.seed))[:MAX_PCA_PICTURES]
            components = principal_components(x[subset], min(MAX_COMPONENTS, len(subset) - 1))
            weight = components[:MAX_DIM]
            maps[name, False] = maps[name, True] = weight, -weight @ x.mean(0)
            reduced = (x @ components.mT).float()
            if not _has_equal_samples(reduced, labels):
                layer = fit_discriminant(reduced, labels, WITHIN_SHRINK, between=BETWEEN_SHRINK)
                best = slice(-min(MAX_DIM, layer.out_features), None)  # the last outputs separate identities best
                maps[name, False] = layer.weight[best] @ components.float(), layer.bias[best]
        return maps


def _describe(pictures: Tensor, names: Collection[str] | None, patches: PatchResponses | None) -> dict[str, Tensor]:
    """Compute the descriptors of pictures, including patch responses if there are filters, in blocks."""
    parts = []
    with torch.no_grad():
        for part in pictures.split(128):
            parts.append(describe_pictures(part, names))
            if patches is not None:
                parts[-1][PATCH_RESPONSES] = torch.cat([patches(block) for block in part.split(32)])
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _divide_identities(labels: Tensor, seed: int) -> list[Bool[Tensor, "n"]]:
    """Return masks of the folds, none if there are too few identities. All folds have ``MAX_VALIDATED_PICTURES`` or fewer."""
    names, counts = labels.unique(return_counts=True)
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed))
    limit = max(MAX_VALIDATED_PICTURES, int(counts.max()) * 2 * FOLDS)
    validated = names[order][counts[order].cumsum(0) <= limit]
    if len(validated) < 2 * FOLDS:
        return []
    folds = [torch.isin(labels, validated[i::FOLDS]) for i in range(FOLDS)]
    used = torch.isin(labels, validated)
    parts = [labels[part].unique(return_counts=True)[1] for fold in folds for part in (fold, used & ~fold)]
    return folds if all(int(part.max()) > 1 for part in parts) else []


def _cross_validate(training: _TrainingSet, folds: Sequence[Tensor]) -> _Errors:
    """Measure maps that were fitted to the other folds on the pairs inside each fold."""
    used = torch.stack(list(folds)).any(0)
    scores: dict[MapKey, list[Tensor]] = {(name, pca_only): [] for pca_only in (False, True) for name in training.plain}
    same = []
    for fold in folds:
        labels = training.labels[fold]
        first, second = torch.triu_indices(len(labels), len(labels), 1)
        same.append(labels[first] == labels[second])
        for (name, pca_only), (weight, bias) in training.fit_maps(used & ~fold).items():
            x = normalize(training.plain[name][fold] @ weight.mT + bias)
            scores[name, pca_only].append((x @ x.mT)[first, second])
    is_same = torch.cat(same)
    cosines = {key: torch.cat(parts) for key, parts in scores.items()}
    eers = {key: float(roc_curve(part, is_same).eer) for key, part in cosines.items()}
    weights = _weigh_maps(eers, len(training.labels.unique()))
    total = torch.stack([weights[key] * part for key, part in cosines.items()]).sum(0)
    return _Errors(eers, float(roc_curve(total, is_same).eer))


def _weigh_maps(eers: Mapping[MapKey, float], identities: int) -> dict[MapKey, float]:
    """Return the weight of each map; maps of PCA alone have less weight if there are more identities."""
    weights = dict(zip(eers, weigh_by_error(list(eers.values())), strict=True))
    return {key: weight * (PCA_IDENTITIES / identities if key[1] else 1.0) for key, weight in weights.items()}


def _has_equal_samples(x: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> bool:
    """Return whether all samples of every identity are equal, so that a discriminant cannot be fitted."""
    return all(bool((x[labels == name] == x[labels == name][0]).all()) for name in labels.unique())


def _draw_patches(pictures: Tensor, side: int, generator: torch.Generator) -> Float[Tensor, "k _"]:
    """Return patches at random positions of random pictures, as rows."""
    height, width = pictures.shape[2:]
    count = min(MAX_PATCHES, len(pictures) * (height - side + 1) * (width - side + 1))
    picture = torch.randint(len(pictures), (count,), generator=generator)
    top = torch.randint(height - side + 1, (count,), generator=generator)
    left = torch.randint(width - side + 1, (count,), generator=generator)
    offset = torch.arange(side)
    rows, columns = top[:, None, None] + offset[:, None], left[:, None, None] + offset
    return pictures[picture[:, None, None], :, rows, columns].permute(0, 3, 1, 2).flatten(1)
