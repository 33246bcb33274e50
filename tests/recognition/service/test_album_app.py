import asyncio
import base64

import httpx
import pytest

from hypersphere.recognition import Album
from hypersphere.recognition.service import AlbumAccess, BearerKeys, create_album_app
from hypersphere.recognition.service.page import load_page
from tests.recognition.service.people import HOSTILE
from tests.recognition.service.server import Server
from tests.recognition.service.test_page import browser, by_id, until  # noqa: F401 - a fixture
from tests.recognition.test_album import flat, photographs
from tests.recognition.test_album_export import STEEP

KEY = "a-key-of-some-length"


@pytest.fixture
def path(tmp_path):
    photographs(tmp_path / "photos", count=5, each=4)
    with Album(tmp_path / "party.album") as album:
        album.add(tmp_path / "photos", flat(), calibration=STEEP)
    return tmp_path / "party.album"


@pytest.fixture
def ask(path):
    access = AlbumAccess(path)

    def send(method, where, keys=None, **options):
        async def work():
            transport = httpx.ASGITransport(create_album_app(access, keys), client=("127.0.0.1", 50000))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
                return await client.request(method, where, **options)

        return asyncio.run(work())

    yield send
    access.close()


def fields(**values):
    """Return a form encoded as browsers send it."""
    return {"files": [(name, (None, str(one))) for name, many in values.items() for one in many]}


def test_groups_come_with_thumbnails_and_doubt(ask):
    found = ask("GET", "/v1/album/groups").json()
    assert (found["total"], found["unassigned"], found["names"]) == (5, 0, [])
    doubts = [group["doubt"] for group in found["groups"]]
    assert doubts == sorted(doubts, reverse=True)
    head, _, content = found["groups"][0]["samples"][0]["thumbnail"].partition(",")
    assert head == "data:image/jpeg;base64"
    assert base64.b64decode(content).startswith(b"\xff\xd8")


def test_every_correction(ask, path):
    first, second, third = (group["id"] for group in ask("GET", "/v1/album/groups").json()["groups"][:3])
    members = [one["id"] for one in ask("GET", f"/v1/album/groups/{third}").json()["samples"]]
    assert ask("POST", "/v1/album/name", **fields(group=[first], name=["Ada"])).json()["group"] == first
    assert ask("POST", "/v1/album/merge", **fields(group=[first, second])).json()["group"] == first
    assert ask("POST", "/v1/album/split", **fields(sample=members[:2])).status_code == 200
    assert ask("POST", "/v1/album/reject", **fields(sample=members[2:3])).status_code == 200
    assert ask("POST", "/v1/album/confirm", **fields(group=[first])).status_code == 200
    assert len(ask("GET", "/v1/album/unassigned").json()["samples"]) == 1
    assert ask("POST", "/v1/album/undo").json()["action"].startswith("confirm")
    assert "is not group" in ask("POST", "/v1/album/undo").json()["action"]
    assert ask("GET", "/v1/album/unassigned").json()["total"] == 0
    with Album(path, create=False) as album:  # the name is stored on disk
        assert {group.name: group.size for group in album.groups()}["Ada"] == 8


def test_mistakes_are_refused_in_words(ask):
    answer = ask("POST", "/v1/album/name", **fields(group=[999], name=["Ada"]))
    assert (answer.status_code, answer.json()["error"]["message"]) == (422, "there is no group 999 in the album")
    assert ask("POST", "/v1/album/merge", **fields(group=[1])).status_code == 422
    assert ask("GET", "/v1/album/groups?limit=0").status_code == 422


def test_keys_and_origins_are_checked(ask):
    keys = BearerKeys([KEY])
    assert ask("GET", "/v1/album/groups", keys).status_code == 401
    assert ask("GET", "/v1/album/groups", keys, headers={"Authorization": f"Bearer {KEY}"}).status_code == 200
    assert ask("GET", "/", keys).status_code == 200
    other = {"Origin": "https://elsewhere.example"}
    assert ask("POST", "/v1/album/undo", headers=other).status_code == 403


def test_the_page_is_whole_and_loads_nothing_from_elsewhere():
    content, headers = load_page("album.html")
    assert "innerHTML" not in content
    assert "'unsafe" not in headers["Content-Security-Policy"]
    assert "://" not in content


class AlbumServer(Server):
    """A running ``hypersphere serve --album``."""

    def arguments(self):
        return ["--album", str(self.folder / "party.album")]


def test_an_album_in_a_browser(browser, path, tmp_path):  # noqa: F811
    """A visitor names by keyboard, takes out a face, splits, merges by name, undoes, and enters a hostile name."""
    from selenium.webdriver.common.keys import Keys

    with AlbumServer(tmp_path) as server:
        browser.get(server.address)
        until(lambda: len(browser.find_elements("css selector", "article")) == 5)
        assert by_id(browser, "summary").text == "5 groups, 0 named"
        body = browser.find_element("css selector", "body")
        body.send_keys("j")
        browser.switch_to.active_element.send_keys("n")
        browser.switch_to.active_element.send_keys(HOSTILE, Keys.ENTER)
        until(lambda: by_id(browser, "summary").text == "5 groups, 1 named")
        assert browser.title == "Album"

        cards = browser.find_elements("css selector", "article")
        named = next(card for card in cards if card.find_element("css selector", "input").get_attribute("value"))
        named.find_elements("css selector", ".faces button")[0].send_keys(Keys.SPACE)
        browser.switch_to.active_element.send_keys("x")
        until(lambda: by_id(browser, "rest").text == "1 sample in no group")
        by_id(browser, "showrest").click()
        until(lambda: len(browser.find_elements("css selector", "#unassigned img")) == 1)
        browser.find_element("css selector", "body").send_keys("u")
        until(lambda: by_id(browser, "rest").text == "0 samples in no group")
        assert "Taken back" in by_id(browser, "message").text

        card = browser.find_elements("css selector", "article")[0]
        browser.execute_script("arguments[0].scrollIntoView()", card)  # otherwise the fixed bar covers it
        for face in card.find_elements("css selector", ".faces button")[:2]:
            face.click()
        card.find_element("css selector", ".split").click()
        until(lambda: by_id(browser, "summary").text == "6 groups, 1 named")
        by_id(browser, "undo").click()
        until(lambda: by_id(browser, "summary").text == "5 groups, 1 named")

        for scheme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            for width in (1280, 390):
                size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
                browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
                wide = "return document.documentElement.scrollWidth <= window.innerWidth"
                assert browser.execute_script(wide)
                browser.save_screenshot(str(tmp_path / f"{scheme}-{width}.png"))
        logged = [entry["message"] for entry in browser.get_log("browser")]
        assert logged == []
        assert server.stop()[0] == 0
    with Album(path, create=False) as album:
        assert [group.name for group in album.groups() if group.name] == [HOSTILE]
