import importlib.util
import json
from pathlib import Path

import pytest

pytest.importorskip("packaging", reason="the bill of materials needs packaging")
PLACE = Path(__file__).parent.parent / "tools" / "bill_of_materials.py"
spec = importlib.util.spec_from_file_location("bill_of_materials", PLACE)
bill = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bill)


def test_dependencies_of_dependencies_are_found():
    found, missing = bill.find_dependencies("fastapi", [])
    names = [bill.normalize(one.metadata["Name"]) for one in found]
    assert {"fastapi", "starlette", "pydantic-core"} <= set(names)
    assert names == sorted(names)
    assert missing == []
    assert bill.find_dependencies("no-such-distribution", []) == ([], ["no-such-distribution"])


def test_every_component_has_version_address_and_license():
    found, _ = bill.find_dependencies("fastapi", [])
    document = json.loads(json.dumps(bill.describe(found)))
    assert document["bomFormat"] == "CycloneDX"
    for one in document["components"]:
        assert one["purl"] == f"pkg:pypi/{bill.normalize(one['name'])}@{one['version']}"
        assert one["licenses"][0]["license"]["name"] != "unknown"
