import pytest
import torch
from torch.overrides import TorchFunctionMode

from hypersphere.geometry import faster_convolutions, matmul, products

LARGE = (48, 512, 256)
SHAPES = [(2, 3, 4), LARGE, (1, 2048, 4096), (4096, 2048, 2), (1025, 129, 65)]


@pytest.fixture(params=[True, False])
def onednn(request, monkeypatch):
    """Run with and without oneDNN on every machine that has it."""
    if request.param and not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(products, "is_onednn_faster", lambda: request.param)
    return request.param


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("left_transposed", [False, True])
@pytest.mark.parametrize("right_transposed", [False, True])
@torch.no_grad()
def test_is_the_product_within_the_bound_of_float32(onednn, shape, left_transposed, right_transposed):
    n, k, m = shape
    a = torch.randn(k, n).T if left_transposed else torch.randn(n, k)
    b = torch.randn(m, k).T if right_transposed else torch.randn(k, m)
    found = matmul(a, b)
    assert (found.shape, found.dtype) == ((n, m), torch.float32)
    assert found.is_contiguous()
    bound = (k + 2) * 2.0**-24 * (a.double().abs() @ b.double().abs())
    assert ((found.double() - a.double() @ b.double()).abs() <= bound).all()
    assert torch.equal(found, matmul(a, b))


@torch.no_grad()
def test_other_types_and_empty_matrices_are_multiplied_by_pytorch(onednn):
    a, b = torch.randn(LARGE[:2]), torch.randn(LARGE[1:])
    for dtype in (torch.float64, torch.bfloat16):
        assert torch.equal(matmul(a.to(dtype), b.to(dtype)), a.to(dtype) @ b.to(dtype))
    assert matmul(a[:0], b).shape == (0, LARGE[2])
    assert matmul(a.to("meta"), b.to("meta")).shape == (LARGE[0], LARGE[2])


def test_a_product_with_a_gradient_keeps_its_graph(onednn):
    a, b = torch.randn(LARGE[:2]), torch.randn(LARGE[1:], requires_grad=True)
    product = matmul(a, b)
    product.sum().backward()
    assert torch.allclose(b.grad, a.sum(0)[:, None].expand_as(b), atol=1e-4)


@torch.no_grad()
def test_a_choice_of_lower_precision_or_of_no_onednn_is_followed(onednn):
    a, b = torch.randn(LARGE[:2]), torch.randn(LARGE[1:])
    torch._C._set_mkldnn_enabled(False)  # its context manager warns
    try:
        assert torch.equal(matmul(a, b), a @ b)
    finally:
        torch._C._set_mkldnn_enabled(True)
    torch.set_float32_matmul_precision("medium")
    try:
        assert torch.equal(matmul(a, b), a @ b)
    finally:
        torch.set_float32_matmul_precision("highest")


@torch.no_grad()
def test_transforms_see_a_plain_product(onednn):
    a, b = torch.randn(3, *LARGE[:2]), torch.randn(LARGE[1:])
    assert torch.allclose(torch.vmap(lambda x: matmul(x, b))(a), a @ b, atol=1e-4)


@pytest.mark.parametrize(
    ("capability", "processor", "variables", "faster"),
    [
        ("AVX512", "vendor_id : AuthenticAMD", {}, True),
        ("AVX2", "vendor_id : AuthenticAMD", {}, False),
        ("AVX512", "vendor_id : GenuineIntel", {}, False),
        ("AVX512", "vendor_id : AuthenticAMD", {"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}, False),
    ],
)
def test_onednn_is_chosen_by_the_processor(monkeypatch, capability, processor, variables, faster):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(products, "_describe_processor", lambda: processor)
    for name in ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    assert products._is_onednn_faster() == (faster and known)


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2}, {"padding": 1}, {"groups": 4}, {"bias": False}, {"dilation": 3}]
)
@pytest.mark.parametrize("kernel", [1, 3, (1, 3)])
@pytest.mark.parametrize("batch", [1, 3])
@torch.no_grad()
def test_faster_convolutions_compute_the_same(onednn, kernel, options, batch):
    layer, x = torch.nn.Conv2d(8, 12, kernel, **options), torch.randn(batch, 8, 9, 11)
    expected = layer.double()(x.double())
    with faster_convolutions():
        found = layer.float()(x)
    assert found.shape == expected.shape
    assert torch.allclose(found.double(), expected, atol=1e-5)


def test_only_kernels_of_one_pixel_are_dilated(monkeypatch):
    seen = []
    monkeypatch.setattr(products, "is_onednn_faster", lambda: True)

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.conv2d:
                seen.append((tuple(args[1].shape[2:]), args[5]))
            return func(*args, **(kwargs or {}))

    net = torch.nn.Sequential(torch.nn.Conv2d(2, 2, 1), torch.nn.Conv2d(2, 2, 3), torch.nn.Conv2d(2, 2, (3, 1)))
    with Watch(), faster_convolutions():
        net(torch.randn(1, 2, 6, 6)).sum().backward()
    assert seen == [((1, 1), (2, 2)), ((3, 3), (1, 1)), ((3, 1), (1, 1))]
    assert net[0].weight.grad.abs().sum() > 0
    assert net[0].dilation == (1, 1)


def test_nothing_changes_where_pytorch_is_as_fast(monkeypatch):
    monkeypatch.setattr(products, "is_onednn_faster", lambda: False)
    with faster_convolutions() as mode:
        assert mode is None


@pytest.mark.untyped
@pytest.mark.parametrize("shape", SHAPES[:2])
def test_a_compiled_product_has_the_same_value_and_gradients(onednn, shape):
    n, k, m = shape
    a, b = torch.randn(n, k, requires_grad=True), torch.randn(m, k, requires_grad=True)
    compiled = torch.compile(lambda a, b: matmul(a, b.T).square().sum(), backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(compiled(a, b), (a, b))
    expected = torch.autograd.grad((a @ b.T).square().sum(), (a, b))
    for mine, plain in zip(found, expected, strict=True):
        assert torch.allclose(mine, plain, rtol=1e-3, atol=1e-2)


@pytest.mark.untyped
def test_an_exported_product_is_one_of_pytorch(onednn):
    class Product(torch.nn.Module):
        def forward(self, a, b):
            return matmul(a, b)

    program = torch.export.export(Product(), (torch.randn(LARGE[:2]), torch.randn(LARGE[1:])))
    assert "hypersphere" not in program.graph_module.code
