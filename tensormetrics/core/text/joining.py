"""Two files that are joined by id or by position: what both hold beside their answers has to be equal."""

from collections.abc import Callable, Hashable, Sequence
from os import PathLike
from typing import Any, NamedTuple


class Item(NamedTuple):
    """Answer or reference of a file, with what tells the item apart."""

    value: Any
    lines: Sequence[int]  # of `beside`; the first is that of the item
    beside: Sequence[str] = ()  # tokens or texts that are no part of the answer, "" if unknown
    id: Hashable = None


def join(
    file: str, items: Sequence[Item], reference: str, references: Sequence[Item], unit: str, is_partial: bool = False
) -> list[Any]:
    """Return the answer to each reference, by id where all items have one, else by position.

    Args:
        file: Path of the answers.
        items: The answers.
        reference: Path of the references.
        references: The references.
        unit: Name of an item, for messages.
        is_partial: The answer to a reference whose id has none is None, no error.

    Raises:
        ValueError: If the files hold different items; it names the first difference and its lines.
    """
    if all(item.id is not None for item in (*items, *references)):
        items = _by_id(file, items, reference, references, is_partial)
    for item, ref in zip(items, references, strict=False):
        if item.beside == ref.beside:  # fast
            continue
        places = zip(item.lines, item.beside, ref.lines, ref.beside, strict=False)
        for line, got, other, wanted in places:
            if got and wanted and got != wanted:
                raise ValueError(f"{file}, line {line}: got {got!r}, but {reference}, line {other} has {wanted!r}")
        if item.beside and ref.beside and len(item.beside) != len(ref.beside):
            got, wanted = f"got {len(item.beside)} tokens", f"line {ref.lines[0]} has {len(ref.beside)}"
            raise ValueError(f"{file}, line {item.lines[0]}: {got}, but {reference}, {wanted}")
    if len(items) != len(references):
        raise ValueError(f"{file}: number of {unit}s is {len(items)}, but that of {reference} is {len(references)}")
    return [item.value for item in items]


def _by_id(
    file: str, items: Sequence[Item], reference: str, references: Sequence[Item], is_partial: bool
) -> list[Item]:
    answers, known = _distinct(file, items), _distinct(reference, references)
    sides = [(file, answers, reference, known), (reference, known, file, answers)]
    for name, own, other, others in sides[: 1 if is_partial else 2]:
        if item := next((item for id, item in own.items() if id not in others), None):
            raise ValueError(f"{name}, line {item.lines[0]}: got the id {item.id!r}, which {other} does not have")
    return [answers.get(str(ref.id), Item(None, ())) for ref in references]


def _distinct(file: str, items: Sequence[Item]) -> dict[str, Item]:
    by_id: dict[str, Item] = {}  # ids are texts in one file, numbers in another
    for item in items:
        first = by_id.setdefault(str(item.id), item)
        if first is not item:
            raise ValueError(
                f"{file}, line {item.lines[0]}: got the id {item.id!r} again, that of line {first.lines[0]}"
            )
    return by_id


def join_paths(preds: Any, refs: Any, read: Callable[[Any], Sequence[Item]], unit: str) -> tuple[Any, Any]:
    """Return the joined answers and the references of two files; return other arguments as they are."""
    if not (isinstance(preds, str | PathLike) and isinstance(refs, str | PathLike)):
        return preds, refs
    answers, references = read(preds), read(refs)
    return join(str(preds), answers, str(refs), references, unit), [item.value for item in references]
