import pytest

from hypersphere.recognition.service import Limits


def test_words_change_defaults():
    found = Limits.from_words(["pixels=1000", "sending_seconds=0.5"])
    assert (found.pixels, found.sending_seconds, found.images) == (1000, 0.5, Limits().images)
    assert Limits.from_words([]) == Limits()


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("pixel=3", "with a name among body_bytes, images, faces, pixels"),
        ("pixels", "limit pixels must be a positive integer, got ''"),
        ("pixels=2.5", "limit pixels must be a positive integer, got '2.5'"),
        ("pixels=0", "limit pixels must be a positive integer, got 0"),
        ("per_minute=nan", "limit per_minute must be a positive number, got nan"),
        ("per_minute=inf", "limit per_minute must be a positive number, got inf"),
    ],
)
def test_refuses(word, message):
    with pytest.raises(ValueError, match=message):
        Limits.from_words([word])
