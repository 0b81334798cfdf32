"""Marks that describe a score to functions that take scores as arguments, and scores of chunks of a batch."""

import functools
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from .word_sets import WordSet

CHUNK = 2**20  # numbers of elements that fit in the caches of a CPU
Score = TypeVar("Score", bound=Callable[..., Any])


def grouped(*names: str) -> Callable[[Score], Score]:
    """Mark a score whose sets of these names are (..., G, W, D), for functions that take scores as arguments."""

    def mark(score: Score) -> Score:
        vars(score)["grouped"] = names
        return score

    return mark


def tuples(*names: str) -> Callable[[Score], Score]:
    """Mark a score whose sets of these names are aligned by position, so that their words are drawn as tuples."""

    def mark(score: Score) -> Score:
        vars(score)["tuples"] = names
        return score

    return mark


def biased(*names: str, where: Callable[[dict[str, Any]], bool]) -> Callable[[Score], Score]:
    """Mark a score whose mean depends on the sizes of these sets if `where` is true for its options."""

    def mark(score: Score) -> Score:
        vars(score)["biased"] = names, where
        return score

    return mark


def lean(score: Score) -> Score:
    """Mark a score that needs memory for only one vector and the words of a query per replicate."""
    vars(score)["lean"] = True
    return score


def without_words(arg: Any) -> Any:
    """Return a set in which each row is a word; return other arguments unchanged."""
    return arg._replace(words=None) if isinstance(arg, WordSet) else arg


def by_row(score: Score) -> Score:
    """Return the score of sets in which each row is a word."""
    function = getattr(score, "func", score)  # the function of a partial has the marks

    @functools.wraps(function)
    def scored(*sets: Any, **options: Any) -> Any:
        return function(*map(without_words, sets), **options)

    vars(scored)["counts_rows"] = True
    options = getattr(score, "keywords", {})
    return cast(Score, functools.partial(scored, **options) if options else scored)


def effect_size_of_sets(first: str, second: str) -> Callable[[Score], Score]:
    """Mark a score that is a difference of means of these sets in standard deviations of their union.

    It is their correlation with set membership times a factor that depends only on the sizes.
    """

    def mark(score: Score) -> Score:
        vars(score)["contrast"] = first, second
        return score

    return mark


def in_chunks(score: Score) -> Score:
    """Compute large batches on a CPU in chunks that fit in its caches, for a score that reads its vectors repeatedly.

    For scores of sets (..., W, D) with masks (..., W). Batches whose leading dimensions broadcast are not divided.
    """

    @functools.wraps(score)
    def chunked(*sets: Any) -> tuple[Tensor, ...]:
        if isinstance(sets[0], Tensor) and sets[0].ndim < 3:
            return score(*sets)
        tensors = [t for s in sets for t in _tensors(s)]
        size = sum(t.numel() for t in tensors)
        batch_shape = tensors[0].shape[:-2] if size > CHUNK else ()
        if not batch_shape or not all(_has_batch_shape(batch_shape, t) and t.device.type == "cpu" for t in tensors):
            return score(*sets)
        chunk_size = max(1, CHUNK * batch_shape[0] // size)
        results = [score(*chunk) for chunk in zip(*(_split(s, chunk_size) for s in sets), strict=False)]
        return tuple(map(torch.cat, zip(*results, strict=True)))

    return cast(Score, chunked)


def _tensors(arg: Any) -> list[Tensor]:
    return [t for t in (arg if isinstance(arg, WordSet) else [arg]) if isinstance(t, Tensor)]


def _split(arg: Any, size: int) -> Iterator[Any]:
    if isinstance(arg, WordSet):
        return map(WordSet, *(_split(field, size) for field in arg))
    return iter(arg.split(size)) if isinstance(arg, Tensor) else repeat(arg)


def _has_batch_shape(batch_shape: torch.Size, tensor: Tensor) -> bool:
    # a set has two more dimensions, a mask one more
    return tensor.shape[: -1 - tensor.is_floating_point()] == batch_shape
