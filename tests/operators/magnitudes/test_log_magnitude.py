import numpy as np

from hypersphere.operators.magnitudes import Log
from tests.operators.contracts import MagnitudeContract


class TestLog(MagnitudeContract):
    magnitude = Log(alpha=1.5)

    def formula(self, w_norm, x_norm):
        return 1.5 * np.log(1 + x_norm)
