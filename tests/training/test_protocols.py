from hypersphere.evaluation.attacks import EPSILON, ITERATIONS, STEP
from hypersphere.training.config import Config, from_json, replace, to_json
from hypersphere.training.protocols import Attack


def test_attacks_are_those_of_the_text():
    attack = Attack()
    assert (attack.epsilon, attack.step, attack.iterations) == (EPSILON, STEP, ITERATIONS)


def test_they_are_part_of_a_config():
    config = replace(Config(), attack__iterations=3, few_shot__ways=4, players__spectral_norm=True)
    assert from_json(to_json(config)) == config
    assert from_json("{}") == Config()
