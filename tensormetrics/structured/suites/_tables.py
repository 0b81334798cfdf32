"""Objects as tables of numbers, those of one document after those of another."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from ..objects.values.columns import check_type


def items_of(side: Sequence[Any], attribute: str, wanted: type, name: str) -> tuple[list[list[Any]], list[Any]]:
    """The items of each document, which has them as `attribute` or consists of them, and of all together.

    TypeError with the place of one that is no `wanted`; `name` is that of the side.
    """
    documents = [getattr(document, attribute, document) for document in side]
    for number, document in enumerate(documents):
        if not isinstance(document, Iterable):
            raise TypeError(f"{name}[{number}]: got {document!r:.60}, wanted a collection of {wanted.__name__}s")
    documents = list(map(list, documents))
    for number, items in enumerate(documents):

        def where(row: int, number: int = number) -> str:
            return f"{name}[{number}].{attribute}[{row}]"

        check_type(wanted, items, where)
    return documents, list(chain.from_iterable(documents))


def numbered_rows(
    owners: Sequence[Sequence[Any]], read: Callable[[Sequence[Any]], Sequence[Sequence[int]]], where: str
) -> Tensor:
    # ->  (T, C) int64
    """What `read` makes of the items of all documents; TypeError with the place of one that it cannot read, which
    `where` has two gaps for."""
    try:
        return rows(read(list(chain.from_iterable(owners))))
    except (AttributeError, TypeError, ValueError, RuntimeError):
        for document, items in enumerate(owners):
            for place, item in enumerate(items):
                try:
                    rows(read([item]))
                except (AttributeError, TypeError, ValueError, RuntimeError) as error:
                    raise TypeError(f"{where.format(document, place)}: got {item!r:.120}: {error}") from error
        raise


def rows(columns: Sequence[Sequence[int]]) -> Tensor:
    # C columns of all documents  ->  (T, C) int64
    return torch.tensor(columns, dtype=torch.int64, device="cpu").mT


def sizes(collections: Iterable[Sequence[Any]]) -> Tensor:
    # D collections  ->  (D,) int64
    return torch.tensor(list(map(len, collections)), dtype=torch.int64, device="cpu")
