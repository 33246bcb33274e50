"""Pages about runs, evaluations and checkpoints: one HTML file each, with interactive charts and nothing to load."""

from ._render import render, save
from .label_review import write_label_review
from .page_parts import Chart, Commands, Grid, Note, Page, PageFacts, Pictures, Section, Sheet, Tile
from .pages import ReportPage, write_energy, write_evaluation, write_page
from .runs import RunRecord, read_runs

__all__ = [
    "Chart",
    "Commands",
    "Grid",
    "Note",
    "Page",
    "PageFacts",
    "Pictures",
    "ReportPage",
    "RunRecord",
    "Section",
    "Sheet",
    "Tile",
    "read_runs",
    "render",
    "save",
    "write_energy",
    "write_evaluation",
    "write_label_review",
    "write_page",
]
