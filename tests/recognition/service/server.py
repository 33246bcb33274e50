"""``hypersphere serve`` in a separate process, on a free port."""

import os
import re
import signal
import subprocess
import sys

import httpx

from tests.recognition.service.people import embedder


class Server:
    """A running service with httpx clients."""

    def __init__(self, folder, *options, **environment):
        self.folder = folder
        self.model, self.gallery = folder / "embedder.safetensors", folder / "people.db"
        if not self.model.exists():
            embedder().save(self.model)
        settings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", **environment}
        command = [sys.executable, "-m", "hypersphere.cli.main", "serve", *self.arguments()]
        self.log = (folder / "log").open("a+")
        self.process = subprocess.Popen(
            [*command, "--port", "0", *options], stdout=subprocess.PIPE, stderr=self.log, text=True, env=settings
        )
        self.first = self.process.stdout.readline()
        found = re.match(r"serving on (http://\S+:(\d+)) \((.*)\)", self.first)
        assert found, self.first + self.errors()
        self.address, self.port, self.how = found[1], int(found[2]), found[3]

    def arguments(self):
        """Return the command-line arguments that say what to serve."""
        return [str(self.model), str(self.gallery)]

    def client(self, **options):
        return httpx.Client(base_url=self.address, timeout=60, trust_env=False, **options)

    def errors(self):
        self.log.seek(0)
        return self.log.read()

    def stop(self, how=signal.SIGTERM):
        """Send a signal. Return the exit status and the rest of the output."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.log.close()
