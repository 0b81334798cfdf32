"""The Word Embedding Association Test."""

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from . import _sets
from ._call import check_flag
from .base_metric import BaseMetric
from .permutation import permutation_p_value


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
    x, y, axis = _targets_and_axis(x, y, a, b, x_mask, y_mask, a_mask, b_mask)
    return total_difference(x, y, axis)


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
    x, y, axis = _targets_and_axis(x, y, a, b, x_mask, y_mask, a_mask, b_mask)
    return effect_size(x, y, axis, correction)


def _targets_and_axis(
    x: Tensor,
    y: Tensor,
    a: Tensor,
    b: Tensor,
    x_mask: Tensor | None = None,
    y_mask: Tensor | None = None,
    a_mask: Tensor | None = None,
    b_mask: Tensor | None = None,
) -> tuple[_sets.Words, _sets.Words, Tensor]:
    # ->  x and y as unit vectors, and the axis (..., D) on which s(w) is the place of the unit vector of w
    x, y, a, b = _sets.read(x=(x, x_mask), y=(y, y_mask), a=(a, a_mask), b=(b, b_mask))
    return x.unit(), y.unit(), a.unit().mean() - b.unit().mean()


def total_difference(x: _sets.Words, y: _sets.Words, axis: Tensor) -> Tensor:
    # x, y: unit vectors  axis: (..., D)  ->  (...)
    # Empty targets: the sum would be 0, the mean is NaN.
    return x.size() * _sets.dot(x.mean(), axis) - y.size() * _sets.dot(y.mean(), axis)


def effect_size(x: _sets.Words, y: _sets.Words, axis: Tensor, correction: int) -> Tensor:
    # x, y: unit vectors  axis: (..., D)  ->  (...)
    u, v = x.project(axis), y.project(axis)
    return _sets.standardised(*_sets.difference_and_variance((u, x.count), (v, y.count), correction))


class WEAT(BaseMetric):
    """See `weat`; `run_query` also gives `weat_effect_size`, as `result` if `return_effect_size`."""

    metric_template = (2, 2)
    metric_name = "Word Embedding Association Test"
    metric_short_name = "WEAT"
    by_position = False
    result_keys = {"weat": float, "effect_size": float, "p_value": float}

    def __init__(self, *, return_effect_size: bool = False, correction: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_flag("return_effect_size", return_effect_size)
        self.return_effect_size = return_effect_size
        _sets.check_correction(correction)
        self.correction = correction

    def measure(self, x: Tensor, y: Tensor, a: Tensor, b: Tensor, **masks: Tensor) -> dict[str, Tensor]:
        x, y, axis = _targets_and_axis(x, y, a, b, **masks)
        score, effect = total_difference(x, y, axis), effect_size(x, y, axis, self.correction)
        return {"result": effect if self.return_effect_size else score, "weat": score, "effect_size": effect}

    def score_function(self) -> Callable[..., Tensor]:
        if self.return_effect_size:
            return functools.partial(weat_effect_size, correction=self.correction)
        return weat

    def p_values(self, x: Tensor, y: Tensor, a: Tensor, b: Tensor, **masks: Tensor) -> dict[str, Tensor]:
        u, v, axis = _targets_and_axis(x, y, a, b, **masks)
        sides = {f"{name}_mask": masks[key] for name, key in (("u", "x_mask"), ("v", "y_mask")) if key in masks}
        return {"p_value": permutation_p_value(u.project(axis), v.project(axis), **sides, **self._test())}
