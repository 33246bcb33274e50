import asyncio
import logging
import re

import pytest

from hypersphere.recognition.service import BearerKeys
from tests.recognition.service.people import Client, picture, refused

KEY = "a-key-of-some-length"


def test_a_request_id_is_kept_or_made(client, caplog):
    with caplog.at_level(logging.INFO, "hypersphere.service"):
        assert client.get("/v1/persons", headers={"X-Request-ID": "mine-1"}).headers["x-request-id"] == "mine-1"
        answer = client.delete("/v1/persons/secretname", headers={"X-Request-ID": "mine-2"})
    refused(answer, 404, "unknown_person")
    assert re.search(r"mine-2 DELETE /v1/persons/\{name:path\} 404 .* 127\.0\.0\.1", caplog.text)
    assert "secretname" not in caplog.text
    for bad in ("", "a b", "x" * 65, "a\tb", "<b>"):
        made = client.get("/v1/health", headers={"X-Request-ID": bad}).headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{32}", made)


def test_headers_of_every_answer(client):
    for answer in (client.get("/v1/health"), client.get("/nowhere"), client.get("/")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_a_body_that_says_it_is_too_large_is_not_read(make_recognizer):
    client = Client(make_recognizer(body_bytes=1000))
    answer = client.search(b"x" * 2000)
    assert "at most 1000 bytes" in refused(answer, 413, "too_large")


def stream(client, parts, after=0.0):
    """Send a chunked body. Return the answer and the number of chunks read before it."""
    taken = 0

    async def body():
        nonlocal taken
        for part in parts:
            taken += 1
            yield part
            await asyncio.sleep(after)

    headers = {"content-type": "multipart/form-data; boundary=x"}
    return client.post("/v1/search", content=body(), headers=headers), taken


@pytest.fixture(autouse=True)
def _no_lingering(monkeypatch):
    monkeypatch.setattr("hypersphere.recognition.service.middleware.DRAIN_SECONDS", 0.0)


def test_a_body_that_never_says_its_length_is_refused_while_it_arrives(make_recognizer):
    head = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
    answer, taken = stream(Client(make_recognizer(body_bytes=10_000)), [head, *[b"y" * 1000] * 1000])
    refused(answer, 413, "too_large")
    assert taken < 15


def test_a_slow_sender_is_refused(make_recognizer):
    answer, taken = stream(Client(make_recognizer(sending_seconds=0.2)), [b"--x"] * 100, after=0.05)
    refused(answer, 408, "too_slow")
    assert taken < 10


def test_too_often(make_recognizer):
    client = Client(make_recognizer(burst=2, per_minute=1))
    assert [client.get("/v1/persons").status_code for _ in range(2)] == [200, 200]
    answer = client.get("/v1/persons")
    refused(answer, 429, "too_often")
    assert 50 < int(answer.headers["retry-after"]) <= 60


def test_guessing_keys_is_slow_and_does_not_hinder_who_has_one(make_recognizer):
    recognizer = make_recognizer(burst=2, per_minute=1)
    client = Client(recognizer, BearerKeys([KEY]))
    guesses = [client.get("/v1/persons", headers={"Authorization": f"Bearer guess-{i}"}) for i in range(3)]
    assert [guess.status_code for guess in guesses] == [401, 401, 429]
    assert client.get("/v1/persons", headers={"Authorization": f"Bearer {KEY}"}).status_code == 200


def test_more_than_can_be_worked_on_at_once(make_recognizer, model):
    recognizer = make_recognizer(at_once=2)
    recognizer.batcher.window = 1.0
    client = Client(recognizer)

    async def four():
        asked = [client.ask("POST", "/v1/embeddings", files={"image": picture(i)}) for i in range(4)]
        return await asyncio.gather(*asked)

    answers = asyncio.run(four())
    assert sorted(answer.status_code for answer in answers) == [200, 200, 503, 503]
    refused(next(answer for answer in answers if answer.status_code == 503), 503, "busy")
    assert client.get("/v1/health").status_code == 200


def test_a_caller_may_name_the_model_it_expects(client, model):
    assert client.get("/v1/persons", headers={"X-Model-Fingerprint": model.fingerprint}).status_code == 200
    refused(client.get("/v1/persons", headers={"X-Model-Fingerprint": "another"}), 409, "model_mismatch")


@pytest.mark.parametrize(
    ("host", "status"), [("localhost:8000", 200), ("[::1]:8000", 200), ("evil.example", 403), ("", 403)]
)
def test_an_open_service_answers_only_to_this_machine(client, host, status):
    answer = client.get("/v1/persons", headers={"Host": host})
    assert answer.status_code == status
    if status != 200:
        refused(answer, 403, "other_host")


def test_pages_of_other_sites_are_refused(client, make_recognizer):
    for origin in ("https://evil.example", "null", "http://127.0.0.1:9"):
        answer = client.post("/v1/persons", headers={"Origin": origin}, data={"name": "x"}, files={"image": picture(0)})
        refused(answer, 403, "other_origin")
    own = client.get("/v1/persons", headers={"Origin": "http://127.0.0.1:8000"})
    assert own.json() == {"persons": [], "next": None}
    locked = Client(make_recognizer(), BearerKeys([KEY]), headers={"Authorization": f"Bearer {KEY}"})
    assert locked.get("/v1/persons", headers={"Host": "faces.example"}).status_code == 200


@pytest.mark.parametrize("headers", [{"Origin": "http://["}, {"Host": "["}, {"Origin": "//[::1"}], ids=str)
def test_malformed_headers_are_refused_without_a_traceback(client, caplog, headers):
    refused(client.get("/v1/persons", headers=headers), 400, "bad_header")
    assert "Traceback" not in caplog.text


def test_rejected_origins_count_for_the_rate_limit(make_recognizer):
    client = Client(make_recognizer(burst=2, per_minute=1))
    for origin, code in (("http://[", "bad_header"), ("https://evil.example", "other_origin")):
        refused(client.get("/v1/persons", headers={"Origin": origin}), 400 if "[" in origin else 403, code)
    refused(client.get("/v1/persons", headers={"Origin": "https://evil.example"}), 429, "too_often")
