"""Records: what components values of a type have, of what types these are, how they are read.

Dataclasses, NamedTuples, TypedDicts, tuples of fixed length, and classes of attrs, msgspec and pydantic, which are
known by what they carry, without an import; with type variables that stand for something, as in Box[int].
"""

import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from operator import attrgetter, itemgetter, methodcaller
from typing import Any

import typing_extensions  # knows its own kinds too; torch brings it

QUALIFIERS = typing_extensions.Required, typing_extensions.NotRequired, typing_extensions.ReadOnly
field, position = cache(attrgetter), cache(itemgetter)  # one object for each, by which a column is known
optional = cache(partial(methodcaller, "get"))


class UnknownName(TypeError):
    """A name in an annotation that is not defined, or not yet."""


def class_of(tp: Any) -> Any:
    """Box of Box[int]; another type itself."""
    return typing.get_origin(tp) or tp


def is_tuple(tp: Any) -> bool:
    return typing.get_origin(tp) is tuple


def is_record(tp: Any) -> bool:
    """Whether values are products of a fixed number of components."""
    return Ellipsis not in typing.get_args(tp) if is_tuple(tp) else _fields(class_of(tp)) is not None


def field_names(tp: Any, all_of_them: bool = False) -> list[str]:
    """The fields of a class that take part in its comparisons, or all of them."""
    fields = _fields(class_of(tp))
    assert fields is not None  # it is a record
    return [name for name, compared in fields.items() if compared or all_of_them]


def _fields(cls: Any) -> dict[str, bool] | None:
    """Name -> whether it takes part in comparisons; None for what is no record."""
    if not isinstance(cls, type):
        return None
    if dataclasses.is_dataclass(cls):
        return {f.name: bool(f.compare) for f in dataclasses.fields(cls)}
    if typing_extensions.is_typeddict(cls):
        return dict.fromkeys(cls.__annotations__, True)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return dict.fromkeys(cls._fields, True)
    if hasattr(cls, "__attrs_attrs__"):
        return {attribute.name: bool(attribute.eq) for attribute in cls.__attrs_attrs__}
    if hasattr(cls, "__struct_fields__"):  # msgspec
        return dict.fromkeys(cls.__struct_fields__, True)
    if isinstance(fields := getattr(cls, "__pydantic_fields__", None), dict):
        return dict.fromkeys(fields, True)
    return None


def reader(tp: Any, name: str) -> Callable[[Any], Any]:
    """How to read a field; a key that a TypedDict may lack is None."""
    cls = class_of(tp)
    if not typing_extensions.is_typeddict(cls):
        return field(name)
    return position(name) if name in cls.__required_keys__ else optional(name)


def field_types(tp: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """The type of each field, where `names` are in sight; NameError for one that is not."""
    cls = class_of(tp)
    if isinstance(fields := getattr(cls, "__pydantic_fields__", None), dict) and not dataclasses.is_dataclass(cls):
        return {name: _annotated(info.annotation, info.metadata) for name, info in fields.items()}
    hints = typing_extensions.get_type_hints(cls, dict(names), dict(names), include_extras=True)
    known = variables(tp)
    if any(known.values()):
        for base in reversed(cls.__mro__):
            hints |= {name: bound(hints[name], known.get(base, {})) for name in inspect.get_annotations(base)}
    for name in hints:
        while typing.get_origin(hints[name]) in QUALIFIERS:
            (hints[name],) = typing.get_args(hints[name])
    if typing_extensions.is_typeddict(cls):
        hints |= {name: typing.Optional[hints[name]] for name in cls.__optional_keys__}  # noqa: UP045
    return hints


def resolved_types(tp: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the type of each field, with the names of the module of a class and those given in scope.

    Raises:
        UnknownName: If an annotation has another name; the message has the field.
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


def plain(tp: Any) -> Any:
    """Return the type that a NewType or an alias stands for."""
    while isinstance(tp, typing.NewType) or type(tp).__name__ == "TypeAliasType":
        tp = tp.__supertype__ if isinstance(tp, typing.NewType) else tp.__value__
    return tp


def _annotated(hint: Any, extras: Sequence[Any]) -> Any:
    for extra in extras:
        hint = typing.Annotated[hint, extra]
    return hint


def variables(tp: Any) -> dict[Any, dict[Any, Any]]:
    """Class -> type variable -> what it stands for, of a type and of the classes that it derives from."""
    cls = class_of(tp)
    known = dict(zip(getattr(cls, "__parameters__", ()), typing.get_args(tp), strict=False))
    found = {cls: known}
    for base in vars(cls).get("__orig_bases__", ()):
        if class_of(base) not in (typing.Generic, typing.Protocol):
            found |= variables(bound(base, known))
    for base in getattr(cls, "__bases__", ()):
        if base is not object and base not in found:
            found |= variables(base)
    return found


def bound(hint: Any, known: Mapping[Any, Any]) -> Any:
    """A type with its variables replaced by what they stand for."""
    if isinstance(hint, typing.TypeVar):
        return known.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ()) if not isinstance(hint, type) or typing.get_origin(hint) else ()
    return hint[tuple(known.get(parameter, parameter) for parameter in parameters)] if parameters else hint
