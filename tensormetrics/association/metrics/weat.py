"""Word Embedding Association Test, and Single-Category WEAT for individual words."""

import functools
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ...core.arguments import checks
from ..resampling.null_distribution import NullDistribution
from ..resampling.permutation import partition_null
from ..sets import marks, word_sets
from ..sets.word_sets import Vectors, WordSet
from ._associations import associations, batched_associations, batched_score, null_of
from .base import AssociationOptions, BaseMetric


@marks.score(lean=True, range=(-2, 2), range_per_word=("x", "y"))
def weat(x: Vectors, y: Vectors, a: Vectors, b: Vectors) -> Tensor:
    """Compute the difference of the associations of the targets x and y with the attributes a rather than b.

    Shapes: x: (..., X, D); y: (..., Y, D); a: (..., A, D); b: (..., B, D), tensors or `WordSet`s -> (...) float64.

    sum_x s(w) - sum_y s(w), where s(w) = mean_a cos(w, a) - mean_b cos(w, b) is in [-2, 2]; 0 is no difference, and
    swapping x with y or a with b changes the sign. Leading dimensions broadcast; an empty set gives NaN, a zero vector
    has cosine 0. ValueError for sizes that do not match, TypeError for invalid dtypes. Caliskan, Bryson & Narayanan
    2017, doi:10.1126/science.aal4230.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a, b = torch.tensor([[1.0, 0.0], [2.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    >>> weat(x, y, a, b)
    tensor(1.3211, dtype=torch.float64)
    """
    return _scores(x, y, a, b, None)[0]


@marks.score(lean=True, contrast=("x", "y"))
def weat_effect_size(x: Vectors, y: Vectors, a: Vectors, b: Vectors, correction: int = 0) -> Tensor:
    """Compute the WEAT effect size: (mean_x s - mean_y s) / sd of s over all targets, a word in both counts twice.

    Shapes: x: (..., X, D); y: (..., Y, D); a: (..., A, D); b: (..., B, D), tensors or `WordSet`s -> (...) float64.

    In [-2, 2] for equally many targets and correction 0, which divides the squares by X + Y; correction 1 divides by
    X + Y - 1, the sample deviation. NaN if s is constant or X + Y <= correction. Otherwise as `weat`.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a, b = torch.tensor([[1.0, 0.0], [2.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    >>> weat_effect_size(x, y, a, b)
    tensor(1.9712, dtype=torch.float64)
    """
    word_sets.check_correction(correction)
    return _scores(x, y, a, b, correction)[1]


@marks.in_chunks
def _scores(x: Vectors, y: Vectors, a: Vectors, b: Vectors, correction: int | None) -> tuple[Tensor, ...]:
    # ->  `weat` (...) and, with a correction, `weat_effect_size` (...)
    if (tensors := word_sets.small_tensors(x, y, a, b)) is not None:
        scores, n = _small_associations(*tensors), len(tensors[0])
        if correction is not None:
            return word_sets.effect_size_of(scores, n, correction)
        u, v = scores[:n], scores[n:]
        return (u.sum() - v.sum(),)
    if (scores := batched_associations(x, y, a, b)) is not None:
        corrections = (None,) if correction is None else (None, correction)
        return tuple(batched_score(scores, WordSet.of(x).values.shape[1], c) for c in corrections)
    u, v = associations(*word_sets.read(x=x, y=y, a=a, b=b))
    return (word_sets.difference(u, v),) if correction is None else word_sets.effect_size(u, v, correction)


def _small_associations(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    # ->  (X + Y,), the values of `associations`, by as few operations as possible
    vectors = torch.cat([x, y, a, b])
    if vectors.dtype != torch.float64:
        vectors = vectors.to(word_sets.precision(vectors))
    n, m = len(a), len(b)
    sizes = [len(vectors) - n - m, n, m]
    scales = word_sets.inverse(torch.linalg.vector_norm(vectors, dim=-1)).split_with_sizes(sizes)
    targets, a, b = vectors.split_with_sizes(sizes)
    # The difference of equal sets is exactly 0, unlike with addmv of the two products.
    axis = torch.sub(torch.mv(a.mT, scales[1]), torch.mv(b.mT, scales[2]), alpha=n / m)
    return torch.addmv(scales[0], targets, axis, beta=0, alpha=1 / n) * scales[0]


class WEAT(BaseMetric):
    """Word Embedding Association Test of two target and two attribute sets, 0 is no bias; see `weat`.

    `details` of `run_query` has `weat_effect_size` as `effect_size`.

    Args:
        return_effect_size: Whether the score is `weat_effect_size` instead of `weat`.
        correction: 0 or 1, subtracted from the number of words in the variance of effect sizes.
    """

    metric_template = (2, 2)
    metric_name = "Word Embedding Association Test"
    metric_short_name = "WEAT"
    no_score = "the association with the attributes does not vary over the target words, or a vector is not finite"

    def __init__(
        self, *, return_effect_size: bool = False, correction: int = 0, **kwargs: Unpack[AssociationOptions]
    ) -> None:
        super().__init__(**kwargs)
        checks.check_flag("return_effect_size", return_effect_size)
        self.return_effect_size = return_effect_size
        self.correction = word_sets.check_correction(correction)

    def measure(self, x: Vectors, y: Vectors, a: Vectors, b: Vectors) -> dict[str, Tensor]:
        return self._named(*_scores(x, y, a, b, self.correction))

    def measure_shared(
        self, targets: word_sets.Words, attributes: word_sets.Words, t: Tensor, a: Tensor
    ) -> dict[str, Tensor]:
        cosines = targets.unit().project_all(attributes.unit().mean())  # (T, W, A)
        first, second = a.unbind(-1)
        u, v = (
            (words.by_word(cosines[indices, :, first] - cosines[indices, :, second]), words.counts)
            for indices, words in ((indices, targets.of_sets(indices)) for indices in t.unbind(-1))
        )
        return self._named(*word_sets.effect_size(u, v, self.correction))

    @property
    def sums_over_words(self) -> bool:  # type: ignore[override]
        return not self.return_effect_size

    def _named(self, score: Tensor, effect: Tensor) -> dict[str, Tensor]:
        named = {"weat": score, "effect_size": effect}
        return dict(reversed(named.items())) if self.return_effect_size else named

    def score_function(self) -> Callable[..., Tensor]:
        if self.return_effect_size:
            return functools.partial(weat_effect_size, correction=self.correction)
        return weat

    def null_distributions(self, x: Vectors, y: Vectors, a: Vectors, b: Vectors) -> dict[str, NullDistribution]:
        u, v = associations(*word_sets.units(*word_sets.read(x=x, y=y, a=a, b=b)))
        return {"p_value": null_of(u, v, x, y, self.seed)}


@marks.score()
def sc_weat(w: Vectors, a: Vectors, b: Vectors, correction: int = 0) -> Tensor:
    """Compute the effect size of each word: (mean_a cos(w, a) - mean_b cos(w, b)) / sd of its A + B cosines.

    Shapes: w: (..., W, D); a: (..., A, D); b: (..., B, D), tensors or `WordSet`s -> (..., W) float64.

    Positive: nearer to a. In [-2, 2] for A = B and correction 0 (squares over A + B); correction 1 is the sample
    deviation (A + B - 1). NaN if the cosines are constant, for an empty set and for masked words. Zero vectors and
    errors as in `weat`. Caliskan, Bryson & Narayanan 2017, doi:10.1126/science.aal4230.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a, b = torch.tensor([[1.0, 0.0], [2.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    >>> sc_weat(torch.cat([x, y]), a, b)  # the first two words are nearer to a
    tensor([ 1.1335,  1.3280, -1.5261, -1.6533], dtype=torch.float64)
    """
    word_sets.check_correction(correction)
    w, a, b = word_sets.read(w=w, a=a, b=b)
    to_a, to_b = (
        (_cosines(w, words), None if words.counts is None else words.counts.unsqueeze(-2)) for words in (a, b)
    )
    return w.mask_absent(word_sets.effect_size(to_a, to_b, correction)[1])


@marks.score()
def mean_sc_weat(w: Vectors, a: Vectors, b: Vectors, correction: int = 0) -> Tensor:
    """Compute the mean of `sc_weat` over the words.

    Shapes: w: (..., W, D); a: (..., A, D); b: (..., B, D), tensors or `WordSet`s -> (...) float64.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a, b = torch.tensor([[1.0, 0.0], [2.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    >>> mean_sc_weat(x, a, b)
    tensor(1.2307, dtype=torch.float64)
    """
    return _mean(sc_weat(w, a, b, correction), w)


def _mean(effects: Tensor, w: Vectors) -> Tensor:
    # A word without a score makes the mean NaN, a masked word does not.
    word_set = WordSet.of(w)
    count = word_set.mask
    if word_set.words is not None:
        count = word_sets.read(w=w)[0].weights
    if count is None:
        return effects.mean(-1)
    return (effects.masked_fill(count == 0, 0) * count).sum(-1) / count.sum(-1)


def _cosines(w: word_sets.Words, attributes: word_sets.Words) -> Tensor:
    # ->  (..., W, A), averaged over the rows of each attribute word
    return attributes.by_rows_of_others(w.unit().project_all(word_sets.unit(attributes.vectors)))


class SCWEAT(BaseMetric):
    """Mean of `sc_weat` over the target words, with the effect size of each; see `mean_sc_weat`.

    With `p_value`, `p_value_by_word` has the p-value of each.

    Args:
        correction: 0 or 1, subtracted from the number of words in the variance of effect sizes.
    """

    metric_template = (1, 2)
    metric_name = "Single-Category WEAT"
    metric_short_name = "SC-WEAT"
    function = staticmethod(mean_sc_weat)
    function_options = ("correction",)
    no_score = "the cosines of a target word do not vary, or a vector is not finite"
    values_by_word = {"effect_size_by_word": 0, "p_value_by_word": 0}

    def __init__(self, *, correction: int = 0, **kwargs: Unpack[AssociationOptions]) -> None:
        super().__init__(**kwargs)
        self.correction = word_sets.check_correction(correction)

    def measure(self, w: Vectors, a: Vectors, b: Vectors) -> dict[str, Tensor]:
        effects = sc_weat(w, a, b, self.correction)
        return {"sc_weat": _mean(effects, w), "effect_size_by_word": effects}

    def null_distributions(self, w: Vectors, a: Vectors, b: Vectors) -> dict[str, NullDistribution]:
        targets, *attributes = word_sets.read(w=w, a=a, b=b)
        to_a, to_b = (_cosines(targets, words) for words in attributes)
        # A word has one p-value, for the mean cosines of its rows.
        to_a, to_b = targets.by_word(to_a, -2), targets.by_word(to_b, -2)
        u, v = (WordSet.of(words).repeated()._replace(values=cosines) for words, cosines in ((a, to_a), (b, to_b)))
        null = partition_null(u, v, self.seed)
        return {"p_value_by_word": replace(null, is_valid=null.is_valid & (targets.weights > 0))}
