"""Photographs of several people: boxes and names over HTTP, on the page at two widths, and live."""

import io
import itertools

import numpy as np
import pytest
from PIL import Image

from hypersphere import load
from tests.data.photographs import extract_people, find_network
from tests.recognition.service.people import Client, calibrate, picture
from tests.recognition.service.server import Server
from tests.recognition.service.test_page import browser, by_id, until  # noqa: F401


@pytest.fixture(scope="module")
def sface():
    find_network("yunet"), find_network("sface")
    return load("sface")


@pytest.fixture(scope="module")
def people(tmp_path_factory, sface):
    """Photographs of Aaron_Peirsol and of Aaron_Sorkin, and one of both with a stranger."""
    folder = tmp_path_factory.mktemp("lfw")
    extract_people(folder, pictures=24)

    def read(name, number):
        return Image.open(folder / name / f"{name}_{number:04}.jpg")

    together = [read("Aaron_Peirsol", 2), read("Aaron_Eckhart", 1), read("Aaron_Sorkin", 2)]
    party = Image.fromarray(np.concatenate([np.asarray(one) for one in together], 1))
    return {
        "party": to_bytes(party.resize((1152, 384))),
        "peirsol": to_bytes(read("Aaron_Peirsol", 1)),
        "sorkin": to_bytes(read("Aaron_Sorkin", 1)),
        "wall": to_bytes(Image.new("RGB", (128, 96), (90, 120, 90))),
    }


def to_bytes(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def enrol(client, people):
    for name in ("peirsol", "sorkin"):
        answer = client.post("/v1/persons", data={"name": name}, files={"image": people[name]})
        assert answer.status_code == 201


def test_everybody_on_a_photograph_is_found(make_recognizer, people, sface, tmp_path):
    client = Client(make_recognizer(embedder=sface))
    enrol(client, people)
    calibrate_for_faces(tmp_path / "people.db", sface)
    answer = client.post("/v1/identify", files={"image": people["party"]}).json()
    assert (answer["width"], answer["height"]) == (1152, 384)
    order = sorted(answer["found"], key=lambda one: one["box"][0])
    assert [one["person"] for one in order] == ["peirsol", None, "sorkin"]
    assert all(left["box"][2] <= right["box"][0] + 60 for left, right in itertools.pairwise(order))
    assert len(order[0]["landmarks"]) == 5
    assert order[0]["detector_score"] > 0.6
    assert order[0]["quality"]["size"] > 60
    assert answer["threshold"]["by"] == "far"
    empty = client.post("/v1/identify", files={"image": people["wall"]})
    assert (empty.status_code, empty.json()["found"]) == (200, [])
    refused = client.post("/v1/persons", data={"name": "wall"}, files={"image": people["wall"]})
    assert refused.status_code == 422
    assert "no face was found" in refused.json()["error"]["message"]
    assert "wall" not in client.get("/v1/persons").text


def test_one_of_several_faces_is_enrolled(make_recognizer, people, sface, tmp_path):
    client = Client(make_recognizer(embedder=sface))
    enrol(client, people)
    calibrate_for_faces(tmp_path / "people.db", sface)
    found = client.post("/v1/identify", files={"image": people["party"]}).json()["found"]
    stranger = next(i for i, one in enumerate(found) if one["person"] is None)
    form = {"name": "eckhart", "face": str(stranger)}
    assert client.post("/v1/persons", data=form, files={"image": people["party"]}).status_code == 201
    found = client.post("/v1/identify", files={"image": people["party"]}).json()["found"]
    assert found[stranger]["person"] == "eckhart"
    wrong = client.post("/v1/persons", data={"name": "x", "face": "7"}, files={"image": people["party"]})
    assert wrong.status_code == 422
    assert "face must be below 3" in wrong.json()["error"]["message"]


def test_a_picture_is_one_find_for_other_embedders(client, model, tmp_path):
    client.post("/v1/persons", data={"name": "ada"}, files={"image": picture(0)})
    calibrate(tmp_path / "people.db", model)
    answer = client.post("/v1/identify", files={"image": picture(0, 5)}).json()
    assert [(one["person"], one["box"]) for one in answer["found"]] == [("ada", None)]


def calibrate_for_faces(path, model):
    """Calibrate with a threshold of 0.363 for pairs."""
    import torch

    from hypersphere.recognition import Gallery

    with Gallery(path, model, create=False) as gallery:
        scores = torch.cat([torch.linspace(0.45, 0.9, 30), torch.linspace(-0.3, 0.3629, 300)])
        gallery.calibrate(far=1 / 300, pairs=(scores, torch.arange(330) < 30))


def test_boxes_with_names_on_the_page(browser, people, sface, tmp_path):  # noqa: F811
    sface.save(tmp_path / "embedder.safetensors")
    (tmp_path / "party.png").write_bytes(people["party"])
    (tmp_path / "wall.png").write_bytes(people["wall"])
    with Server(tmp_path) as server:
        with server.client() as client:
            enrol(client, people)
        calibrate_for_faces(server.gallery, sface)
        browser.get(server.address)
        by_id(browser, "file").send_keys(str(tmp_path / "party.png"))
        boxes = until(lambda: browser.find_elements("css selector", "#faces .face"))
        assert sorted(box.text for box in boxes) == ["Unknown", "peirsol", "sorkin"]
        assert by_id(browser, "score").text.startswith("3 faces, threshold 0.3")
        for width in (1280, 390):
            browser.set_window_size(width, 1000)
            assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
            assert browser.execute_script(
                "const p = document.getElementById('preview').getBoundingClientRect();"
                "return [...document.querySelectorAll('.face')].every(f => { const r = f.getBoundingClientRect();"
                "return r.left >= p.left - 3 && r.right <= p.right + 3 && r.top >= p.top - 3 && r.bottom <= p.bottom + 3 })"
            )
            browser.save_screenshot(str(tmp_path / f"{width}.png"))
        unknown = next(box for box in boxes if box.text == "Unknown")
        unknown.click()
        assert unknown.get_attribute("aria-pressed") == "true"
        assert by_id(browser, "subject").text.startswith("Enroll face ")
        by_id(browser, "name").send_keys("eckhart")
        by_id(browser, "add").click()
        until(lambda: "eckhart" in by_id(browser, "who").text)
        by_id(browser, "file").send_keys(str(tmp_path / "wall.png"))
        until(lambda: by_id(browser, "who").text == "No face found")

        by_id(browser, "camera").click()
        until(lambda: browser.execute_script("return document.getElementById('video').videoWidth") > 0)
        by_id(browser, "live").click()
        until(lambda: by_id(browser, "who").text == "No face found")  # the fake camera shows a test pattern
        assert by_id(browser, "live").get_attribute("aria-pressed") == "true"
        by_id(browser, "live").click()
        until(lambda: by_id(browser, "live").get_attribute("aria-pressed") == "false")
        logged = [entry["message"] for entry in browser.get_log("browser")]
        assert [line for line in logged if "the server responded with a status of" not in line] == []
