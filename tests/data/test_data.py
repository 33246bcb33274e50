import os
import subprocess
import sys
from pathlib import Path

import hypersphere

SCRIPT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("PIL", "sklearn", "scipy", "h5py", "matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import torch
from hypersphere import data
loader = data.Loader(data.InMemory(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.zeros(4, dtype=torch.long), ["a"]), 2)
assert len(list(loader)) == 2
try:
    data.Digits()
except ImportError as error:
    print(error)
"""


def test_needs_only_torch_and_numpy():
    environment = {**os.environ, "PYTHONPATH": str(Path(hypersphere.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "this needs sklearn, which is not installed: pip install 'torch-hypersphere[train]'\n"
