"""What a score says of itself to those who take scores as arguments, and scores of pieces of a batch."""

import functools
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from .word_sets import WordSet

PIECE = 2**20  # numbers that the caches of a CPU hold
Score = TypeVar("Score", bound=Callable[..., Any])


def grouped(*names: str) -> Callable[[Score], Score]:
    """Mark a score whose sets of these names are (..., G, W, D), for those who take scores as arguments."""

    def mark(score: Score) -> Score:
        vars(score)["grouped"] = names
        return score

    return mark


def tuples(*names: str) -> Callable[[Score], Score]:
    """Mark a score whose sets of these names are aligned by position: their words are drawn together, as tuples."""

    def mark(score: Score) -> Score:
        vars(score)["tuples"] = names
        return score

    return mark


def biased(*names: str, where: Callable[[dict[str, Any]], bool]) -> Callable[[Score], Score]:
    """Mark a score whose mean depends on the sizes of these sets, by options for which `where` holds."""

    def mark(score: Score) -> Score:
        vars(score)["biased"] = names, where
        return score

    return mark


def lean(score: Score) -> Score:
    """Mark a score that holds no more than a vector and the words of a query for each count of these words."""
    vars(score)["lean"] = True
    return score


def without_words(given: Any) -> Any:
    """A set whose rows are words of their own; anything else as it is."""
    return given._replace(words=None) if isinstance(given, WordSet) else given


def by_row(score: Score) -> Score:
    """The score of sets whose rows are words of their own."""
    own = getattr(score, "func", score)  # of a partial, whose function has the marks

    @functools.wraps(own)
    def scored(*sets: Any, **options: Any) -> Any:
        return own(*map(without_words, sets), **options)

    vars(scored)["counts_rows"] = True
    options = getattr(score, "keywords", {})
    return cast(Score, functools.partial(scored, **options) if options else scored)


def contrast_of_sets(first: str, second: str) -> Callable[[Score], Score]:
    """Mark a score that is a difference of means of these sets in standard deviations of both together.

    It is their correlation with the set times a number that depends on the sizes alone.
    """

    def mark(score: Score) -> Score:
        vars(score)["contrast"] = first, second
        return score

    return mark


def in_pieces(score: Score) -> Score:
    """On a CPU, large batches in pieces that its caches hold, for a score that reads its vectors again and again.

    For scores of sets (..., W, D) with masks (..., W), computed as a whole where leading dimensions broadcast.
    """

    @functools.wraps(score)
    def pieces(*sets: Any) -> tuple[Tensor, ...]:
        if isinstance(sets[0], Tensor) and sets[0].ndim < 3:
            return score(*sets)
        tensors = [t for s in sets for t in _tensors(s)]
        numbers = sum(t.numel() for t in tensors)
        lead = tensors[0].shape[:-2] if numbers > PIECE else ()
        if not lead or not all(_leads(lead, t) and t.device.type == "cpu" for t in tensors):
            return score(*sets)
        size = max(1, PIECE * lead[0] // numbers)
        parts = [score(*piece) for piece in zip(*(_split(s, size) for s in sets), strict=False)]
        return tuple(map(torch.cat, zip(*parts, strict=True)))

    return cast(Score, pieces)


def _tensors(given: Any) -> list[Tensor]:
    return [t for t in (given if isinstance(given, WordSet) else [given]) if isinstance(t, Tensor)]


def _split(given: Any, size: int) -> Iterator[Any]:
    if isinstance(given, WordSet):
        return map(WordSet, *(_split(field, size) for field in given))
    return iter(given.split(size)) if isinstance(given, Tensor) else repeat(given)


def _leads(lead: torch.Size, tensor: Tensor) -> bool:
    # a set has two dimensions more, a mask one
    return tensor.shape[: -1 - tensor.is_floating_point()] == lead
