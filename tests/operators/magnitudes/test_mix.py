import numpy as np

from hypersphere.operators.magnitudes import Mix
from tests.operators.contracts import FormulaContract, MagnitudeContract


class TestMix(MagnitudeContract):
    magnitude = Mix(alpha=0.5, beta=2.0)

    def formula(self, w_norm, x_norm):
        return 0.5 * x_norm + 2 * np.log(1 + x_norm)


class TestWeightedMix(FormulaContract):
    magnitude = Mix(weighted="linear")

    def formula(self, w_norm, x_norm):
        return w_norm * (x_norm + np.log(1 + x_norm))
