"""Records: the components of the values of a type, their types, and their readers.

Records are dataclasses, NamedTuples, TypedDicts, tuples of fixed length, and classes of attrs, msgspec and pydantic,
which are recognized by their attributes, without an import; type variables may be bound, as in Box[int].
"""

import collections
import copy
import dataclasses
import inspect
import sys
import types as python_types
import typing
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from functools import cache, partial
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, Literal, NamedTuple

import typing_extensions  # also supports its backports; a dependency of torch

QUALIFIERS = typing_extensions.Required, typing_extensions.NotRequired, typing_extensions.ReadOnly
SETS = set, frozenset, abc.Set, abc.MutableSet
ARRAYS = list, tuple, collections.deque, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable
MAPPINGS = dict, collections.defaultdict, collections.OrderedDict, abc.Mapping, abc.MutableMapping

Kind = Literal["annotated", "union", "record", "counter", "mapping", "items", "scalar"]


class UnknownName(TypeError):
    """Error of a name in an annotation that is not defined, or not yet."""


def class_of(tp: Any) -> Any:
    """Return the class of a type: Box for Box[int], other types unchanged."""
    return typing.get_origin(tp) or tp


def is_tuple(tp: Any) -> bool:
    return typing.get_origin(tp) is tuple


def is_record(tp: Any) -> bool:
    """Return whether the values of a type have a fixed number of components."""
    return Ellipsis not in typing.get_args(tp) if is_tuple(tp) else record_fields(class_of(tp)) is not None


def kind_of(tp: Any) -> Kind:
    """Return the kind of a type without aliases: the method of `derive` and of `evaluate` that builds its node."""
    origin = class_of(tp)
    if origin is typing.Annotated:
        return "annotated"
    if origin in (typing.Union, python_types.UnionType):
        return "union"
    if is_record(tp):
        return "record"
    if origin is collections.Counter:
        return "counter"
    if origin in MAPPINGS:
        return "mapping"
    return "items" if origin in (*ARRAYS, *SETS) else "scalar"


def field_names(tp: Any, all_of_them: bool = False) -> list[str]:
    """Return the names of the fields that take part in comparisons, or of all fields."""
    fields = record_fields(class_of(tp))
    assert fields is not None  # it is a record
    return [field.name for field in fields if field.is_compared or all_of_them]


class RecordField(NamedTuple):
    """Field of a record class.

    Attributes:
        name: Name of the attribute, or key of a TypedDict.
        key: Key in JSON: the alias if the class has one.
        is_compared: Whether the field takes part in comparisons of instances.
        has_default: Whether the field may be missing.
        default: Function that returns the value of a missing field, None if there is no value.
    """

    name: str
    key: str
    is_compared: bool = True
    has_default: bool = False
    default: Callable[[], Any] | None = None


def record_fields(tp: Any) -> list[RecordField] | None:
    """Return the fields of a class, or None if it is no record."""
    if not isinstance(tp, type):
        return None
    cls: Any = tp  # its attributes depend on its kind
    if isinstance(fields := getattr(cls, "__pydantic_fields__", None), dict):
        compared = (
            {field.name: field.compare for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
        )
        return [_pydantic_field(name, info, compared.get(name, True)) for name, info in fields.items()]
    if dataclasses.is_dataclass(cls):
        return [_dataclass_field(field) for field in dataclasses.fields(cls)]
    if typing_extensions.is_typeddict(cls):
        return [RecordField(name, name, has_default=name not in cls.__required_keys__) for name in cls.__annotations__]
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return [_field(name, cls._field_defaults.get(name, MISSING)) for name in cls._fields]
    if hasattr(cls, "__attrs_attrs__"):
        return [_attrs_field(attribute) for attribute in cls.__attrs_attrs__]
    if hasattr(cls, "__struct_fields__"):
        return _msgspec_fields(cls)
    return None


def _field(name: str, default: Any, key: str | None = None, is_compared: bool = True) -> RecordField:
    has_default = default is not MISSING
    return RecordField(
        name, key or name, is_compared, has_default, partial(copy.deepcopy, default) if has_default else None
    )


def _dataclass_field(field: Any) -> RecordField:
    if field.default_factory is MISSING:
        return _field(field.name, field.default, is_compared=bool(field.compare))
    return RecordField(field.name, field.name, bool(field.compare), True, field.default_factory)


def _pydantic_field(name: str, info: Any, is_compared: bool) -> RecordField:
    key = info.validation_alias if isinstance(info.validation_alias, str) else info.alias or name
    default = None if info.is_required() else partial(info.get_default, call_default_factory=True)
    return RecordField(name, key, bool(is_compared), default is not None, default)


def _attrs_field(attribute: Any) -> RecordField:
    factory = getattr(attribute.default, "factory", None)
    if factory is None:
        default = MISSING if type(attribute.default).__name__ == "_Nothing" else attribute.default
        return _field(attribute.name, default, is_compared=bool(attribute.eq))
    takes_self = attribute.default.takes_self
    return RecordField(attribute.name, attribute.name, bool(attribute.eq), True, None if takes_self else factory)


def _msgspec_fields(cls: Any) -> list[RecordField]:
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    required = len(names) - len(defaults)  # required fields come first
    values = [MISSING] * required + [
        MISSING if type(default).__name__ == "NoDefaultType" else default for default in defaults
    ]
    fields = []
    for name, key, value in zip(names, cls.__struct_encode_fields__, values, strict=True):
        factory = getattr(value, "factory", None) if type(value).__module__.startswith("msgspec") else None
        fields.append(RecordField(name, key, True, True, factory) if factory else _field(name, value, key))
    return fields


def forbids_extra(cls: Any) -> bool:
    """Return whether a class forbids unknown keys."""
    pydantic = getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None) or {}
    struct = getattr(cls, "__struct_config__", None)
    return pydantic.get("extra") == "forbid" or bool(struct and struct.forbid_unknown_fields)


def record_values(value: Any) -> dict[str, Any] | None:
    """Return the values of an instance of a record class by their keys in JSON, or None for anything else."""
    cls: Any = type(value)
    fields = _instance_fields(cls)
    return None if fields is None else {key: getattr(value, name) for name, key in fields if hasattr(value, name)}


@cache
def _instance_fields(cls: Any) -> list[tuple[str, str]] | None:
    fields = record_fields(cls)
    return None if fields is None else [(field.name, field.key) for field in fields]


def reader(tp: Any, name: str) -> Callable[[Any], Any]:
    """Return the reader of a field; an optional missing key of a TypedDict is None."""
    cls = class_of(tp)
    if not typing_extensions.is_typeddict(cls):
        return attrgetter(name)
    return itemgetter(name) if name in cls.__required_keys__ else methodcaller("get", name)


def field_types(tp: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the type of each field, with `names` in scope; raise a NameError for other names."""
    cls = class_of(tp)
    if isinstance(fields := getattr(cls, "__pydantic_fields__", None), dict) and not dataclasses.is_dataclass(cls):
        return {
            name: typing.Annotated[parts] if parts[1:] else parts[0]
            for name, info in fields.items()
            for parts in [(info.annotation, *info.metadata)]
        }
    hints = typing_extensions.get_type_hints(cls, dict(names), dict(names), include_extras=True)
    bindings = variables(tp)
    if any(bindings.values()):
        for base in reversed(cls.__mro__):
            hints |= {name: bound(hints[name], bindings.get(base, {})) for name in inspect.get_annotations(base)}
    for name in hints:
        while typing.get_origin(hints[name]) in QUALIFIERS:
            (hints[name],) = typing.get_args(hints[name])
    if typing_extensions.is_typeddict(cls):
        hints |= {name: typing.Optional[hints[name]] for name in cls.__optional_keys__}  # noqa: UP045
    return hints


def resolved_types(tp: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the type of each field, with the names of the module of the class and `names` in scope.

    Raises:
        UnknownName: If an annotation has another name; the message names the field.
    """
    cls = class_of(tp)
    module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    try:
        return field_types(tp, {**module, **names, cls.__name__: cls})
    except NameError as error:
        name = next((name for name, hint in cls.__annotations__.items() if str(error.name) in str(hint)), "?")
        raise UnknownName(
            f"{cls.__name__}.{name}: the name {error.name!r} is unknown; define it, or give it as localns"
        ) from error


def resolve_alias(tp: Any) -> Any:
    """Return the type that a NewType or a type alias denotes."""
    while isinstance(tp, typing.NewType) or type(tp).__name__ == "TypeAliasType":
        target: Any = tp.__supertype__ if isinstance(tp, typing.NewType) else tp.__value__
        tp = target
    return tp


def variables(tp: Any) -> dict[Any, dict[Any, Any]]:
    """Return the bindings of type variables by class, for a type and its base classes."""
    cls = class_of(tp)
    substitutions = dict(zip(getattr(cls, "__parameters__", ()), typing.get_args(tp), strict=False))
    bindings = {cls: substitutions}
    for base in vars(cls).get("__orig_bases__", ()):
        if class_of(base) not in (typing.Generic, typing.Protocol):
            bindings |= variables(bound(base, substitutions))
    for base in getattr(cls, "__bases__", ()):
        if base is not object and base not in bindings:
            bindings |= variables(base)
    return bindings


def bound(hint: Any, substitutions: Mapping[Any, Any]) -> Any:
    """Substitute the type variables of a type."""
    if isinstance(hint, typing.TypeVar):
        return substitutions.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ()) if not isinstance(hint, type) or typing.get_origin(hint) else ()
    return hint[tuple(substitutions.get(parameter, parameter) for parameter in parameters)] if parameters else hint
