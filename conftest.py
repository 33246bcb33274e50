"""Shapes and types are checked at run time in tests only; doctests see torch and hypersphere."""

import functools
import gc
import os

import jaxtyping
import pytest
import torch
from hypothesis import settings

import tests.typecheck  # the import hook looks it up by name

jaxtyping.jaxtyped = tests.typecheck.typed
jaxtyping.install_import_hook(["hypersphere", "studies"], "tests.typecheck.check")

# Two workers share two cores; more threads than cores only slow both down.
torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)
settings.register_profile("default", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("default")


def _typed_once(check):
    """Check shapes and types in one forward and backward pass, then turn these checks off for the rest of gradcheck.

    The shapes are the same in every pass.
    """

    @functools.wraps(check)
    def run(function, inputs, *args, **options):
        given = (inputs,) if isinstance(inputs, torch.Tensor) else inputs
        outputs = function(*given)
        outputs = [outputs] if isinstance(outputs, torch.Tensor) else outputs
        total = sum(output.sum() for output in outputs if output.requires_grad)
        torch.autograd.grad(total, [x for x in given if x.requires_grad], allow_unused=True)
        before = jaxtyping.config.jaxtyping_disable
        jaxtyping.config.update("jaxtyping_disable", True)
        try:
            return check(function, inputs, *args, **options)
        finally:
            jaxtyping.config.update("jaxtyping_disable", before)

    return run


torch.autograd.gradcheck = _typed_once(torch.autograd.gradcheck)
torch.autograd.gradgradcheck = _typed_once(torch.autograd.gradgradcheck)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Turn off garbage collection while tests are collected, because the collected tests live until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _seed():
    # Without a GPU, torch.manual_seed records a stack trace for CUDA, which takes milliseconds.
    torch.manual_seed(0) if torch.cuda.is_available() else torch.default_generator.manual_seed(0)


@pytest.fixture(autouse=True)
def _untyped(request):
    """Turn off the shape checks in tests marked ``untyped``, because torch.compile cannot trace them."""
    off = request.node.get_closest_marker("untyped") is not None
    if off:
        _bare_autograd_functions(torch.autograd.Function)
    jaxtyping.config.update("jaxtyping_disable", off)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def _bare_autograd_functions(parent):
    """Remove the type-checking wrappers of custom autograd functions, because Dynamo reads their signatures."""
    for cls in parent.__subclasses__():
        _bare_autograd_functions(cls)
        if cls.__module__.startswith("hypersphere"):
            for name, attribute in list(vars(cls).items()):
                if isinstance(attribute, staticmethod) and hasattr(attribute.__func__, "__wrapped__"):
                    setattr(cls, name, staticmethod(attribute.__func__.__wrapped__))


@pytest.fixture(autouse=True)
def _doctest_namespace(doctest_namespace):
    import hypersphere

    doctest_namespace["torch"] = torch
    doctest_namespace["hs"] = hypersphere
