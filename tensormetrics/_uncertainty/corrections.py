"""p-values of many questions asked at once."""

import torch
from torch import Tensor

from .. import _checks

CORRECTIONS = ("holm", "bh")


def correct_p_values(p_values: Tensor, correction: str = "holm") -> Tensor:
    """The p-values of T tests, such that those of at most .05 may be believed together.

    Shapes: p_values: (..., T) -> (..., T) float64.

    "holm" keeps the chance of even one false discovery (Holm 1979, https://www.jstor.org/stable/4615733), "bh" the
    expected share of false ones among the discoveries, for independent or positively dependent tests (Benjamini and
    Hochberg 1995, doi:10.1111/j.2517-6161.1995.tb02031.x). In [0, 1]; what is not is no test, and NaN. ValueError for
    another correction.

    >>> correct_p_values(torch.tensor([0.01, 0.03, 0.04]))
    tensor([0.0300, 0.0600, 0.0600], dtype=torch.float64)
    """
    _checks.one_of("correction", correction, CORRECTIONS)
    _checks.shape("p_values", p_values, "...", "T")
    _checks.floating("p_values", p_values)
    tested = (p_values >= 0) & (p_values <= 1)
    ordered, order = p_values.double().where(tested, torch.nan).sort(-1)  # NaN go last
    tests = ordered.isnan().logical_not().sum(-1, keepdim=True)
    place = torch.arange(ordered.shape[-1], device=ordered.device)
    if correction == "holm":
        corrected = (ordered * (tests - place)).nan_to_num(0).cummax(-1).values
    else:
        share = (ordered * tests / (place + 1)).nan_to_num(torch.inf)
        corrected = share.flip(-1).cummin(-1).values.flip(-1)
    corrected = corrected.clamp(max=1).masked_fill(ordered.isnan(), torch.nan)
    return torch.empty_like(corrected).scatter_(-1, order, corrected)
