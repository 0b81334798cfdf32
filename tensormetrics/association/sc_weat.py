"""Single-category WEAT: the association of each word by itself."""

from torch import Tensor

from . import _sets


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
    # w: (..., W, D)  a: (..., A, D)  b: (..., B, D)  masks: (..., W), (..., A), (..., B)  ->  (..., W) float64
    """The effect size of each word: (mean_a cos(w, a) - mean_b cos(w, b)) / sd of its A + B cosines.

    Positive: nearer to a. Within [-2, 2] for A = B and correction 0 (squares over A + B); 1 makes it the sample
    deviation (A + B - 1). NaN where the cosines do not vary, where a set is empty and where no word is. Masks, zero
    vectors and errors as in `weat`. Caliskan, Bryson & Narayanan 2017, doi:10.1126/science.aal4230.
    """
    _sets.check_correction(correction)
    w, a, b = _sets.read(w=(w, w_mask), a=(a, a_mask), b=(b, b_mask))
    w = w.unit()
    to_a, to_b = ((w.project_all(_sets.unit(side.vectors)), side.count.unsqueeze(-2)) for side in (a, b))
    return w.present(_sets.standardised(*_sets.difference_and_variance(to_a, to_b, correction)))


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
    # w: (..., W, D)  a: (..., A, D)  b: (..., B, D)  masks: (..., W), (..., A), (..., B)  ->  (...) float64
    """The mean of `sc_weat` over the words."""
    sizes = sc_weat(w, a, b, correction, w_mask=w_mask, a_mask=a_mask, b_mask=b_mask)
    if w_mask is None:
        return sizes.mean(-1)
    return (sizes.masked_fill(w_mask == 0, 0) * w_mask).sum(-1) / w_mask.sum(-1)
