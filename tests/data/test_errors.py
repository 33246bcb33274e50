import pickle

import pytest

from hypersphere.data import CorruptDataError, DataError, MissingDataError
from hypersphere.data.errors import make_corrupt_error


def test_says_file_found_expected_and_remedy():
    assert (
        str(make_corrupt_error("a.bin", "3 bytes", "4", "get it again"))
        == "a.bin: found 3 bytes, expected 4; get it again"
    )
    assert str(make_corrupt_error("a.bin", "3 bytes", "4")) == "a.bin: found 3 bytes, expected 4"


def test_a_missing_file_is_also_the_standard_error():
    with pytest.raises(FileNotFoundError, match="gone"):
        raise MissingDataError("gone")
    assert issubclass(MissingDataError, DataError)
    assert issubclass(DataError, ValueError)


@pytest.mark.parametrize("kind", [CorruptDataError, MissingDataError])
def test_errors_can_be_pickled(kind):
    again = pickle.loads(pickle.dumps(kind("why")))
    assert (type(again), str(again)) == (kind, "why")
