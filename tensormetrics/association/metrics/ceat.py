"""Contextualized Embedding Association Test: WEAT over random contexts, combined by a meta-analysis."""

import math
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.results.estimates import Estimate, check_confidence
from ..embeddings.query import IndexedQuery
from ..resampling.draws import chunks
from ..resampling.null_distribution import ALTERNATIVES, Alternative, NullDistribution
from ..resampling.random import random_uniform, stream
from ..sets import word_sets
from ..sets.word_sets import Vectors, WordSet
from ._associations import associations, effect_size, null_of
from .base import BaseMetric

Variance = Literal["sample", "standard"]


@takes_arrays
def random_effects(e: Tensor, v: Tensor, *, alternative: Alternative = "greater", confidence: float = 0.95) -> Estimate:
    """Estimate the mean effect if effects vary by more than their variances (DerSimonian-Laird).

    tau2 = max(0, (Q - (N - 1)) / (sum w - sum w^2 / sum w)), w = 1 / v, Q = sum w (e - weighted mean)^2, and 0 for one
    effect; effect = sum w* e / sum w*, w* = 1 / (v + tau2), with standard error sum(w*)^-1/2. Interval and p-value use
    the normal distribution. An effect of infinite variance has no weight.

    Args:
        e: Effects.
        v: Variances of the effects. Values of 0, negative values and NaN give NaN.
        alternative: Side of the test: ``"greater"`` (the effect is above 0), ``"less"`` or ``"two-sided"``.
        confidence: Mass of the interval, in (0, 1).

    Shape:
        - e, v: ``(..., N)``
        - Output: ``(...)``, float64

    Returns:
        The mean effect; `details` has its standard error "se", "tau2", the variance between the effects, and "p_value".

    Raises:
        ValueError: If shapes do not broadcast or an option is out of range.

    Example:
        >>> random_effects(torch.tensor([0.2, 0.5, 0.9]), torch.tensor([0.01, 0.02, 0.01]))
        0.534 [0.089, 0.979], 95 %, random effects

    References:
        DerSimonian & Laird 1986, doi:10.1016/0197-2456(86)90046-2
    """
    checks.check_choice("alternative", alternative, ALTERNATIVES)
    confidence = check_confidence(confidence)
    checks.floating("e", e)
    checks.floating("v", v)
    checks.shape("e", e, "...", "N")
    checks.shape("v", v, "...", e.shape[-1])
    e, v = e.double(), v.double()
    v = v.where(v >= 0, torch.nan)
    w = 1 / v
    total = w.sum(-1)
    q = (w * (e - ((w * e).sum(-1) / total).unsqueeze(-1)).square()).sum(-1)
    tau2 = torch.zeros_like(q)
    if e.shape[-1] > 1:
        tau2 = ((q - (e.shape[-1] - 1)) / (total - w.square().sum(-1) / total)).clamp(min=0)
    w = 1 / (v + tau2.unsqueeze(-1))
    effect, se = (w * e).sum(-1) / w.sum(-1), w.sum(-1).rsqrt()
    z = (effect / se).detach()
    tail = {"greater": z, "less": -z, "two-sided": z.abs()}[alternative]
    num_tails = 2 if alternative == "two-sided" else 1
    p_value = num_tails * torch.special.erfc(tail / math.sqrt(2)) / 2
    half_width = math.sqrt(2) * torch.full_like(se, confidence).erfinv() * se
    return Estimate(
        effect,
        effect - half_width,
        effect + half_width,
        confidence=confidence,
        method="random effects",
        details={"se": se, "tau2": tau2, "p_value": p_value},
    )


@takes_arrays
def ceat(
    x: Vectors,
    y: Vectors,
    a: Vectors,
    b: Vectors,
    samples: int = 1000,
    seed: int | None = 0,
    correction: int = 1,
    variance: Variance = "sample",
    *,
    alternative: Alternative = "greater",
    confidence: float = 0.95,
) -> Estimate:
    """Compute the WEAT effect size of words with a pool of K vectors each, one per context.

    Shapes: x: (..., X, K, D); y: (..., Y, K, D); a: (..., A, K, D); b: (..., B, K, D), tensors or
    `WordSet`s -> (...).

    Each of the `samples` draws one context per word, uniformly, and has an effect size e and a variance V: the variance
    of s over all target words ("sample"), or (n + m) / (n m) + e^2 / (2 (n + m)) ("standard"); `random_effects`
    combines them. Masks are True for contexts; a word without contexts is absent, and the numbers of contexts may
    differ between sets. Draws depend only on `seed` (None: fresh) and the positions of words and contexts. Interval and
    p-value are for the mean over samples of contexts, not over the choice of words: for the latter use `p_value` of
    `CEAT`. Otherwise as `weat_effect_size`. Guo & Caliskan 2021, doi:10.1145/3461702.3462536.

    >>> generator = torch.Generator().manual_seed(0)
    >>> x, y, a, b = torch.randn(4, 3, 5, 8, generator=generator)  # 3 words in 5 contexts each
    >>> x, a = x + 1, a + 1  # x is associated with a
    >>> print(ceat(x, y, a, b))
    1.074 [1.031, 1.116]
    """
    checks.check_choice("variance", variance, get_args(Variance))
    samples = checks.check_int("samples", samples, 1)
    word_sets.check_correction(correction)
    pools = word_sets.read("x", "y", "a", "b", x=x, y=y, a=a, b=b)
    stream_offsets = [stream(seed, f"contexts/{name}") for name in "xyab"]
    parts = []
    for start, rows in chunks(samples, sum(pool.vectors[..., 0, :].numel() for pool in pools)):
        sampled = word_sets.units(
            *(
                draw_contexts(pool, stream_offset, start, rows)
                for pool, stream_offset in zip(pools, stream_offsets, strict=True)
            )
        )
        parts.append(_effect_and_variance(*associations(*sampled), correction, variance))
    e, v = (torch.cat(part, -1) for part in zip(*parts, strict=True))
    return random_effects(e, v, alternative=alternative, confidence=confidence)


def _effect_and_variance(
    u: word_sets.Values, v: word_sets.Values, correction: int, variance: str
) -> tuple[Tensor, Tensor]:
    # u, v: associations s of the target words of a sample  ->  e (...), V (...)
    _, e = word_sets.effect_size(u, v, correction)
    if variance == "sample":
        return e, word_sets.variance(u, v, 1)
    (_, n), (_, m) = word_sets.total(*u), word_sets.total(*v)
    return e, (n + m) / (n * m) + e.square() / (2 * (n + m))


def draw_contexts(pool: word_sets.Words, stream_offset: int, start: int, rows: int) -> word_sets.Words:
    # pool: (..., W, K, D)  ->  (..., rows, W, D)
    """Draw one valid context per word for the samples `start`, `start + 1`, ...; the count is 0 without contexts."""
    valid_mask = pool.weights.expand(torch.broadcast_shapes(pool.weights.shape, pool.vectors.shape[:-1])) > 0
    size = valid_mask.sum(-1)
    uniform = random_uniform(stream_offset, start, rows, size.shape[-1], valid_mask.device)
    context = (uniform * size.unsqueeze(-2)).long()
    order = (~valid_mask).byte().sort(dim=-1, stable=True).indices
    index = order.unsqueeze(-3).take_along_dim(context.unsqueeze(-1), -1).unsqueeze(-1)
    vectors = pool.vectors.unsqueeze(-4).take_along_dim(index, -2).squeeze(-2)
    return word_sets.Words(vectors, (size > 0).to(vectors.dtype).unsqueeze(-2))


def _rows_of_words(pool: Vectors) -> WordSet:
    # pool: (..., W, K, D)  ->  (..., W * K, D)
    """Return the contexts as rows of words, over which a test averages."""
    values, mask, _ = WordSet.of(pool)
    count, contexts = values.shape[-3:-1]
    words = torch.arange(count, device=values.device).repeat_interleave(contexts)
    return WordSet(values.flatten(-3, -2), None if mask is None else mask.flatten(-2), words)


class CEAT(BaseMetric):
    """CEAT for queries in a model with several vectors per word, such as `from_contexts`; see `ceat`.

    With `p_value`, the test permutes the target words with all their contexts, by the WEAT statistic of each
    word's mean. The published test, `p_value_random_effects`, treats samples of contexts as independent studies:
    two-sided, for 6 + 6 words of one population it was at most .05 in 82 to 97 of 100 tables, more with more `samples`.

    With `replicates`, the interval is a bootstrap interval of `effect_size` of `details`, the WEAT effect size of
    each word's mean, which draws words with all their contexts; the interval is extended to contain `ceat`.

    As a module it streams: each `update` takes one sample, or a batch of samples, in the form of the arguments of
    `weat_effect_size`; `forward` returns their effect sizes, and `compute` combines all that are finite.

    Args:
        samples: Number of samples, each with one context of every word.
        correction: 0 or 1, subtracted from the number of words in the variance of effect sizes.
        variance: Variance of an effect size: ``"sample"``, as published, or ``"standard"``, of a standardized mean.

    >>> words = ["he", "she", "man", "woman"]
    >>> contexts = {word: torch.eye(4)[i % 2] + torch.zeros(3, 4) for i, word in enumerate(words)}
    >>> contexts |= {"work": torch.eye(4)[:1], "home": torch.eye(4)[1:2]}
    >>> model = WordEmbeddingModel.from_contexts(contexts)
    >>> query = Query([["he", "man"], ["she", "woman"]], [["work"], ["home"]])
    >>> result = CEAT(samples=10, p_value=True).run_query(query, model)
    >>> round(float(result.details["p_value"]), 3)  # 1 of 6 partitions
    0.167
    """

    metric_template = (2, 2)
    metric_name = "Contextualized Embedding Association Test"
    metric_short_name = "CEAT"
    function = staticmethod(effect_size)
    function_options = ("correction",)
    no_interval = "its items are samples of contexts, not words; write run_query, which draws words"
    no_score = "in a sample the association does not vary over the target words, or a vector is not finite"
    effects: Tensor

    def __init__(
        self,
        *,
        samples: int = 1000,
        seed: int | None = 0,
        correction: int = 1,
        variance: Variance = "sample",
        replicates: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        checks.check_choice("unit", self.unit, ("word",))  # its rows are the contexts
        self.replicates = checks.check_int("replicates", replicates, 0)  # of words; streamed samples are not resampled
        self.samples = checks.check_int("samples", samples, 1)
        if seed is not None:
            checks.check_int("seed", seed, 0)
        self.correction = word_sets.check_correction(correction)
        checks.check_choice("variance", variance, get_args(Variance))
        self.seed, self.variance = seed, variance
        self.add_rows("effects")  # (samples, 2): effect and variance

    @property
    def batched(self) -> bool:
        return False  # the samples of one query are a batch

    def update(  # type: ignore[override]  # samples have no ids
        self, x: Vectors, y: Vectors, a: Vectors, b: Vectors
    ) -> None:
        """Add the effect size of each sample.

        Shapes: x: (..., X, D); y: (..., Y, D); a: (..., A, D); b: (..., B, D), one context per word.
        """
        u_and_v = associations(*word_sets.units(*word_sets.read(x=x, y=y, a=a, b=b)))
        self._scores, variance = _effect_and_variance(*u_and_v, self.correction, self.variance)
        self.append_rows("effects", torch.stack([self._scores, variance], -1).view(-1, 2))

    def compute(self) -> Tensor:
        # -> () float64, the combined effect, NaN without a finite sample
        e, v = self.effects.view(-1, 2).double().unbind(-1)
        is_valid = e.isfinite() & (v > 0)
        return random_effects(e[is_valid], v[is_valid]).value

    def measure(self, x: Vectors, y: Vectors, a: Vectors, b: Vectors) -> dict[str, Tensor]:
        options = (self.samples, self.seed, self.correction, self.variance)
        effect = ceat(x, y, a, b, *options, alternative=self.alternative)
        return {
            "ceat": effect.value,
            "p_value_random_effects": effect.details["p_value"],
            "standard_error": effect.details["se"],
            "tau2": effect.details["tau2"],
            "samples": torch.full_like(effect.value, self.samples),
        }

    def _interval_over_words(self, *pools: Vectors) -> Estimate:
        interval = super()._interval_over_words(*map(_rows_of_words, pools))
        return replace(interval, details={"effect_size": interval.value})

    def null_distributions(self, x: Vectors, y: Vectors, a: Vectors, b: Vectors) -> dict[str, NullDistribution]:
        first, second, *attributes = (_rows_of_words(pool) for pool in (x, y, a, b))
        sets = word_sets.read(x=first, y=second, a=attributes[0], b=attributes[1])
        return {"p_value": null_of(*associations(*word_sets.units(*sets)), first, second, self.seed)}

    def arguments(self, index: IndexedQuery, vectors: Tensor) -> tuple[WordSet, ...]:
        """Return the pools for `measure` from an indexed query.

        Shapes: vectors: (..., V, D) -> (..., W, K, D), with masks (W, K).
        """
        pools = (index.pools(role, i) for role in range(2) for i in range(2))
        return tuple(WordSet(vectors[..., rows, :], mask) for rows, mask in pools)
