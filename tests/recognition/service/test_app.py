import asyncio
import contextlib
import sqlite3
import time

import pytest
import torch

from hypersphere.recognition import Gallery
from hypersphere.recognition.service import BearerKeys
from tests.recognition.service.people import HOSTILE, Client, calibrate, embedder, picture, refused

KEY = "a-key-of-some-length"


def test_health_says_what_runs(client, model):
    answer = client.get("/v1/health")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status"], body["model"], body["gallery"], body["key_needed"]) == (
        "ok",
        model.fingerprint,
        "empty",
        False,
    )


def test_embeddings_are_those_of_the_embedder(client, model, tmp_path):
    images = [picture(0), picture(1, form="BMP")]
    answer = client.post("/v1/embeddings", files=[("image", image) for image in images]).json()
    paths = [tmp_path / "0.png", tmp_path / "1.bmp"]
    for path, image in zip(paths, images, strict=True):
        path.write_bytes(image)
    torch.testing.assert_close(torch.tensor(answer["embeddings"]), model([str(path) for path in paths]))
    assert (answer["dimension"], answer["model"]) == (128, model.fingerprint)


def test_a_person_from_enrolment_to_removal(client, model, tmp_path):
    assert client.get("/v1/persons").json() == {"persons": [], "next": None}
    answer = client.enrol("ada", picture(0), picture(0, 1))
    assert (answer.status_code, answer.json()) == (201, {"name": "ada", "templates": 2})
    client.enrol("bob", picture(1))
    calibrate(tmp_path / "people.db", model)
    found = client.search(picture(1, 9), k=2).json()
    assert found["person"] == "bob"
    assert [one["name"] for one in found["candidates"]] == ["bob", "ada"]
    assert [one["accepted"] for one in found["candidates"]] == [True, False]
    assert found["threshold"]["by"] == "far"
    with Gallery(tmp_path / "people.db", model.fingerprint) as gallery:
        assert found["threshold"]["value"] == gallery.calibrations["far"].threshold
    stranger = client.search(picture(3)).json()
    assert (stranger["person"], stranger["candidates"][0]["accepted"]) == (None, False)
    assert client.delete("/v1/persons/bob").json() == {"name": "bob", "removed": 1}
    assert client.get("/v1/persons").json() == {"persons": [{"name": "ada", "templates": 2}], "next": None}
    assert client.search(picture(1, 9)).json()["person"] is None


def test_the_same_picture_is_enrolled_once(client):
    for _ in range(2):
        assert client.enrol("ada", picture(0)).json()["templates"] == 1


def test_compare(client, model, tmp_path):
    def ask(first, second):
        return client.post("/v1/compare", files={"first": picture(*first), "second": picture(*second)}).json()

    found = ask((0, 0), (0, 1))
    assert (found["same"], found["threshold"]) == (None, None)
    assert found["score"] > 0.9
    client.enrol("ada", picture(0))
    calibrate(tmp_path / "people.db", model)
    assert ask((0, 0), (0, 1))["same"] is True
    assert ask((0, 0), (3, 0))["same"] is False


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a?b#c", "%2e%2e", HOSTILE, "Zoë  Ω", "x" * 200])
def test_any_name_can_be_removed(client, name):
    client.enrol(name, picture(0))
    assert client.get("/v1/persons").json()["persons"][0]["name"] == name
    assert client.delete("/v1/persons", params={"name": name}).json()["removed"] == 1


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 201])
def test_names_that_are_refused(client, name):
    answer = client.enrol(name, picture(0))
    assert refused(answer, 422, answer.json()["error"]["code"])
    assert client.get("/v1/persons").json() == {"persons": [], "next": None}


def test_what_is_not_there(client):
    refused(client.delete("/v1/persons/zoe"), 404, "unknown_person")
    client.enrol("ada", picture(0))
    refused(client.delete("/v1/persons/zoe"), 404, "unknown_person")
    refused(client.get("/v2"), 404, "not_found")
    refused(client.get("/docs"), 404, "not_found")
    refused(client.get("/v1/search"), 405, "method_not_allowed")


def test_a_gallery_that_cannot_be_searched_yet_says_what_to_do(client):
    assert "enroll someone first" in refused(client.search(picture(0)), 409, "gallery_empty")
    client.enrol("ada", picture(0))
    message = refused(client.search(picture(0)), 409, "not_calibrated")
    assert "hypersphere gallery calibrate people.db EMBEDDER strangers/ --fpir 0.01" in message
    assert client.get("/v1/health").json()["gallery"] == "not_calibrated"


def test_a_gallery_of_another_model_is_a_conflict(make_recognizer, model, client):
    client.enrol("ada", picture(0))
    other = Client(make_recognizer(embedder=embedder(seed=2)))
    for answer in (
        other.get("/v1/persons"),
        other.search(picture(0)),
        other.enrol("bob", picture(1)),
        other.delete("/v1/persons/ada"),
    ):
        assert model.fingerprint[:12] in refused(answer, 409, "model_mismatch")
    assert other.get("/v1/health").json()["gallery"] == "other_model"
    answer = other.post("/v1/compare", files={"first": picture(0), "second": picture(0)}).json()
    assert (round(answer["score"], 4), answer["same"]) == (1.0, None)
    assert client.get("/v1/persons").json() == {"persons": [{"name": "ada", "templates": 1}], "next": None}


def test_forms_that_are_refused(client):
    refused(client.post("/v1/search", json={"image": "x"}), 415, "not_a_form")
    refused(client.post("/v1/search"), 415, "not_a_form")
    refused(client.post("/v1/search", files={"photo": b"x"}), 422, "invalid")
    refused(client.post("/v1/search", data={"image": "text"}, files={"x": b"x"}), 422, "invalid")
    refused(client.search(picture(0), k=0), 422, "invalid")
    refused(client.search(picture(0), k="many"), 422, "invalid")
    refused(client.search(b"not an image"), 415, "not_an_image")
    refused(client.search(picture(0)[:-40]), 422, "damaged_image")
    refused(client.search(b""), 415, "not_an_image")
    many = client.post("/v1/embeddings", files=17 * [("image", picture(0))])
    refused(many, 413, "wrong_number_of_images")
    headers = {"content-type": "multipart/form-data; boundary=x"}
    for body in (b"--x\r\nbroken", b"nothing of the kind", b"--x\r\n\r\n\r\n--x--", b"\xff" * 100):
        answer = client.post("/v1/search", content=body, headers=headers)
        assert answer.status_code in (400, 422)
        refused(answer, answer.status_code, answer.json()["error"]["code"])
    refused(
        client.post("/v1/search", content=b"x", headers={"content-type": "multipart/form-data"}), 400, "bad_request"
    )


def test_a_failure_is_told_without_its_traceback(client, make_recognizer, caplog, monkeypatch):
    recognizer = make_recognizer()
    failing = Client(recognizer)
    monkeypatch.setattr(recognizer.gallery, "people", lambda *_: {}["secret"])
    assert "secret" not in refused(failing.get("/v1/persons"), 500, "internal")
    assert "KeyError: 'secret'" in caplog.text


def test_the_description_names_every_path_and_the_envelope(client):
    found = client.get("/openapi.json").json()
    assert set(found["paths"]) == {
        "/v1/health",
        "/v1/embeddings",
        "/v1/compare",
        "/v1/search",
        "/v1/identify",
        "/v1/persons",
        "/v1/persons/{name}",
    }
    for path in found["paths"].values():
        for way in path.values():
            assert way["responses"]["409"]["content"]["application/json"]["schema"]["$ref"].endswith("/Error")


def test_keys_are_needed_where_they_are_set(make_recognizer):
    recognizer = make_recognizer()
    locked = Client(recognizer, BearerKeys([KEY]))
    answer = locked.get("/v1/persons")
    refused(answer, 401, "no_key")
    assert answer.headers["www-authenticate"] == "Bearer"
    refused(locked.get("/v1/persons", headers={"Authorization": f"Bearer {KEY}x"}), 401, "no_key")
    refused(locked.enrol("ada", picture(0)), 401, "no_key")
    assert locked.get("/").status_code == locked.get("/v1/health").status_code == 200
    assert locked.get("/v1/health").json()["key_needed"] is True
    known = Client(recognizer, BearerKeys([KEY]), headers={"Authorization": f"Bearer {KEY}"})
    assert known.enrol("ada", picture(0)).status_code == 201


def test_concurrent_requests_share_batches(make_recognizer, model):
    recognizer = make_recognizer()
    sizes = []
    recognizer.batcher.embed = lambda samples: sizes.append(len(samples)) or model.of_windows(samples)
    recognizer.batcher.window = 0.5
    client = Client(recognizer)

    async def all_at_once():
        asked = [client.ask("POST", "/v1/embeddings", files={"image": picture(i % 3, i)}) for i in range(32)]
        return await asyncio.gather(*asked)

    answers = asyncio.run(all_at_once())
    assert sum(sizes) == 32
    assert max(sizes) > 8
    for i in (0, 17, 31):
        alone = client.post("/v1/embeddings", files={"image": picture(i % 3, i)}).json()["embeddings"]
        torch.testing.assert_close(torch.tensor(answers[i].json()["embeddings"]), torch.tensor(alone))


def test_a_comparison_is_judged_by_a_rate_of_pairs_alone(make_recognizer, client, model, tmp_path):
    client.enrol("ada", picture(0))
    with Gallery(tmp_path / "people.db", model.fingerprint, create=False) as gallery:
        gallery.calibrate(fpir=0.5, strangers=torch.randn(8, 128), people=range(8))
    answer = client.post("/v1/compare", files={"first": picture(0), "second": picture(0)}).json()
    assert (answer["same"], answer["threshold"]) == (None, None)
    assert client.search(picture(0)).json()["threshold"]["by"] == "fpir"


def test_persons_come_in_pages(client):
    for name in ("ada", "bob", "cem", "dia", "eve"):
        client.enrol(name, picture(0))
    found, after = [], ""
    while after is not None:
        page = client.get("/v1/persons", params={"limit": 2, "after": after}).json()
        assert len(page["persons"]) <= 2
        found += [person["name"] for person in page["persons"]]
        after = page["next"]
    assert found == ["ada", "bob", "cem", "dia", "eve"]
    for limit in (0, 1001):
        refused(client.get("/v1/persons", params={"limit": limit}), 422, "invalid")


def test_another_writer_stops_neither_health_nor_search(make_recognizer, tmp_path, model):
    client = Client(make_recognizer(answer_seconds=0.5))
    client.enrol("ada", picture(0))
    calibrate(tmp_path / "people.db", model)
    with contextlib.closing(sqlite3.connect(tmp_path / "people.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        start = time.monotonic()
        refused(client.enrol("bob", picture(1)), 503, "uncertain")
        assert client.get("/v1/health").json()["gallery"] == "ready"
        assert client.search(picture(0)).json()["person"] == "ada"
        assert [person["name"] for person in client.get("/v1/persons").json()["persons"]] == ["ada"]
        assert time.monotonic() - start < 15
        other.execute("ROLLBACK")
    assert client.enrol("bob", picture(1)).json() == {"name": "bob", "templates": 1}


def test_enrolling_does_not_list_everybody(make_recognizer, monkeypatch):
    client = Client(make_recognizer())
    monkeypatch.setattr(Gallery, "list", lambda *_: pytest.fail("the whole gallery was listed"))
    assert client.enrol("ada", picture(0)).status_code == 201


def test_the_description_names_the_keys(make_recognizer, client):
    found = client.get("/openapi.json").json()
    scheme = found["components"]["securitySchemes"]["key"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert found["paths"]["/v1/search"]["post"]["security"] == [{"key": []}, {}]
    assert found["paths"]["/v1/health"]["get"]["security"] == []
    authorization = {"Authorization": f"Bearer {KEY}"}
    locked = Client(make_recognizer(), BearerKeys([KEY]), headers=authorization)
    assert locked.get("/openapi.json").json()["paths"]["/v1/search"]["post"]["security"] == [{"key": []}]


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/compare", "/v1/search"])
def test_features_that_overflow_are_an_error_and_not_null(make_recognizer, model, path):
    recognizer = make_recognizer()
    client = Client(recognizer)
    broken = torch.full((2, 4), torch.inf)

    async def overflow(uploads):
        return broken[: len(uploads)]

    recognizer._features = overflow
    names = ("first", "second") if path == "/v1/compare" else ("image",)
    answer = client.post(path, files=[(name, picture(0)) for name in names])
    refused(answer, 422, "no_features")
