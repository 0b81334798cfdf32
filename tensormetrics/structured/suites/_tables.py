"""Integer tables of the objects of all documents, concatenated."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from ..objects.columns import check_type


def items_of(inputs: Sequence[Any], attribute: str, item_type: type, name: str) -> list[list[Any]]:
    """Return the items of each document, read from `attribute` or the document itself.

    An item of another type is a TypeError with its position; `name` is the argument.
    """
    documents = [getattr(document, attribute, document) for document in inputs]
    for index, document in enumerate(documents):
        if not isinstance(document, Iterable):
            raise TypeError(f"{name}[{index}]: got {document!r:.60}, wanted a collection of {item_type.__name__}s")
    documents = list(map(list, documents))
    for index, items in enumerate(documents):
        check_type(item_type, items, f"{name}[{index}].{attribute}[{{}}]".format)
    return documents


def numbered_rows(
    owners: Sequence[Sequence[Any]], read: Callable[[Sequence[Any]], Sequence[Sequence[int]]], where: str
) -> Tensor:
    # ->  (T, C) int64
    """Read the items of all documents.

    An item that `read` rejects is a TypeError with its position, formatted by `where`.
    """
    try:
        return rows(read(list(chain.from_iterable(owners))))
    except (AttributeError, TypeError, ValueError, RuntimeError):
        for document, items in enumerate(owners):
            for position, item in enumerate(items):
                try:
                    rows(read([item]))
                except (AttributeError, TypeError, ValueError, RuntimeError) as error:
                    raise TypeError(f"{where.format(document, position)}: got {item!r:.120}: {error}") from error
        raise


def check_tensors(rows: str, lists: str, **tensors: Any) -> None:
    """Raise a TypeError that names the first argument that is no tensor, beside what tensors and lists hold."""
    for name, x in tensors.items():
        if not isinstance(x, Tensor):
            raise TypeError(
                f"{name}: got a {type(x).__name__}, wanted a tensor of {rows}, or lists of {lists} as both arguments"
            )


def rows(columns: Sequence[Sequence[int]]) -> Tensor:
    # C columns of all documents  ->  (T, C) int64
    return torch.tensor(columns, dtype=torch.int64, device="cpu").mT


def sizes(collections: Iterable[Sequence[Any]]) -> Tensor:
    # D collections  ->  (D,) int64
    return torch.tensor(list(map(len, collections)), dtype=torch.int64, device="cpu")
