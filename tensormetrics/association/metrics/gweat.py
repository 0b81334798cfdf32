"""The Generalized Word Embedding Association Test."""

from collections.abc import Callable
from typing import Any, Literal, TypedDict, overload

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ... import _checks
from ..._checks import takes_arrays
from ..embeddings.query import IndexedQuery, Query
from ..resampling.null_distribution import Alternative, NullDistribution
from ..resampling.random import random_words, stream
from ..sets import word_sets
from ..sets.word_ids import check_words, count_words, joined_words, word_places
from ._call import check_groups
from .base import BaseMetric


class Masks(TypedDict, total=False):
    """Where words are."""

    x_mask: Tensor | None
    a_mask: Tensor | None


@overload
def gweat(x: Tensor, a: Tensor, *, per_group: Literal[False] = ..., **masks: Unpack[Masks]) -> Tensor: ...
@overload
def gweat(x: Tensor, a: Tensor, *, per_group: Literal[True], **masks: Unpack[Masks]) -> tuple[Tensor, Tensor]: ...
@takes_arrays
@word_sets.grouped("x", "a")
def gweat(
    x: Tensor, a: Tensor, *, x_mask: Tensor | None = None, a_mask: Tensor | None = None, per_group: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Does each target group go with its own attribute group? sum_g (mean x_g - mu) . (mean a_g - nu).

    Shapes: x: (..., G, X, D); a: (..., G, A, D); x_mask: (..., G, X); a_mask: (..., G, A) -> (...) float64.

    The means are of unit vectors, mu and nu the means of the group means. 0: no association; positive: as paired. For
    two groups it is half of the mean difference of WEAT. `per_group=True` also returns the terms (..., G). Masks,
    empty sets (of any group), zero vectors and errors as in `weat`; ValueError unless both sides have the same number
    of groups, at least two. Swinger et al. 2019, arXiv:1812.08769.

    >>> x = torch.tensor([[[2.0, 1.0], [3.0, 1.0]], [[1.0, 2.0], [1.0, 3.0]]])  # two groups of two words
    >>> a = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> gweat(x, a)
    tensor(0.5398, dtype=torch.float64)
    """
    words = word_sets.read("x", "a", x=(x, x_mask), a=(a, a_mask))
    if x.shape[-3:-2] != a.shape[-3:-2] or x.shape[-3:-2] < (2,):
        got = f"{tuple(x.shape)} and {tuple(a.shape)}"
        raise ValueError(f"x, a: got shapes {got}, wanted equally many groups, at least 2: (..., G, W, D)")
    x, a = (groups.unit().mean() for groups in words)
    terms = word_sets.dot(x - x.mean(-2, keepdim=True), a - a.mean(-2, keepdim=True))
    return (terms.sum(-1), terms) if per_group else terms.sum(-1)


@takes_arrays
def group_permutation_p_value(
    x: Tensor,
    a: Tensor,
    *,
    alternative: Alternative = "greater",
    replicates: int = 10000,
    seed: int | None = 0,
    x_mask: Tensor | None = None,
    a_mask: Tensor | None = None,
    x_words: Tensor | None = None,
) -> Tensor:
    """How often is `gweat` as extreme when all target words are shuffled among the groups, whose sizes stay?

    Shapes: x: (..., G, X, D); a: (..., G, A, D); masks, x_words: (..., G, X), (..., G, A) -> (...) float64, in (0, 1].

    Draws `replicates` shuffles; `x_words` numbers the word of each row in its group, and a word moves with all its
    rows; otherwise as `target_permutation_p_value`.

    >>> x = torch.tensor([[[2.0, 1.0], [3.0, 1.0]], [[1.0, 2.0], [1.0, 3.0]]])  # two groups of two words
    >>> a = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> group_permutation_p_value(x, a, replicates=999)
    tensor(0.1820, dtype=torch.float64)
    """
    masks = {"x_mask": x_mask, "a_mask": a_mask, "x_words": x_words}
    return group_null(x, a, seed=seed, **masks).p_value(alternative, "approximate", replicates)


@torch.no_grad()
def group_null(
    x: Tensor,
    a: Tensor,
    *,
    seed: int | None = 0,
    x_mask: Tensor | None = None,
    a_mask: Tensor | None = None,
    x_words: Tensor | None = None,
) -> NullDistribution:
    """Return scores after random shuffles of the target words; arguments as in `group_permutation_p_value`."""
    observed = gweat(x, a, x_mask=x_mask, a_mask=a_mask)  # its own checks come first
    check_words("x_words", x_words, "x", x[..., 0])
    (targets,) = word_sets.read("x", x=(x, x_mask))
    lead, (groups, width, dims) = torch.broadcast_shapes(x.shape[:-3], targets.weights.shape[:-2]), x.shape[-3:]
    present = (targets.weights.expand(*lead, groups, width) > 0).flatten(-2)
    each = [(None if x_words is None else x_words[..., g, :], width, x.device) for g in range(groups)]
    words = joined_words(lead, *each)
    place = word_places(present, words)  # (..., G * X)
    ends = [count_words(place[..., :end], present[..., :end]) for end in range(width, groups * width + 1, width)]
    ends = torch.stack(ends, -1)[..., None, :, None]
    starts = torch.nn.functional.pad(ends, (0, 0, 1, 0))[..., :-1, :]
    vectors = targets.vectors.expand(*lead, groups, width, dims).flatten(-3, -2)[..., None, None, :, :]
    vectors = vectors.expand(*lead, 1, groups, -1, dims)
    if a_mask is not None:
        a, a_mask = a.where(a_mask.unsqueeze(-1), 0), a_mask.unsqueeze(-3)
    absent = torch.arange(groups * width, device=x.device) >= ends[..., 0, -1, :, None]
    begin = stream(seed)

    def draw(start: int, rows: int) -> Tensor:
        keys = random_words(begin, start, rows, groups * width, x.device).masked_fill(
            absent, torch.iinfo(torch.int64).max
        )
        rank = keys.argsort(-1).argsort(-1)  # of the places
        if x_mask is not None or x_words is not None:
            rank = rank.expand(*lead, rows, -1).take_along_dim(place.unsqueeze(-2), -1)
        rank = rank.unsqueeze(-2)
        members = (starts <= rank) & (rank < ends) & present[..., None, None, :]
        return gweat(vectors, a.unsqueeze(-4), x_mask=members.long(), a_mask=a_mask)

    cost, margin = max(x.numel(), present.numel() * groups), observed.abs().clamp(min=1) / word_sets.GRID
    return NullDistribution(observed.isfinite(), lambda: observed, draw, cost, margin)


class GWEAT(BaseMetric):
    """Does each target set go with its own attribute set? See `gweat`; `by_group` has the term of each target set."""

    metric_template = ("n", "n")
    metric_name = "Generalized WEAT"
    metric_short_name = "GWEAT"
    by_position = False
    result_keys = {"gweat": float, "by_group": dict, "p_value": float}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        _checks.one_of("p_value_method", self.p_value_method, ("auto", "approximate"))  # shuffles are not counted

    def measure(self, x: Tensor, a: Tensor, **masks: Unpack[Masks]) -> dict[str, Tensor]:
        score, terms = gweat(x, a, per_group=True, **masks)
        return {"gweat": score, "by_group": terms}

    def score_function(self) -> Callable[..., Tensor]:
        return gweat

    def null_distributions(
        self, x: Tensor, a: Tensor, a_words: Tensor | None = None, **masks: Any
    ) -> dict[str, NullDistribution]:
        # attribute words do not move
        return {"p_value": group_null(x, a, seed=self.p_value_seed, **masks)}

    def check_query(self, query: Query) -> None:
        check_groups(query, self.metric_short_name, equal=True)

    def describe(self, values: dict[str, np.ndarray], index: IndexedQuery) -> dict[str, Any]:
        by_group = dict(zip(index.query.target_sets_names, map(np.float64, values["by_group"]), strict=True))
        return {"gweat": np.float64(values["gweat"]), "by_group": by_group, "p_value": np.float64(np.nan)}
