"""Single-category WEAT: the association of each word by itself."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from ..embeddings.query import IndexedQuery
from ..resampling.permutation import permutation_p_value
from ..sets import word_sets
from .base import BaseMetric, by_word


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

    def p_values(
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
    ) -> dict[str, Tensor]:
        w, a, b = word_sets.read(w=(w, w_mask), a=(a, a_mask), b=(b, b_mask))
        to_a, to_b = (_cosines(w, side) for side in (a, b))
        if w_words is not None:  # a word with several rows has one p-value, that of its mean cosines
            shared = (w_words.unsqueeze(-1) == w_words.unsqueeze(-2)) * w.weights.unsqueeze(-2)
            shared = shared / shared.sum(-1, keepdim=True).clamp(min=1)
            to_a, to_b = shared @ to_a, shared @ to_b
        u_mask, v_mask, u_words, v_words = (
            None if given is None else given.unsqueeze(-2) for given in (a_mask, b_mask, a_words, b_words)
        )
        p = permutation_p_value(
            to_a, to_b, u_mask=u_mask, v_mask=v_mask, u_words=u_words, v_words=v_words, **self._test()
        )
        return {"p_value_by_word": w.present(p)}

    def describe(self, values: dict[str, np.ndarray], index: IndexedQuery) -> dict[str, Any]:
        words = index.row_words[0][0]
        return {
            "sc_weat": np.float64(values["sc_weat"]),
            "effect_size_by_word": by_word(words, values["effect_size_by_word"]),
            "p_value_by_word": by_word(words, values.get("p_value_by_word", np.empty(0))),
        }
