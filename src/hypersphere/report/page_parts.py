"""The parts of a page as plain data: sections with texts, facts, tables, charts, pictures and commands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

Kind = Literal["plain", "sphere", "threshold"]
Size = Literal["third", "half", "full"]


@dataclass(frozen=True)
class Note:
    """A paragraph.

    >>> Note("Names such as <b> are text.").text
    'Names such as <b> are text.'
    """

    text: str


@dataclass(frozen=True)
class PageFacts:
    """A few numbers in large type, each with its name and a remark: ``(name, value, remark)``.

    >>> PageFacts([("EER", "4.1 %", "of 600 pairs")]).items[0][1]
    '4.1 %'
    """

    items: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Grid:
    """A table; ``numeric`` aligns all columns but the first to the right, ``folded`` hides it behind its caption.

    >>> len(Grid("Heads", ["head", "EER"], [["CosFace", "4.1 %"]], numeric=True).rows)
    1
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: bool = False
    folded: bool = False


@dataclass(frozen=True)
class Commands:
    """Lines for a terminal, with a button that copies them.

    >>> Commands("Again", ["hypersphere fit people -o run"]).lines[0]
    'hypersphere fit people -o run'
    """

    caption: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Chart:
    """A chart of plotly.

    Attributes:
        key: Its name in the page; letters, digits and hyphens.
        caption: The title of the chart.
        summary: A description with the main figure, for readers who cannot see the chart.
        traces: Traces of plotly. ``"tint": i`` gives a trace the i-th color of the page, ``"band": True`` makes it the
            area of an interval. Texts must be escaped by :func:`escape_markup`.
        layout: Changes of the page's default layout.
        kind: Interactive controls: a movable threshold, or a sphere with its classes.
        extra: Data for these controls.
        size: The share of the page's width on wide screens.

    >>> Chart("loss", "Loss", "The loss falls.", [{"type": "scatter", "x": [0, 1], "y": [2, 1], "tint": 0}]).kind
    'plain'
    """

    key: str
    caption: str
    summary: str
    traces: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any] = field(default_factory=dict)
    kind: Kind = "plain"
    extra: Mapping[str, Any] = field(default_factory=dict)
    size: Size = "half"


@dataclass(frozen=True)
class Tile:
    """One picture: the name of its sheet, its position there, its label, and the address of a recording to play.

    >>> Tile("faces", 3, "ada, 3.jpg").index
    3
    """

    sheet: str
    index: int
    label: str
    sound: str = ""


@dataclass(frozen=True)
class Pictures:
    """Groups of pictures, each with a line of text below it.

    >>> len(Pictures("Worst pairs", [([Tile("faces", 0, "ada"), Tile("faces", 1, "bob")], "12°")]).groups)
    1
    """

    caption: str
    groups: Sequence[tuple[Sequence[Tile], str]]


Block: TypeAlias = Note | PageFacts | Grid | Commands | Chart | Pictures


@dataclass(frozen=True)
class Section:
    """Blocks under a heading; ``key`` is its anchor.

    >>> Section("result", "Result", [Note("All is well.")]).key
    'result'
    """

    key: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Sheet:
    """Many small pictures in one file: a data address, the number of columns and rows, and the size of each in pixels.

    >>> sheet = Sheet("data:image/png;base64,iVBORw0KGgo=", columns=3, rows=2, width=6, height=8)
    >>> Page("Faces", "Six pictures.", [], {"faces": sheet}).sheets["faces"].columns
    3
    """

    address: str
    columns: int
    rows: int
    width: int
    height: int


@dataclass(frozen=True)
class Page:
    """A title, a line below it, sections, and the sheets of pictures that they use by name.

    >>> Page("My run", "Two sections.", [Section("a", "A", []), Section("b", "B", [])]).sections[1].title
    'B'
    """

    title: str
    subtitle: str
    sections: Sequence[Section]
    sheets: Mapping[str, Sheet] = field(default_factory=dict)


def arrange_charts(charts: Sequence[Chart]) -> list[Chart]:
    """Return charts with sizes that fill rows of two or three charts without a gap.

    >>> chart = Chart("x", "", "", [])
    >>> [c.size for c in arrange_charts([chart] * 5)]
    ['third', 'third', 'third', 'half', 'half']
    """
    count = len(charts)
    if count == 1:
        return [replace(charts[0], size="full")]
    thirds = count if count % 3 == 0 and count <= 6 else 3 if count % 2 else 0
    return [replace(chart, size="third" if i < thirds else "half") for i, chart in enumerate(charts)]


def escape_markup(text: str) -> str:
    """Return text for a chart with escaped tags, because plotly interprets tags in its labels.

    >>> escape_markup("<b>A & B</b>")
    '&lt;b&gt;A &amp; B&lt;/b&gt;'
    """
    printable = "".join(c if c.isprintable() else " " for c in text)
    return printable.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def make_key(*parts: object) -> str:
    """Return an anchor of lower-case letters, digits and hyphens for any texts and numbers.

    >>> make_key("Sphere", 2), make_key('"><x')
    ('sphere-2', 'x')
    """
    joined = "-".join(str(part) for part in parts).lower()
    return "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in joined).split())
