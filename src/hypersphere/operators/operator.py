"""The magnitude and the angle of a network's hidden layers as one value, which a config can hold."""

from dataclasses import dataclass

from ..angular import Angular
from .magnitudes import Magnitude


@dataclass(frozen=True)
class Operator:
    """f(w, x) = h(‖w‖, ‖x‖)·g(θ) + b (eq. 4.3) for every hidden layer of a network.

    Every constructor of ``hypersphere.models`` takes one as ``operator=``;
    :func:`~hypersphere.operators.convert` applies it to any other network. Each layer has separate parameters of h and g,
    except for ``Sigmoid(learnable="shared")``, whose k is shared by all layers of a network.

    Args:
        magnitude: h; None is the Sphere, h = 1 (eq. 4.4), the operator of SphereNets.
        angular: g; None is the cosine (eq. 4.12).
        skip: Names of layers that stay plain, or patterns such as ``"body.stage1.*"``. Each must match a layer.

    >>> from hypersphere import angular, models
    >>> from hypersphere.operators import magnitudes
    >>> operator = Operator(magnitudes.Tanh(radius=2), angular.Sigmoid(k=0.3), skip=("body.conv1.*",))
    >>> net = models.cnn3(10, operator=operator, width=0.25)
    >>> type(net.body.conv1[0].conv).__name__, net.body.conv2[0].conv.magnitude.radius
    ('Conv2d', Radius(2, learnable=True))
    """

    magnitude: Magnitude | None = None
    angular: Angular | None = None
    skip: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, kind in (("magnitude", Magnitude), ("angular", Angular)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ValueError(
                    f"{name} must be None or a {kind.__name__} object, got {value!r}; "
                    f"pass your own function as Custom{kind.__name__}(function)"
                )
        if isinstance(self.skip, str) or not all(isinstance(name, str) for name in self.skip):
            raise ValueError(f"skip must be a tuple of layer names, got {self.skip!r}")
