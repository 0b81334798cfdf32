"""Generalized Word Embedding Association Test."""

from typing import Any, Literal, overload

import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ...core.arguments import checks
from ..embeddings.query import IndexedQuery
from ..resampling.draws import random_int64_of_words
from ..resampling.null_distribution import Alternative, NullDistribution
from ..resampling.random import random_int64, stream
from ..sets import marks, word_sets
from ..sets.set_checks import weights_as_masks
from ..sets.word_ids import count_words, dense_word_indices, joined_words, word_ids_by_index
from ..sets.word_sets import Vectors, WordSet
from .base import AssociationOptions, BaseMetric, by_word


@overload
def gweat(x: Vectors, a: Vectors, *, per_group: Literal[False] = ...) -> Tensor: ...
@overload
def gweat(x: Vectors, a: Vectors, *, per_group: Literal[True]) -> tuple[Tensor, Tensor]: ...
@marks.score(grouped=("x", "a"))
def gweat(x: Vectors, a: Vectors, *, per_group: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """Compute the association of target groups with their attribute groups: sum_g (mean x_g - mu) . (mean a_g - nu).

    Shapes: x: (..., G, X, D); a: (..., G, A, D), tensors or `WordSet`s -> (...) float64.

    The means are of unit vectors, mu and nu are the means of the group means. 0 is no association; positive values
    are an association of the paired groups. For two groups it is half of the mean difference of WEAT. `per_group=True`
    also returns the terms (..., G). Empty sets (of any group), zero vectors and errors as in `weat`; ValueError unless
    x and a have the same number of groups, at least two. Swinger et al. 2019, arXiv:1812.08769.

    >>> x = torch.tensor([[[2.0, 1.0], [3.0, 1.0]], [[1.0, 2.0], [1.0, 3.0]]])  # two groups of two words
    >>> a = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> gweat(x, a)
    tensor(0.5398, dtype=torch.float64)
    """
    words = word_sets.read("x", "a", x=x, a=a)
    first, second = (group_set.vectors.shape for group_set in words)
    if first[-3] != second[-3] or first[-3] < 2:
        got = f"{tuple(first)} and {tuple(second)}"
        raise ValueError(f"x, a: got shapes {got}, wanted equally many groups, at least 2: (..., G, W, D)")
    x, a = (groups.unit().mean() for groups in words)
    terms = word_sets.dot(x - x.mean(-2, keepdim=True), a - a.mean(-2, keepdim=True))
    return (terms.sum(-1), terms) if per_group else terms.sum(-1)


@marks.score()
def group_permutation_p_value(
    x: Vectors, a: Vectors, *, alternative: Alternative = "greater", replicates: int = 10000, seed: int | None = 0
) -> Tensor:
    """Compute the p-value of `gweat` under random shuffles of all target words among groups of the same sizes.

    Shapes: x: (..., G, X, D); a: (..., G, A, D), tensors or `WordSet`s -> (...) float64, in (0, 1].

    Draws `replicates` shuffles; a word moves with all the rows that `WordSet.words` assigns to it in its group;
    otherwise as `target_permutation_p_value`.

    >>> x = torch.tensor([[[2.0, 1.0], [3.0, 1.0]], [[1.0, 2.0], [1.0, 3.0]]])  # two groups of two words
    >>> a = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> group_permutation_p_value(x, a, replicates=999)
    tensor(0.1820, dtype=torch.float64)
    """
    return group_null(x, a, seed).p_value(alternative, "approximate", replicates)


@torch.no_grad()
def group_null(x: Vectors, a: Vectors, seed: int | None = 0) -> NullDistribution:
    """Return scores after random shuffles of the target words; arguments as in `group_permutation_p_value`."""
    observed = gweat(x, a)  # first, because it checks its arguments
    (targets,) = word_sets.read("x", x=x)
    x, attributes = WordSet.of(x), WordSet.of(a).repeated(3)
    batch_shape = torch.broadcast_shapes(x.values.shape[:-3], targets.weights.shape[:-2])
    (groups, width, dims), device = x.values.shape[-3:], x.values.device
    valid_mask = (targets.weights.expand(*batch_shape, groups, width) > 0).flatten(-2)
    group_words = [(None if x.words is None else x.words[..., g, :], width, device) for g in range(groups)]
    words = joined_words(batch_shape, *group_words)
    word_indices = dense_word_indices(valid_mask, words)  # (..., G * X)
    ends = [
        count_words(word_indices[..., :end], valid_mask[..., :end]) for end in range(width, groups * width + 1, width)
    ]
    ends = torch.stack(ends, -1)[..., None, :, None]
    starts = torch.nn.functional.pad(ends, (0, 0, 1, 0))[..., :-1, :]
    vectors = targets.vectors.expand(*batch_shape, groups, width, dims).flatten(-3, -2)[..., None, None, :, :]
    vectors = vectors.expand(*batch_shape, 1, groups, -1, dims)
    is_padding = torch.arange(groups * width, device=device) >= ends[..., 0, -1, :, None]
    stream_offset = stream(seed)
    row_words = (
        None if words is None else words.masked_fill(~valid_mask, -1)[..., None, None, :].expand(*vectors.shape[:-1])
    )

    def score(keys: Tensor) -> Tensor:
        # keys: (..., rows, G * X), sort keys of the shuffles  ->  (..., rows)
        rows, keys = keys.shape[-2], keys.masked_fill(is_padding, torch.iinfo(torch.int64).max)
        rank = keys.argsort(-1).argsort(-1)  # ranks of the words
        if x.mask is not None or x.words is not None:
            rank = rank.expand(*batch_shape, rows, -1).take_along_dim(word_indices.unsqueeze(-2), -1)
        rank = rank.unsqueeze(-2)
        members = (starts <= rank) & (rank < ends) & valid_mask[..., None, None, :]
        if row_words is None:
            return gweat(WordSet(vectors, members.long()), attributes)
        with weights_as_masks():
            return gweat(WordSet(vectors, members.double(), row_words), attributes)

    def draw(start: int, rows: int) -> Tensor:
        return score(random_int64(stream_offset, start, rows, groups * width, device))

    def draw_by_word(start: int, rows: int) -> Tensor:
        assert x.words is not None
        word_ids = word_ids_by_index(x.words.flatten(-2), valid_mask, word_indices, groups * width)
        return score(random_int64_of_words(stream_offset, word_ids, start, rows))

    by_word = None if x.words is None else draw_by_word
    cost, margin = max(x.values.numel(), valid_mask.numel() * groups), observed.abs().clamp(min=1) / word_sets.GRID
    return NullDistribution(observed.isfinite(), lambda: observed, draw, cost, margin, draw_by_word=by_word)


class GWEAT(BaseMetric):
    """Association of target sets with their attribute sets; see `gweat`. `by_group` has the term of each target set."""

    metric_template = ("n", "n")
    metric_name = "Generalized WEAT"
    metric_short_name = "GWEAT"
    compares_groups = True
    function = staticmethod(gweat)

    def __init__(self, **kwargs: Unpack[AssociationOptions]) -> None:
        super().__init__(**kwargs)
        checks.check_choice("method", self.method, ("auto", "approximate"))  # there is no exact test

    def measure(self, x: Vectors, a: Vectors) -> dict[str, Tensor]:
        score, terms = gweat(x, a, per_group=True)
        return {"gweat": score, "by_group": terms}

    def null_distributions(self, x: Vectors, a: Vectors) -> dict[str, NullDistribution]:
        return {"p_value": group_null(x, a, self.seed)}

    def describe(self, values: dict[str, Tensor], index: IndexedQuery) -> dict[str, Any]:
        return {**values, "by_group": by_word(index.query.target_sets_names, values["by_group"])}
