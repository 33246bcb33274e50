import math

import pytest

from hypersphere.training import ConstantRate, CosineRate, PlateauRate, Schedule, StepRate


class ScheduleContract:
    """What every schedule must be; a new one inherits this."""

    schedule: Schedule

    def test_warms_up_linearly_then_starts_at_one(self):
        kind = type(self.schedule)
        assert [kind(warmup=4).factor(step, 100) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]

    def test_stays_in_reach(self):
        assert all(0 <= self.schedule.factor(step, 50) <= 1 for step in range(60))

    def test_goes_on_from_its_state(self):
        other = type(self.schedule)()
        for score in (1.0, 0.5, 0.5, 0.5):
            self.schedule.observe(score)
        other.load_state_dict(self.schedule.state_dict())
        assert other.state_dict() == self.schedule.state_dict()

    def test_refuses_a_wrong_warmup(self):
        with pytest.raises(ValueError, match="warmup must be an integer ≥ 0, got -1"):
            type(self.schedule)(warmup=-1)


class TestConstantRate(ScheduleContract):
    schedule = ConstantRate()

    def test_is_constant(self):
        assert ConstantRate().factor(50, 100) == 1.0


class TestStepRate(ScheduleContract):
    schedule = StepRate(milestones=(10, 20))

    def test_falls_at_milestones(self):
        found = [StepRate(milestones=(2, 4), gamma=0.5).factor(step, 9) for step in range(6)]
        assert found == [1, 1, 0.5, 0.5, 0.25, 0.25]

    @pytest.mark.parametrize("options", [{"gamma": 0.0}, {"gamma": math.nan}, {"milestones": (-1,)}])
    def test_refuses(self, options):
        with pytest.raises(ValueError, match=r"gamma must be a number > 0|milestones must be steps ≥ 0"):
            StepRate(**options)


class TestCosineRate(ScheduleContract):
    schedule = CosineRate()

    @pytest.mark.parametrize("step", [0, 3, 9, 10, 50, 99])
    def test_by_hand(self, step):
        expected = (step + 1) / 10 if step < 10 else math.cos(math.pi * (step - 10) / 180) ** 2
        assert CosineRate(warmup=10).factor(step, 100) == pytest.approx(expected)

    def test_ends_at_its_final_factor(self):
        assert CosineRate(final=0.1).factor(100, 100) == pytest.approx(0.1)
        with pytest.raises(ValueError, match=r"final must lie in \[0, 1\], got 2"):
            CosineRate(final=2)


class TestPlateauRate(ScheduleContract):
    schedule = PlateauRate(patience=2)

    def test_falls_after_so_many_evaluations_without_a_new_best(self):
        rate, found = PlateauRate(gamma=0.5, patience=2), []
        for score in (1.0, 2.0, 2.0, 1.5, 3.0, 3.0, 3.0):
            rate.observe(score)
            found.append(rate.factor(100, 1000))
        assert found == [1, 1, 1, 0.5, 0.5, 0.5, 0.25]

    @pytest.mark.parametrize(
        ("options", "message"), [({"gamma": 1.0}, r"gamma must lie in \(0, 1\)"), ({"patience": 0}, "patience must be")]
    )
    def test_refuses(self, options, message):
        with pytest.raises(ValueError, match=message):
            PlateauRate(**options)
