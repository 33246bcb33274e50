import pytest

from hypersphere.recognition.service.base_app import create_base_app
from hypersphere.recognition.service.bearer_keys import BearerKeys
from hypersphere.recognition.service.limits import Limits


def make_app(keys):
    app = create_base_app("test", "page.html", limits=Limits(), keys=keys, fingerprint="model 1", close=lambda: None)

    @app.get("/v1/health")
    async def health() -> str:
        return "ok"

    @app.get("/v1/things")
    async def things() -> str:
        return "things"

    return app


@pytest.mark.parametrize(("keys", "expected"), [(["correct-horse-battery"], [{"key": []}]), ([], [{"key": []}, {}])])
def test_the_description_says_which_routes_need_a_key(keys, expected):
    paths = make_app(BearerKeys(keys)).openapi()["paths"]
    assert paths["/v1/health"]["get"]["security"] == []
    assert paths["/v1/things"]["get"]["security"] == expected
    assert "/" not in paths  # the HTML page is not part of the API
