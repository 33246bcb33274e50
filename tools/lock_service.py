"""Write the requirements of the service image with the SHA-256 of every file, for ``pip install --require-hashes``.

Run ``python tools/lock_service.py`` after a change of ``constraints.txt`` or of the extras, on the platform of the image (Linux,
x86-64, Python 3.11), with pip set up to find the CPU build of PyTorch. It resolves the extras and installs nothing.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent
FILE = ROOT / "tools" / "service_requirements.txt"
EXTRAS = "serve,models,audio,encryption,postgres"
HEAD = f"""\
# Everything that the service image installs beside the package itself: the extras {EXTRAS}.
# Linux, x86-64, Python 3.11, the CPU build of PyTorch. Written by tools/lock_service.py; do not edit.
"""


def resolve() -> list[tuple[str, str, str]]:
    """Return (name, version, SHA-256) of every distribution that the extras need, sorted by name."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    constraints = ["-c", str(ROOT / "constraints.txt")]
    done = subprocess.run([*command, *constraints, f"{ROOT}[{EXTRAS}]"], stdout=subprocess.PIPE, text=True, check=True)
    found = []
    for item in json.loads(done.stdout)["install"]:
        name, archive = item["metadata"]["name"], item["download_info"].get("archive_info")
        if archive is not None:  # the package itself is a folder
            found.append(
                (re.sub("[-_.]+", "-", name).lower(), item["metadata"]["version"], archive["hashes"]["sha256"])
            )
    return sorted(found)


def format_lines(found: list[tuple[str, str, str]]) -> str:
    """Return the content of the requirements file."""
    return HEAD + "".join(f"{name}=={version} --hash=sha256:{digest}\n" for name, version, digest in found)


def main() -> None:
    """Resolve the requirements and write the requirements file."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    FILE.write_text(format_lines(resolve()), encoding="utf-8")
    print(FILE)


if __name__ == "__main__":
    main()
