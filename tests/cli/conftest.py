"""Commands that load a model find one small constructor in place of the architectures; galleries find a server."""

from tests.recognition.conftest import models, server

__all__ = ["models", "server"]
