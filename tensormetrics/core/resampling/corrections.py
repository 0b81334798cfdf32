"""Corrections of p-values for multiple tests."""

import torch
from torch import Tensor

from ..arguments import checks
from ..arguments.checks import takes_arrays
from ..numbers.exact_sums import ratio

CORRECTIONS = ("holm", "bh")


@takes_arrays
def correct_p_values(p_values: Tensor, correction: str = "holm") -> Tensor:
    """Correct the p-values of T tests, so that all tests with p <= .05 may be believed together.

    Args:
        p_values: P-values of the tests, in [0, 1]; other values are not counted as tests and become NaN.
        correction: "holm" controls the probability of even one false discovery (Holm 1979,
            https://www.jstor.org/stable/4615733), "bh" the expected fraction of false discoveries, for independent or
            positively dependent tests (Benjamini and Hochberg 1995, doi:10.1111/j.2517-6161.1995.tb02031.x).

    Shape:
        - p_values: ``(..., T)``

    Returns:
        The corrected p-values, (..., T) float64.

    Raises:
        ValueError: If the correction is unknown.

    >>> correct_p_values(torch.tensor([0.01, 0.03, 0.04]))
    tensor([0.0300, 0.0600, 0.0600], dtype=torch.float64)
    """
    checks.check_choice("correction", correction, CORRECTIONS)
    checks.shape("p_values", p_values, "...", "T")
    checks.floating("p_values", p_values)
    tested = (p_values >= 0) & (p_values <= 1)
    ordered, order = p_values.double().where(tested, torch.nan).sort(-1)  # NaN go last
    tests = ordered.isnan().logical_not().sum(-1, keepdim=True)
    rank = torch.arange(ordered.shape[-1], device=ordered.device)
    if correction == "holm":
        corrected = (ordered * (tests - rank)).nan_to_num(0).cummax(-1).values
    else:
        scaled = (ordered * tests / (rank + 1)).nan_to_num(torch.inf)
        corrected = scaled.flip(-1).cummin(-1).values.flip(-1)
    corrected = corrected.clamp(max=1).masked_fill(ordered.isnan(), torch.nan)
    return torch.empty_like(corrected).scatter_(-1, order, corrected)


class StepDown:
    """p-values of T tests from scores drawn together: the step-down maximum of Westfall & Young 1993, "max-t".

    The scores of each draw belong together, so that tests that rise and fall together cost little. Scores are large
    where the null hypothesis is wrong, and of one scale: Algorithm 2.8 of Westfall and Young, ISBN 978-0-471-55761-6.
    """

    def __init__(self, observed: Tensor) -> None:
        # observed: (T,) float64; NaN is no test
        self.observed, self.order = observed.nan_to_num(-torch.inf).sort(descending=True, stable=True)
        self.tested = observed.isnan().logical_not()
        self.hits, self.draws = torch.zeros_like(self.observed), 0

    def add(self, scores: Tensor) -> None:
        # scores: (R, T)
        """Add draws. A NaN score counts as -inf; scores that differ by rounding alone count as equal."""
        minimum = torch.full((), -torch.inf, dtype=scores.dtype, device=scores.device)
        scores = scores.where(self.tested & scores.isnan().logical_not(), minimum)[:, self.order]
        largest = scores.flip(-1).cummax(-1).values.flip(-1)  # of this test and the following ones
        self.hits += (largest >= self.observed - 1e-9).sum(0)
        self.draws += len(scores)

    def p_values(self) -> Tensor:
        # ->  (T,) float64
        p_values = ratio(1 + self.hits, 1 + self.draws).cummax(-1).values
        return torch.empty_like(p_values).scatter_(-1, self.order, p_values).where(self.tested, torch.nan)
