"""Settings that all claims with images of 16×16 pixels share."""

from hypersphere.config import call
from hypersphere.recipes.recipe_book import MIRROR
from hypersphere.training import Config, CosineRate

SMALL_IMAGES = Config(channels_last=True, batch_size=64, size=16, augment=MIRROR, schedule=call(CosineRate))
