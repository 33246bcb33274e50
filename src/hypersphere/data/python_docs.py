"""Text that comes with Python, for character-level language models."""

import importlib

import torch
from torch import Tensor

from .in_memory import InMemory

TEST_PART = 10  # the last tenth of the text is for testing


class PythonDocs(InMemory):
    """The reference texts behind Python's ``help()`` as characters, in windows of equal length.

    A sample is a window of ``context`` characters as indices into ``classes``; its label is the character that follows and is
    also the first character of the next window. The text has about 0.5 million characters, depends on the version of Python,
    and needs no download.

    Args:
        train: True selects the windows of the first nine tenths of the text, False those of the last tenth.
        context: Characters per window.

    Raises:
        ValueError: If ``context`` is not between 1 and the length of the test text.

    >>> docs = PythonDocs(train=False, context=32)
    >>> window, following = docs[0]
    >>> window.shape, docs.data[1, 0].item() == following, len(docs.read(window)) == 32
    (torch.Size([32]), True, True)
    """

    def __init__(self, train: bool = True, context: int = 64):
        text = read_python_docs()
        characters = sorted(set(text))
        lookup = {character: index for index, character in enumerate(characters)}
        tokens = torch.tensor([lookup[character] for character in text], dtype=torch.int16)
        border = len(tokens) - len(tokens) // TEST_PART
        part = tokens[:border] if train else tokens[border:]
        if not 1 <= context < len(tokens) // TEST_PART:
            raise ValueError(f"context must lie in 1 … {len(tokens) // TEST_PART - 1}, got {context!r}")
        windows = part.unfold(0, context + 1, context)
        super().__init__(windows[:, :-1].contiguous(), windows[:, -1].long(), characters)

    def read(self, tokens: Tensor) -> str:
        """Return the text of indices of characters."""
        return "".join(self.classes[index] for index in tokens.tolist())


def read_python_docs() -> str:
    """Return the topics of Python's ``help()``, in the order of their names, as one text.

    >>> len(read_python_docs()) > 200_000
    True
    """
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    return "\n\n".join(topics[name] for name in sorted(topics))
