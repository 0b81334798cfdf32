"""The Word Embedding Association Test, and its form for each word by itself, Single-Category WEAT."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ..._checks import takes_arrays
from ..embeddings.lookup import check_flag
from ..embeddings.query import IndexedQuery
from ..resampling.null_distribution import NullDistribution
from ..resampling.permutation import partition_null
from ..sets import word_sets
from ..sets.word_sets import XYABMasks
from ._associations import XYABWords, associations, masks_of, null_of, read_sets, units_of
from .base import BaseMetric, by_word


@takes_arrays
@word_sets.lean
def weat(
    x: Tensor,
    y: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    x_mask: Tensor | None = None,
    y_mask: Tensor | None = None,
    a_mask: Tensor | None = None,
    b_mask: Tensor | None = None,
) -> Tensor:
    """How much more the targets x than the targets y go with the attributes a rather than b.

    Shapes: x: (..., X, D); y: (..., Y, D); a: (..., A, D); b: (..., B, D); masks: (..., X) ... (..., B) -> (...)
    float64.

    sum_x s(w) - sum_y s(w), where s(w) = mean_a cos(w, a) - mean_b cos(w, b), which lies in [-2, 2]; 0 is no
    difference, and swapping x with y or a with b changes the sign. A mask is True where a word is; leading dimensions
    broadcast; an empty set gives NaN, a zero vector has cosine 0. ValueError for sizes that do not fit, TypeError for
    dtypes. Caliskan, Bryson & Narayanan 2017, doi:10.1126/science.aal4230.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a, b = torch.tensor([[1.0, 0.0], [2.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    >>> weat(x, y, a, b)
    tensor(1.3211, dtype=torch.float64)
    """
    return _scores(x, y, a, b, None, x_mask=x_mask, y_mask=y_mask, a_mask=a_mask, b_mask=b_mask)[0]


@takes_arrays
@word_sets.lean
@word_sets.contrast_of_sets("x", "y")
def weat_effect_size(
    x: Tensor,
    y: Tensor,
    a: Tensor,
    b: Tensor,
    correction: int = 0,
    *,
    x_mask: Tensor | None = None,
    y_mask: Tensor | None = None,
    a_mask: Tensor | None = None,
    b_mask: Tensor | None = None,
) -> Tensor:
    """`weat` in standard deviations: (mean_x s - mean_y s) / sd of s over all targets, a word in both counting twice.

    Shapes: x: (..., X, D); y: (..., Y, D); a: (..., A, D); b: (..., B, D); masks: (..., X) ... (..., B) -> (...)
    float64.

    Within [-2, 2] for equally many targets and correction 0, which divides the squares by X + Y; correction 1 divides
    by X + Y - 1, the sample deviation. NaN where s does not vary or X + Y <= correction. Otherwise as `weat`.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a, b = torch.tensor([[1.0, 0.0], [2.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    >>> weat_effect_size(x, y, a, b)
    tensor(1.9712, dtype=torch.float64)
    """
    word_sets.check_correction(correction)
    return _scores(x, y, a, b, correction, x_mask=x_mask, y_mask=y_mask, a_mask=a_mask, b_mask=b_mask)[1]


@word_sets.in_pieces
def _scores(
    x: Tensor, y: Tensor, a: Tensor, b: Tensor, correction: int | None, **masks: Unpack[XYABMasks]
) -> tuple[Tensor, ...]:
    # ->  `weat` (...) and, if there is a correction, `weat_effect_size` (...)
    if all(mask is None for mask in masks.values()) and word_sets.are_few(x, y, a, b):
        both = _few_associations(x, y, a, b)
        if correction is not None:
            return word_sets.contrast_of(both, len(x), correction)
        u, v = both.split_with_sizes([len(x), len(y)])
        return (u.sum() - v.sum(),)
    u, v = associations(*read_sets(x, y, a, b, **masks))
    return (word_sets.difference(u, v),) if correction is None else word_sets.contrast(u, v, correction)


def _few_associations(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    # ->  (X + Y,), what `associations` gives, by as few operations as there can be
    vectors = torch.cat([x, y, a, b])
    if vectors.dtype != torch.float64:
        vectors = vectors.to(word_sets.precision(vectors))
    n, m = len(a), len(b)
    sizes = [len(vectors) - n - m, n, m]
    scales = word_sets.inverse(torch.linalg.vector_norm(vectors, dim=-1)).split_with_sizes(sizes)
    targets, a, b = vectors.split_with_sizes(sizes)
    # The difference of equal sets is 0, which it would not be if one product were added to the other.
    axis = torch.sub(torch.mv(a.mT, scales[1]), torch.mv(b.mT, scales[2]), alpha=n / m)
    return torch.addmv(scales[0], targets, axis, beta=0, alpha=1 / n) * scales[0]


class WEAT(BaseMetric):
    """Word Embedding Association Test: do the first targets go with the first attributes? 0 is no bias; see `weat`.

    `run_query` also gives `weat_effect_size` as `effect_size`, and as `result` if `return_effect_size`.
    """

    metric_template = (2, 2)
    metric_name = "Word Embedding Association Test"
    metric_short_name = "WEAT"
    by_position = False
    no_score = "the association with the attributes does not vary over the target words, or a vector is not finite"
    result_keys = {"weat": float, "effect_size": float, "p_value": float}

    def __init__(self, *, return_effect_size: bool = False, correction: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_flag("return_effect_size", return_effect_size)
        self.return_effect_size = return_effect_size
        word_sets.check_correction(correction)
        self.correction = correction

    def measure(self, x: Tensor, y: Tensor, a: Tensor, b: Tensor, **masks: Unpack[XYABMasks]) -> dict[str, Tensor]:
        return self._named(*_scores(x, y, a, b, self.correction, **masks))

    def measure_shared(
        self, targets: word_sets.Words, attributes: word_sets.Words, t: Tensor, a: Tensor
    ) -> dict[str, Tensor]:
        cosines = targets.unit().project_all(attributes.unit().mean())  # (T, W, A)
        first, second = a.unbind(-1)
        u, v = ((cosines[side, :, first] - cosines[side, :, second], targets.counts_of(side)) for side in t.unbind(-1))
        return self._named(*word_sets.contrast(u, v, self.correction))

    def _named(self, score: Tensor, effect: Tensor) -> dict[str, Tensor]:
        return {"result": effect if self.return_effect_size else score, "weat": score, "effect_size": effect}

    def score_function(self) -> Callable[..., Tensor]:
        if self.return_effect_size:
            return functools.partial(weat_effect_size, correction=self.correction)
        return weat

    def null_distributions(
        self, x: Tensor, y: Tensor, a: Tensor, b: Tensor, **sides: Unpack[XYABWords]
    ) -> dict[str, NullDistribution]:
        # attribute words do not move
        u, v = associations(*units_of(x, y, a, b, **masks_of(sides)))
        return {"p_value": null_of(u, v, sides, "xy", self.p_value_seed)}


@takes_arrays
def sc_weat(
    w: Tensor,
    a: Tensor,
    b: Tensor,
    correction: int = 0,
    *,
    w_mask: Tensor | None = None,
    a_mask: Tensor | None = None,
    b_mask: Tensor | None = None,
) -> Tensor:
    """The effect size of each word: (mean_a cos(w, a) - mean_b cos(w, b)) / sd of its A + B cosines.

    Shapes: w: (..., W, D); a: (..., A, D); b: (..., B, D); masks: (..., W), (..., A), (..., B) -> (..., W) float64.

    Positive: nearer to a. Within [-2, 2] for A = B and correction 0 (squares over A + B); 1 makes it the sample
    deviation (A + B - 1). NaN where the cosines do not vary, where a set is empty and where no word is. Masks, zero
    vectors and errors as in `weat`. Caliskan, Bryson & Narayanan 2017, doi:10.1126/science.aal4230.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a, b = torch.tensor([[1.0, 0.0], [2.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    >>> sc_weat(torch.cat([x, y]), a, b)  # the first two words lean to a
    tensor([ 1.1335,  1.3280, -1.5261, -1.6533], dtype=torch.float64)
    """
    word_sets.check_correction(correction)
    w, a, b = word_sets.read(w=(w, w_mask), a=(a, a_mask), b=(b, b_mask))
    to_a, to_b = ((_cosines(w, side), None if side.counts is None else side.counts.unsqueeze(-2)) for side in (a, b))
    return w.present(word_sets.contrast(to_a, to_b, correction)[1])


@takes_arrays
def mean_sc_weat(
    w: Tensor,
    a: Tensor,
    b: Tensor,
    correction: int = 0,
    *,
    w_mask: Tensor | None = None,
    a_mask: Tensor | None = None,
    b_mask: Tensor | None = None,
) -> Tensor:
    """The mean of `sc_weat` over the words.

    Shapes: w: (..., W, D); a: (..., A, D); b: (..., B, D); masks: (..., W), (..., A), (..., B) -> (...) float64.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a, b = torch.tensor([[1.0, 0.0], [2.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    >>> mean_sc_weat(x, a, b)
    tensor(1.2307, dtype=torch.float64)
    """
    sizes = sc_weat(w, a, b, correction, w_mask=w_mask, a_mask=a_mask, b_mask=b_mask)
    return _mean(sizes, w_mask)


def _mean(sizes: Tensor, w_mask: Tensor | None) -> Tensor:
    # A word without a score makes the mean NaN, an absent one does not.
    if w_mask is None:
        return sizes.mean(-1)
    return (sizes.masked_fill(w_mask == 0, 0) * w_mask).sum(-1) / w_mask.sum(-1)


def _cosines(w: word_sets.Words, side: word_sets.Words) -> Tensor:
    # ->  (..., W, A)
    return w.unit().project_all(word_sets.unit(side.vectors))


class SCWEAT(BaseMetric):
    """The mean of `sc_weat` over the target words, with the effect size of each."""

    metric_template = (1, 2)
    metric_name = "Single-Category WEAT"
    metric_short_name = "SC-WEAT"
    by_position = False
    no_score = "the cosines of a target word do not vary, or a vector is not finite"
    result_keys = {"sc_weat": float, "effect_size_by_word": dict, "p_value_by_word": dict}

    def __init__(self, *, correction: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        word_sets.check_correction(correction)
        self.correction = correction

    def measure(
        self, w: Tensor, a: Tensor, b: Tensor, *, w_mask: Tensor | None = None, **masks: Tensor
    ) -> dict[str, Tensor]:
        effects = sc_weat(w, a, b, self.correction, w_mask=w_mask, **masks)
        return {"sc_weat": _mean(effects, w_mask), "effect_size_by_word": effects}

    def score_function(self) -> Callable[..., Tensor]:
        return functools.partial(mean_sc_weat, correction=self.correction)

    def null_distributions(
        self,
        w: Tensor,
        a: Tensor,
        b: Tensor,
        *,
        w_mask: Tensor | None = None,
        a_mask: Tensor | None = None,
        b_mask: Tensor | None = None,
        w_words: Tensor | None = None,
        a_words: Tensor | None = None,
        b_words: Tensor | None = None,
    ) -> dict[str, NullDistribution]:
        w, a, b = word_sets.read(w=(w, w_mask), a=(a, a_mask), b=(b, b_mask))
        to_a, to_b = (_cosines(w, side) for side in (a, b))
        if w_words is not None:  # a word with several rows has one p-value, that of its mean cosines
            shared = (w_words.unsqueeze(-1) == w_words.unsqueeze(-2)) * w.weights.unsqueeze(-2)
            shared = shared / shared.sum(-1, keepdim=True).clamp(min=1)
            to_a, to_b = shared @ to_a, shared @ to_b
        u_mask, v_mask, u_words, v_words = (
            None if side is None else side.unsqueeze(-2) for side in (a_mask, b_mask, a_words, b_words)
        )
        sides = {"u_mask": u_mask, "v_mask": v_mask, "u_words": u_words, "v_words": v_words}
        null = partition_null(to_a, to_b, seed=self.p_value_seed, **sides)
        return {"p_value_by_word": replace(null, is_valid=null.is_valid & (w.weights > 0))}

    def describe(self, values: dict[str, np.ndarray], index: IndexedQuery) -> dict[str, Any]:
        words = index.row_words[0][0]
        return {
            "sc_weat": np.float64(values["sc_weat"]),
            "effect_size_by_word": by_word(words, values["effect_size_by_word"]),
            "p_value_by_word": by_word(words, values.get("p_value_by_word", np.empty(0))),
        }
