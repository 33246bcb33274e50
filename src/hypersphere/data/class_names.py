"""Class names, in label order, of datasets whose files do not contain them."""


def _split_words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CIFAR10_NAMES = _split_words("airplane automobile bird cat deer dog frog horse ship truck")
CIFAR100_COARSE = _split_words(
    """
    aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices household_furniture insects
    large_carnivores large_man-made_outdoor_things large_natural_outdoor_scenes large_omnivores_and_herbivores medium_mammals
    non-insect_invertebrates people reptiles small_mammals trees vehicles_1 vehicles_2
    """
)
CIFAR100_FINE = _split_words(
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle caterpillar
    cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster
    house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree
    orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose
    sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television
    tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """
)
FASHION_NAMES = ("t-shirt/top", *_split_words("trouser pullover dress coat sandal shirt sneaker bag"), "ankle boot")
MODELNET10_NAMES = _split_words("bathtub bed chair desk dresser monitor night_stand sofa table toilet")
MODELNET40_NAMES = _split_words(
    """
    airplane bathtub bed bench bookshelf bottle bowl car chair cone cup curtain desk door dresser flower_pot glass_box guitar keyboard
    lamp laptop mantel monitor night_stand person piano plant radio range_hood sink sofa stairs stool table tent toilet tv_stand vase
    wardrobe xbox
    """
)
