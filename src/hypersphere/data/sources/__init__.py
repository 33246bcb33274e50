"""Where pictures come from: folders, tables, tar shards, arrays, saved datasets and torch datasets, behind one interface."""

from .array_source import ArraySource, read_arrays
from .dataset_source import DatasetSource
from .folder_source import FolderSource
from .hub_source import HubSource
from .opening import open_source
from .shard_source import ShardSource
from .source import Record, Source
from .source_dataset import SourceDataset
from .table_source import TableSource

__all__ = [
    "ArraySource",
    "DatasetSource",
    "FolderSource",
    "HubSource",
    "Record",
    "ShardSource",
    "Source",
    "SourceDataset",
    "TableSource",
    "open_source",
    "read_arrays",
]
