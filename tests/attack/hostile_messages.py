"""Requests of a hostile client: too large, too slow, malformed, for forbidden paths, or with wrong keys."""

import random
from collections.abc import Callable

from .fuzzed_images import _damaged

KEY = "correct-horse-battery-staple"
Sent = tuple[bytes, bool, float]  # content, whether the service may accept it, seconds between bytes


def _request(
    path: str,
    body: bytes = b"",
    method: str = "POST",
    headers: tuple[str, ...] = (),
    key: str | None = KEY,
    kind: str = "",
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *headers]
    lines += [f"Authorization: Bearer {key}"] if key is not None else []
    lines += [f"Content-Type: {kind}"] if kind else []
    lines += (
        [f"Content-Length: {len(body)}"] if body and not any("ength" in h or "ncoding" in h for h in headers) else []
    )
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body


def _form(parts: list[tuple[str, bytes]], boundary: str = "xyz") -> bytes:
    body = b""
    for head, content in parts:
        body += f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + content + b"\r\n"
    return body + f"--{boundary}--\r\n".encode()


FORM = "multipart/form-data; boundary=xyz"
ROUTES = ("/v1/embeddings", "/v1/search", "/v1/persons", "/v1/compare")


def _right(draw: random.Random, pictures: list[tuple[str, bytes]]) -> Sent:
    name = f"person {draw.randrange(200)}"
    form = _form([('name="name"', name.encode()), ('name="image"; filename="a.png"', pictures[0][1])])
    return _request("/v1/persons", form, kind=FORM), True, 0.0


def _oversize(draw: random.Random, pictures: list[tuple[str, bytes]]) -> Sent:
    roll = draw.random()
    if roll < 0.4:
        length = draw.choice(("99999999999", "-1", "1e9", "0x10", "18446744073709551616", "5, 5"))
        return _request(draw.choice(ROUTES), b"x" * 100, headers=(f"Content-Length: {length}",), kind=FORM), False, 0.0
    if roll < 0.7:
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        return _request(draw.choice(ROUTES), chunk * 20, headers=("Transfer-Encoding: chunked",), kind=FORM), False, 0.0
    return _request(draw.choice(ROUTES), b"x" * 1_200_000, kind=FORM), False, 0.0


def _slow(draw: random.Random, pictures: list[tuple[str, bytes]]) -> Sent:
    head = _request("/v1/search", headers=("Content-Length: 5000",), kind=FORM)
    return (head[:70], False, 0.1) if draw.random() < 0.5 else (head + b"--xyz\r\n", False, 0.04)


def _malformed(draw: random.Random, pictures: list[tuple[str, bytes]]) -> Sent:
    roll, picture = draw.random(), draw.choice(pictures)[1]
    if roll < 0.2:
        parts = [(f'name="{draw.choice(("image", "x" * 3000, "", "name"))}"', b"x")] * draw.choice((1, 50, 1500))
        return _request(draw.choice(ROUTES[:2]), _form(parts), kind=FORM), False, 0.0
    if roll < 0.4:
        kinds = (
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=" + "b" * 500,
            "application/json",
            "text/plain; charset=\xff",
            "multipart/mixed; boundary=xyz",
            "application/x-www-form-urlencoded",
        )
        return (
            _request(draw.choice(ROUTES), _form([('name="image"; filename="a"', picture)]), kind=draw.choice(kinds)),
            False,
            0.0,
        )
    raw = bytearray(_form([('name="image"; filename="../../../etc/cron.d/x"', picture)]))
    for _ in range(draw.choice((1, 4, 30))):
        raw[draw.randrange(len(raw) if roll < 0.7 else min(len(raw), 90))] ^= 1 << draw.randrange(8)
    return _request(draw.choice(ROUTES), bytes(raw), kind=FORM), True, 0.0


def _paths(draw: random.Random, pictures: list[tuple[str, bytes]]) -> Sent:
    tricks = (
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/v1/persons/..%2f..%2fetc%2fpasswd",
        "/v1/persons/%00",
        "/v1/../v1/persons",
        "/static/../../people.db",
        "/people.db",
        "/v1/persons/" + "a" * 20000,
        "/%ff%fe",
        "/v1/persons?name=%00",
        "/v1/health/../persons",
        "/V1/PERSONS",
        "/v1//persons",
        "/v1/persons/;/",
        "*",
        "http://127.0.0.1/v1/persons",
        "/v1/persons#",
        "/.env",
        "/embedder.safetensors",
        "/docs",
        "/openapi.json/../v1/persons",
    )
    method = draw.choice(("GET", "DELETE", "POST", "PUT", "PATCH", "OPTIONS", "HEAD", "TRACE"))
    return _request(draw.choice(tricks), method=method, key=None), False, 0.0


def _keys(draw: random.Random, pictures: list[tuple[str, bytes]]) -> Sent:
    wrong = (
        "",
        "x",
        KEY[:-1],
        KEY + "x",
        KEY.upper(),
        KEY + "\t" + KEY,
        KEY[::-1],
        "\xe9" * 10,
        KEY.replace("-", "_"),
        "a" * 8000,
        "null",
        "undefined",
        "*",
    )
    headers = draw.choice(
        (
            (),
            ("Authorization: Basic " + KEY,),
            ("authorization: " + KEY,),
            ("X-Authorization: Bearer " + KEY,),
            ("Cookie: key=" + KEY,),
            ("X-Forwarded-For: 127.0.0.1",),
        )
    )
    key = None if headers and "uthorization:" in headers[0] else draw.choice((None, *wrong))
    route = draw.choice(("/v1/persons", "/v1/search", f"/v1/persons?key={KEY}"))
    return _request(route, method=draw.choice(("GET", "POST", "DELETE")), headers=headers, key=key), False, 0.0


def _picture(draw: random.Random, pictures: list[tuple[str, bytes]]) -> Sent:
    form = _form([('name="image"; filename="a.png"', _damaged(draw, draw.choice(pictures)[1]))])
    return _request("/v1/embeddings", form, kind=FORM), True, 0.0


def _garbage(draw: random.Random, pictures: list[tuple[str, bytes]]) -> Sent:
    right = _request("/v1/persons", method="GET", key=None)
    smuggled = b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    options = (
        draw.randbytes(300),
        b"\x16\x03\x01" + draw.randbytes(200),
        b"GET /v1/persons HTTP/9.9\r\n\r\n",
        b"GET\r\n\r\n",
        right.replace(b"HTTP/1.1", b"HTTP/1.1\r\n" + b"X: y\r\n" * 5000),
        smuggled + right,
        right.replace(b"Host: 127.0.0.1", b"Host: evil.example"),
        right.replace(b"Host: 127.0.0.1\r\n", b""),
        right.replace(b"\r\n", b"\n"),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"A" * 200_000,
    )
    return draw.choice(options), False, 0.0


Maker = Callable[[random.Random, list[tuple[str, bytes]]], Sent]
REQUESTS: dict[str, Maker] = {
    "valid request": _right,
    "too large": _oversize,
    "slow sender": _slow,
    "malformed form": _malformed,
    "hostile path": _paths,
    "wrong key": _keys,
    "damaged picture": _picture,
    "not HTTP": _garbage,
}
