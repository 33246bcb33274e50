import pytest
import torch

from hypersphere.data import PythonDocs
from hypersphere.data.python_docs import read_python_docs


def test_windows_tile_the_text():
    text, train, test = read_python_docs(), PythonDocs(True, context=50), PythonDocs(False, context=50)
    assert train.classes == test.classes == tuple(sorted(set(text)))
    border = len(text) - len(text) // 10
    for part, start in ((train, 0), (test, border)):
        for index in (0, 1, len(part) - 1):
            window, following = part[index]
            begin = start + 50 * index
            assert part.read(window) == text[begin : begin + 50]
            assert part.classes[following] == text[begin + 50]
    assert len(train) == (border - 1) // 50
    assert len(test) == (len(text) - border - 1) // 50


def test_it_is_the_same_every_time():
    assert torch.equal(PythonDocs(False).data, PythonDocs(False).data)
    assert PythonDocs().data.dtype == torch.int16


@pytest.mark.parametrize("context", [0, 10**7])
def test_refuses_a_context(context):
    with pytest.raises(ValueError, match="context must lie in 1 … "):
        PythonDocs(context=context)
