"""Rendering of a page as one self-contained HTML file with template, style, scripts and the plotting library."""

import base64
import functools
import gzip
import json
import math
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from .. import __version__
from .._extras import require
from ..files import write_text
from .page_parts import Chart, Page

MAX_PAGE_BYTES = 5_000_000  # small enough for mail and for phones
ASSETS = pathlib.Path(__file__).parent / "assets"
SCRIPTS = ("theme.js", "charts.js", "sphere.js", "threshold.js", "page.js")


def save(page: Page, path: str | os.PathLike[str]) -> pathlib.Path:
    """Write the page atomically and return its path.

    Raises:
        ValueError: If the folder does not exist, or the page is larger than five megabytes.

    >>> import tempfile
    >>> from hypersphere.report import Note, Section
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Page("My page", "", [Section("one", "One", [Note("Text.")])]), f"{folder}/page.html").name
    'page.html'
    """
    target = pathlib.Path(path)
    if not target.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {target.absolute().parent} to write {target.name} into")
    text = render(page)
    if len(text.encode()) > MAX_PAGE_BYTES:
        raise ValueError(
            f"the page has {len(text.encode()):,} bytes, more than {MAX_PAGE_BYTES:,}: show fewer runs in it"
        )
    write_text(target, text, private=True)  # pages may show pictures of people
    return target


def render(page: Page) -> str:
    """Return the page as HTML.

    The template engine escapes every text. The data are JSON in which no character can end a script element.

    >>> from hypersphere.report import Note, Section
    >>> "&lt;b&gt;" in render(Page("A <b> is text", "", [Section("one", "One", [Note("Text.")])]))
    True
    """
    jinja = require("jinja2")
    environment = jinja.Environment(
        loader=jinja.FileSystemLoader(ASSETS), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests["kind"] = lambda block, name: type(block).__name__ == name
    template = environment.get_template("page.html.jinja")
    charts = {chart.key: _describe_chart(chart) for chart in _list_charts(page)}
    markup = require("markupsafe").Markup
    return str(
        template.render(
            page=page,
            version=__version__,
            style=markup(_read_asset("page.css")),
            script=markup("\n".join(_read_asset(name) for name in SCRIPTS)),
            data=markup(encode_for_script(charts)),
            library=markup(read_plotting_library() if charts else ""),
        )
    )


def encode_for_script(value: Any) -> str:
    r"""Return JSON that is safe inside a script element, with None for numbers that are not finite.

    >>> encode_for_script({"name": "</script>", "x": float("nan")})
    '{"name":"\\u003c/script\\u003e","x":null}'
    """
    text = json.dumps(
        round_numbers(value), separators=(",", ":"), allow_nan=False
    )  # ASCII, so U+2028 is written \\u2028
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def round_numbers(value: Any) -> Any:
    """Return values with numbers rounded to six digits, None for numbers that are not finite, and lists for tensors.

    >>> round_numbers({"a": (1 / 3, float("inf"), 7)})
    {'a': [0.333333, None, 7]}
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): round_numbers(item) for key, item in value.items()}
    return [round_numbers(item) for item in value] if isinstance(value, list | tuple) else value


@functools.lru_cache(maxsize=1)
def read_plotting_library() -> str:
    """Return plotly's script, compressed and in base64: 2 MB instead of 5 MB. The browser decompresses it."""
    script = require("plotly.offline").get_plotlyjs()
    return base64.b64encode(gzip.compress(script.encode(), 9, mtime=0)).decode()


def _describe_chart(chart: Chart) -> dict[str, Any]:
    return {"kind": chart.kind, "traces": list(chart.traces), "layout": dict(chart.layout), "extra": dict(chart.extra)}


def _list_charts(page: Page) -> Iterator[Chart]:
    for section in page.sections:
        yield from (block for block in section.blocks if isinstance(block, Chart))


def _read_asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
