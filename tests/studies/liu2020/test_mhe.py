from studies.liu2020.claims import mhe

from .contracts import ClaimContract


class TestMHE(ClaimContract):
    claim = mhe.CLAIM

    def test_classes_are_regularised_in_full_space_wherever_neurons_are(self):
        """λ_o = 1 over all classes in every experiment with MHE (D.1), except in the ablation of table 5.4."""
        for name, config in self.configs().items():
            if config.energy is not None and not name.endswith(("orthonormal", "SRIP", "hidden only")):
                assert (config.energy.get("output"), config.energy.get("data_dependent")) == (1.0, False)

    def test_the_angle_preserving_projection_is_unrolled(self):
        """Section 6.6.1 uses the unrolled form."""
        assert self.configs()["16/32/64/AP-CoMHE"].energy.get("projection").get("mode") == "unrolled"
