"""Fixtures: a small constructor in place of the architectures, and a database server for galleries."""

from tests.recognition.conftest import models, server

__all__ = ["models", "server"]
