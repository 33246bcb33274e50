"""Labeled samples in any format: folders, tables, tar shards, arrays, saved datasets and torch datasets, behind one interface."""

from .array_source import ArraySource, DatasetSource, read_arrays
from .folder_source import FileSource, FolderSource
from .hub_source import HubSource
from .registry import CombinedSource, open_source, source_formats
from .shard_source import ShardSource
from .source import Record, Source, SourceDataset
from .table_source import TableSource

__all__ = [
    "ArraySource",
    "CombinedSource",
    "DatasetSource",
    "FileSource",
    "FolderSource",
    "HubSource",
    "Record",
    "ShardSource",
    "Source",
    "SourceDataset",
    "TableSource",
    "open_source",
    "read_arrays",
    "source_formats",
]
