"""Write a software bill of materials (CycloneDX 1.5, JSON) and a license list of this package and all its dependencies.

Run it in the environment of the release: ``python tools/bill_of_materials.py -o dist``. It reads the metadata of installed
distributions, follows the requirements of the package with the given extras, and contacts nothing.
"""

import argparse
import importlib.metadata as metadata
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement

ROOT = "torch-hypersphere"
EXTRAS = ("train", "serve", "postgres", "models", "encryption")


def find_dependencies(root: str, extras: Sequence[str]) -> tuple[list[metadata.Distribution], list[str]]:
    """Return the installed distributions that ``root`` needs with its extras, sorted by name, and the missing ones."""
    todo, seen, missing = [(root, frozenset(extras))], {}, set()
    done: set[tuple[str, frozenset[str]]] = set()
    while todo:
        name, wanted = todo.pop()
        key = normalize(name)
        if (key, wanted) in done:
            continue
        done.add((key, wanted))
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            missing.add(key)
            continue
        seen[key] = found
        for text in found.requires or []:
            requirement = Requirement(text)
            environments = [{**default_environment(), "extra": extra} for extra in ("", *wanted)]
            if requirement.marker is None or any(requirement.marker.evaluate(one) for one in environments):
                todo.append((requirement.name, frozenset(requirement.extras)))
    return [seen[key] for key in sorted(seen)], sorted(missing)


def find_license(distribution: metadata.Distribution) -> str:
    """Return the license of a distribution: its SPDX expression, its classifiers, or the first line of its text."""
    fields = distribution.metadata
    if fields.get("License-Expression"):
        return str(fields["License-Expression"])
    named = [text.rpartition(" :: ")[2] for text in fields.get_all("Classifier") or [] if text.startswith("License ::")]
    named = [text for text in named if text != "OSI Approved"]
    if named:
        return " / ".join(named)
    lines = str(fields.get("License") or "").strip().splitlines()
    return lines[0][:80] if lines else "unknown"


def describe(distributions: Sequence[metadata.Distribution]) -> dict[str, Any]:
    """Return the bill of materials as a CycloneDX document."""
    components = [
        {
            "type": "library",
            "name": one.metadata["Name"],
            "version": one.version,
            "purl": f"pkg:pypi/{normalize(one.metadata['Name'])}@{one.version}",
            "licenses": [{"license": {"name": find_license(one)}}],
        }
        for one in distributions
    ]
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}


def normalize(name: str) -> str:
    """Return a distribution's name in its normal form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def main(argv: Sequence[str] | None = None) -> int:
    """Write ``bill-of-materials.json`` and ``licenses.txt``; return 1 if a dependency is missing or has no license."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("dist"), help="folder to write to (%(default)s)")
    parser.add_argument("--extras", nargs="*", default=EXTRAS, help="extras to include (%(default)s)")
    args = parser.parse_args(argv)
    distributions, missing = find_dependencies(ROOT, args.extras)
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "bill-of-materials.json").write_text(json.dumps(describe(distributions), indent=1) + "\n")
    licenses = {f"{one.metadata['Name']} {one.version}": find_license(one) for one in distributions}
    (args.output / "licenses.txt").write_text("".join(f"{name}\t{text}\n" for name, text in licenses.items()))
    unknown = [name for name, text in licenses.items() if text == "unknown"]
    print(
        f"{len(distributions)} distributions; missing: {', '.join(missing) or 'none'}; no license: {unknown or 'none'}"
    )
    return 1 if missing or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
