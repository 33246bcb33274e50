"""Settings as constructor calls. Names, arguments, types, defaults and help texts come from the classes themselves."""

from .allow_list import CONSTRUCTIBLE, list_constructible
from .calls import Call, Key, as_call, assign, call, keys
from .documents import decode, decode_arguments, encode, flatten, list_differences, remove_locations
from .names import find_builders, import_target, list_packages, look_up, spell_target, suggest
from .signatures import OWN, Kind, Parameter, parameters, summary

__all__ = [
    "CONSTRUCTIBLE",
    "OWN",
    "Call",
    "Key",
    "Kind",
    "Parameter",
    "as_call",
    "assign",
    "call",
    "decode",
    "decode_arguments",
    "encode",
    "find_builders",
    "flatten",
    "import_target",
    "keys",
    "list_constructible",
    "list_differences",
    "list_packages",
    "look_up",
    "parameters",
    "remove_locations",
    "spell_target",
    "suggest",
    "summary",
]
