"""Annotations of fields in three notations: objects, keys of a JSON Schema and text of the command line."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

from ...core.arguments import checks
from .base import Annotation, Comparator, check_fraction, check_not_negative
from .leaves import casefold, exact, near, normalized, parsed, similar, within

KEYWORD = "x-tensormetrics"  # of a JSON Schema


@dataclass(frozen=True)
class weight(Annotation):
    """Weight of a field in the similarity of its object; 0: the field only appears in the table.

    Args:
        value: At least 0, by default 1 for every field.
    """

    value: float

    def __post_init__(self) -> None:
        check_not_negative("weight", self.value)


@dataclass(frozen=True)
class ignore(Annotation):
    """Annotation of a field that is not compared and has no row."""


@dataclass(frozen=True)
class ordered(Annotation):
    """Annotation of a list with items that are matched in order."""


@dataclass(frozen=True)
class match(Annotation):
    """Annotation of a list with items that are matched if their similarity reaches a threshold.

    Args:
        threshold: Smallest similarity of matched items, in [0, 1].
    """

    threshold: float

    def __post_init__(self) -> None:
        check_fraction("match", self.threshold)


@dataclass(frozen=True)
class by(Annotation):
    """Annotation of a list of objects that are matched if and only if the values of a key are equal.

    Args:
        key: Name of a field of the items.
    """

    key: str

    def __post_init__(self) -> None:
        if not isinstance(self.key, str) or not self.key:
            raise ValueError(f"by: got {self.key!r}, wanted the name of a key")


COMPARATORS: dict[str, type[Comparator]] = {
    **{cls.__name__: cls for cls in (exact, casefold, normalized, similar, near, parsed)},
    "dates": within,
}
OTHERS: dict[str, type[Annotation]] = {cls.__name__: cls for cls in (weight, ignore, ordered, match, by)}


def annotations_of_keywords(keywords: Any, path: str) -> list[Annotation]:
    """Read the value of the key `x-tensormetrics` of a JSON Schema.

    Args:
        keywords: For example ``{"compare": "similar", "threshold": 0.8, "weight": 2}``.
        path: Path of the value in the schema, for messages.

    Raises:
        ValueError: If a key or a value is unknown; the message has the path.
    """
    if not isinstance(keywords, Mapping):
        raise ValueError(f'{path}: got {keywords!r:.60}, wanted an object such as {{"compare": "similar"}}')
    rest, annotations, parameters = dict(keywords), [], []
    if "compare" in rest:
        cls = COMPARATORS[_check_name(f"{path}.compare", rest.pop("compare"), COMPARATORS)]
        parameters = _parameters(cls)
        values = {name: rest.pop(name) for name in parameters if name in rest}
        annotations.append(_make(f"{path}.", cls, **values))
    for name, value in rest.items():
        other = OTHERS[_check_name(path, name, OTHERS, ["compare", *parameters])]
        if _parameters(other):
            annotations.append(_make(f"{path}.", other, value))
        elif not isinstance(value, bool):
            raise ValueError(f"{path}.{name}: got {value!r:.60}, wanted true or false")
        elif value:
            annotations.append(other())
    return annotations


def keywords_of_annotations(annotations: Sequence[Annotation], path: str) -> dict[str, Any]:
    """Write annotations as the value of the key `x-tensormetrics`; parameters with default values are omitted.

    Raises:
        ValueError: If an annotation holds a function, which JSON cannot express.
    """
    keywords: dict[str, Any] = {}
    for annotation in annotations:
        names = [name for name, cls in {**COMPARATORS, **OTHERS}.items() if type(annotation) is cls]
        if not names:
            raise ValueError(f"{path}: got {annotation!r:.60}, which JSON cannot express; wanted a comparator by name")
        values = {field.name: getattr(annotation, field.name) for field in fields(annotation)}
        if names[0] in OTHERS:
            keywords[names[0]] = next(iter(values.values()), True)
            continue
        defaults = {field.name: field.default for field in fields(annotation)}
        changed = {name: value for name, value in values.items() if value != defaults[name]}
        keywords |= {"compare": names[0]} | {
            name: list(value) if isinstance(value, tuple) else value for name, value in changed.items()
        }
    return keywords


def annotation_of_text(text: str, source: str = "field") -> Annotation:
    """Read an annotation in the notation of the command line.

    Args:
        text: A name, or name:values, such as ``near:rel=0.01,abs=1``, ``similar:0.9``, ``by:sku``. Values are in the
            order of the parameters, or named. The formats of ``parsed`` are separated by ``|``.
        source: Name of the option, for messages.

    Raises:
        ValueError: If a name or a value is unknown.

    Example:
        >>> annotation_of_text("near:rel=0.01")
        near(rel=0.01, abs=0.0)
    """
    table = {**COMPARATORS, **OTHERS}
    name, colon, rest = text.partition(":")
    cls = table[_check_name(source, name.strip(), table)]
    parameters = {field.name: field for field in fields(cls)}
    if cls is parsed:
        return _make(f"{source}: ", parsed, rest.removeprefix("formats=").split("|") if colon else ())
    values: dict[str, Any] = {}
    for position, part in enumerate(rest.split(",") if colon else ()):
        parameter, equals, value = part.partition("=")
        if not equals:
            if position >= len(parameters):
                expected = f"at most {len(parameters)}" if parameters else "none"
                raise ValueError(f"{source}: got {position + 1} values in {text!r}, wanted {expected}")
            parameter, value = list(parameters)[position], part
        parameter = _check_name(source, parameter.strip(), parameters)
        values[parameter] = value.strip() if parameters[parameter].type in (str, "str") else _number(source, value)
    if missing := [n for n, field in parameters.items() if field.default is MISSING and n not in values]:
        raise ValueError(f"{source}: got {text!r}, wanted a value; write {name}:{missing[0].upper()}")
    return _make(f"{source}: ", cls, **values)


def _parameters(cls: type[Annotation]) -> list[str]:
    return [field.name for field in fields(cls)]


def _make(prefix: str, make: Callable[..., Annotation], *args: Any, **kwargs: Any) -> Annotation:
    try:
        return make(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{prefix}{error}") from error


def _check_name(path: str, name: Any, known_names: Collection[str], more: Collection[str] = ()) -> str:
    """Return a name if it is in a table; else raise a ValueError with the closest one."""
    if isinstance(name, str) and name in known_names:
        return name
    names = [*known_names, *more]
    raise ValueError(f"{path}: got {name!r:.60}, wanted one of {', '.join(names)}{checks.perhaps(name, names)}")


def _number(path: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{path}: got {text!r}, wanted a number") from None
