"""The Word Embedding Association Test."""

from torch import Tensor

from . import _sets


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
    # x: (..., X, D)  y: (..., Y, D)  a: (..., A, D)  b: (..., B, D)  masks: (..., X) ... (..., B)  ->  (...) float64
    """How much more the targets x than the targets y go with the attributes a rather than b.

    sum_x s(w) - sum_y s(w), where s(w) = mean_a cos(w, a) - mean_b cos(w, b), which lies in [-2, 2]; 0 is no
    difference, and swapping x with y or a with b changes the sign. A mask is True where a word is; leading dimensions
    broadcast; an empty set gives NaN, a zero vector has cosine 0. ValueError for sizes that do not fit, TypeError for
    dtypes. Caliskan, Bryson & Narayanan 2017, doi:10.1126/science.aal4230.
    """
    x, y, a, b = _sets.read(x=(x, x_mask), y=(y, y_mask), a=(a, a_mask), b=(b, b_mask))
    x, y, axis = x.unit(), y.unit(), a.unit().mean() - b.unit().mean()
    # Empty targets: the sum would be 0, the mean is NaN.
    return x.size() * _sets.dot(x.mean(), axis) - y.size() * _sets.dot(y.mean(), axis)


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
    # x: (..., X, D)  y: (..., Y, D)  a: (..., A, D)  b: (..., B, D)  masks: (..., X) ... (..., B)  ->  (...) float64
    """`weat` in standard deviations: (mean_x s - mean_y s) / sd of s over all targets, a word in both counting twice.

    Within [-2, 2] for equally many targets and correction 0, which divides the squares by X + Y; correction 1 divides
    by X + Y - 1, the sample deviation. NaN where s does not vary or X + Y <= correction. Otherwise as `weat`.
    """
    _sets.check_correction(correction)
    x, y, a, b = _sets.read(x=(x, x_mask), y=(y, y_mask), a=(a, a_mask), b=(b, b_mask))
    axis = a.unit().mean() - b.unit().mean()
    u, v = x.unit().project(axis), y.unit().project(axis)
    return _sets.standardised(*_sets.difference_and_variance((u, x.count), (v, y.count), correction))
