"""Requests generated from the OpenAPI description: every answer matches the description."""

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings

from hypersphere.recognition import Gallery
from hypersphere.recognition.service import create_app
from hypersphere.recognition.service.bearer_keys import BearerKeys

schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis: pip install 'torch-hypersphere[dev]'")

KEY = "correct-horse-battery"
HEADERS = {"Authorization": f"Bearer {KEY}"}
OPERATIONS = [
    ("GET", "/v1/health"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/compare"),
    ("POST", "/v1/identify"),
    ("POST", "/v1/search"),
    ("GET", "/v1/persons"),
    ("POST", "/v1/persons"),
    ("DELETE", "/v1/persons/{name}"),
]


@pytest.fixture
def schema(make_recognizer, model, tmp_path):
    with Gallery(tmp_path / "people.db", model.fingerprint) as gallery:
        gallery.enrol(["ada", "bob"], torch.randn(2, 128, generator=torch.Generator().manual_seed(0)))
    app = create_app(make_recognizer(), BearerKeys([KEY]))
    return schemathesis.openapi.from_asgi("/openapi.json", app, headers=HEADERS)


def test_all_operations_are_drawn_from(schema):
    drawn = {(each.ok().method.upper(), each.ok().path) for each in schema.get_all_operations()}
    assert set(OPERATIONS) <= drawn


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_answer_is_described(schema, method, path):
    @given(case=schema[path][method].as_strategy())
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    def ask(case):
        answer = case.call(headers=HEADERS)
        assert answer.status_code < 500, answer.text
        case.validate_response(
            answer,
            checks=[schemathesis.checks.not_a_server_error, schemathesis.specs.openapi.checks.status_code_conformance],
        )

    ask()
