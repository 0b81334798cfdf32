"""Marks that describe a score to functions that take scores as arguments, and scores of chunks of a batch."""

import functools
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from ...core.arguments.checks import takes_arrays
from .word_sets import WordSet

CHUNK = 2**20  # numbers of elements that fit in the caches of a CPU
Score = TypeVar("Score", bound=Callable[..., Any])


def score(**marks: Any) -> Callable[[Score], Score]:
    """Make a function of sets take arrays too, and mark it for functions that take scores as arguments.

    Args:
        **marks: `grouped`: names of sets that are (..., G, W, D). `tuples`: names of sets aligned by position, so that
            their words are drawn as tuples. `contrast`: two sets whose difference of means the score is, in standard
            deviations of their union; that is their correlation with set membership times a factor that depends only
            on the sizes. `biased`: two sets on whose sizes the mean of the score depends, and a function that says
            whether it does by the options. `range`: the smallest and the largest possible score, or, where the score
            is a sum over the words of the two sets `range_per_word`, those of each word. `lean`: it needs memory for
            only one vector and the words of a query per replicate.
    """

    def mark(function: Score) -> Score:
        marked = cast(Score, takes_arrays(function))
        vars(marked).update(marks)
        return marked

    return mark


def without_words(arg: Any) -> Any:
    """Return a set in which each row is a word; return other arguments unchanged."""
    return arg._replace(words=None) if isinstance(arg, WordSet) else arg


def by_row(function: Score) -> Score:
    """Return the score of sets in which each row is a word."""
    score = getattr(function, "func", function)  # the function of a partial has the marks

    @functools.wraps(score)
    def scored(*sets: Any, **options: Any) -> Any:
        return score(*map(without_words, sets), **options)

    vars(scored)["counts_rows"] = True
    options = getattr(function, "keywords", {})
    return cast(Score, functools.partial(scored, **options) if options else scored)


def in_chunks(function: Score) -> Score:
    """Compute large batches on a CPU in chunks that fit in its caches, for a score that reads its vectors repeatedly.

    For scores of sets (..., W, D) with masks (..., W). Batches whose leading dimensions broadcast are not divided.
    """

    @functools.wraps(function)
    def chunked(*sets: Any) -> tuple[Tensor, ...]:
        if isinstance(sets[0], Tensor) and sets[0].ndim < 3:
            return function(*sets)
        fields = [field for s in sets for field in (s if isinstance(s, WordSet) else [s])]
        tensors = [field for field in fields if isinstance(field, Tensor)]
        size = sum(t.numel() for t in tensors)
        batch_shape = tensors[0].shape[:-2] if size > CHUNK else ()
        # a set has two more dimensions, a mask one more
        equal = all(t.shape[: -1 - t.is_floating_point()] == batch_shape and t.device.type == "cpu" for t in tensors)
        if not batch_shape or not equal:
            return function(*sets)
        chunk_size = max(1, CHUNK * batch_shape[0] // size)
        results = [function(*chunk) for chunk in zip(*(_split(s, chunk_size) for s in sets), strict=False)]
        return tuple(map(torch.cat, zip(*results, strict=True)))

    return cast(Score, chunked)


def _split(arg: Any, size: int) -> Iterator[Any]:
    if isinstance(arg, WordSet):
        return map(WordSet, *(_split(field, size) for field in arg))
    return iter(arg.split(size)) if isinstance(arg, Tensor) else repeat(arg)
