"""Configs whose values are constructor calls: names, arguments, types, defaults and help come from the classes themselves."""

from .calls import Call, call, nested
from .documents import decode, decode_arguments, differences, encode, flat
from .keys import Key, as_call, assign, keys
from .names import ROOMS, builders, imported, lookup, nearest, spelled
from .signatures import OWN, Parameter, parameters, summary
from .values import Kind

__all__ = [
    "OWN",
    "ROOMS",
    "Call",
    "Key",
    "Kind",
    "Parameter",
    "as_call",
    "assign",
    "builders",
    "call",
    "decode",
    "decode_arguments",
    "differences",
    "encode",
    "flat",
    "imported",
    "keys",
    "lookup",
    "nearest",
    "nested",
    "parameters",
    "spelled",
    "summary",
]
