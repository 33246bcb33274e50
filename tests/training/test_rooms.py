"""Training and recognition know nothing of the recipes that use them."""

import pytest

from tests.test_package import SOURCE, imported_parts

FILES = sorted(path for room in ("training", "recognition") for path in (SOURCE / room).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_file_imports_recipes(path):
    assert not {"recipes", "cli"} & set(imported_parts(path))
