"""Comparison of two scores by draws from their posteriors."""

import dataclasses

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.resampling.intervals import DrawSets
from ...core.resampling.resampling import FlatValues
from ...core.resampling.statements import Evidence, Question, statements
from ...core.results.estimates import Comparison, check_confidence, check_rope
from .samples import sort_samples, sorted_median


@takes_arrays
def compare_samples(
    a: Tensor,
    b: Tensor,
    *,
    observed: Tensor | float | None = None,
    confidence: float = 0.95,
    rope: float | None = None,
    higher_is_better: bool = True,
) -> Comparison:
    """Compare two scores by draws from their posteriors.

    Draw s of a is paired with draw s of b. For two models on the same items prefer `compare`, whose p-value is also
    that of a test that swaps the models item by item: if only a answers 1 of 30 items correctly, `compare` gives p = 1
    and p_better = .75, but draws of both accuracies p = .36 and p_better = .82. Both intervals are about [-.05, .13].

    Args:
        a: Draws of a score.
        b: Draws of another score, paired with the draws of a.
        observed: Observed difference a - b; None: the median of the draws' differences.
        confidence: Mass of the interval between quantiles of the draws, in (0, 1).
        rope: Differences up to it do not matter in practice, in units of the scores; None: no such region.
        higher_is_better: Whether `p_better` means higher scores.

    Shape:
        - a, b: ``(S, ...)``
        - observed: ``(...)``
        - Output: ``(...)``, float64

    Returns:
        The difference a - b. `p_value` is two-sided: twice the smaller of the fractions of draws above and below 0, at
        least 2 / (1 + S). Draws for which a or b is NaN are left out; `details` has their "nan_fraction".

    Raises:
        ValueError: If shapes differ, there are no draws, or an option is out of range.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> a, b = torch.tensor([0.93, 0.90])[:, None] + 0.02 * torch.randn(2, 2000, generator=generator)
        >>> result = compare_samples(a, b, rope=0.01)
        >>> print(f"{result:.2f}, P(a better) = {result.p_better:.2f}, P(equivalent) = {result.p_rope:.2f}")
        +0.03 [-0.02, +0.08], p = 0.271, P(a better) = 0.86, P(equivalent) = 0.16
    """
    checks.floating("a", a)
    checks.floating("b", b)
    checks.shape("a", a, "S", *a.shape[1:])
    checks.shape("b", b, *a.shape)
    checks.same_device(a=a, b=b)
    check_confidence(confidence)
    check_rope(rope)
    return comparison_of_draws(a.double() - b.double(), observed, confidence, rope, higher_is_better)


def comparison_of_draws(
    draws: Tensor,
    observed: Tensor | float | None,
    confidence: float,
    rope: float | None,
    higher_is_better: bool,
) -> Comparison:
    # draws: (S, ...) float64, of the difference  observed: (...)  ->  (...)
    """Return interval, p-value and probability, which agree on whether 0 is excluded."""
    if not len(draws):
        raise ValueError("draws: got none, wanted at least one")
    flat = draws.flatten(1) if draws.ndim > 1 else draws[:, None]
    difference = draws.new_empty(draws.shape[1:])
    difference.copy_(sorted_median(*sort_samples(draws, 0)) if observed is None else torch.as_tensor(observed))
    leaves, spec = tree_flatten(difference)
    unknown = difference.new_full((), torch.inf)
    evidence = Evidence(
        difference=difference.flatten(),
        draws=DrawSets(flat, flat, *(torch.zeros_like(flat[0], dtype=torch.bool),) * 2),
        range=(-unknown, unknown),
        test=None,
    )
    fields = {"test": "draws", "higher_is_better": higher_is_better}
    question = Question(confidence, rope=rope, direction=lambda name: higher_is_better)
    comparison = statements(FlatValues(torch.as_tensor, leaves, spec), evidence, question, fields, "")
    undefined = draws.isnan().double().mean(0)
    return dataclasses.replace(comparison, details={**comparison.details, "nan_fraction": undefined})
