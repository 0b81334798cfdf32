"""The words in which every domain says how sure a number is: `Estimate` and `Comparison`."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from ... import _checks


class Estimate(NamedTuple):
    """A value and the ends of its interval, (...) float64 each: as `value, low, high = metric.interval()`."""

    value: Tensor
    low: Tensor
    high: Tensor


class Comparison(NamedTuple):
    """What a has more than b, (...) float64 each; `p_better` respects that for some metrics less is better.

    `low` and `high` are the ends of the interval of the difference. `p_value` is that of the paired randomisation test
    that a and b are exchangeable, two-sided; NaN where a metric has none. `p_better` is the probability that a is
    better, ties counting half. `p_rope` is the probability that the difference lies within the region of practical
    equivalence, NaN where none was given.
    """

    difference: Tensor
    low: Tensor
    high: Tensor
    p_value: Tensor
    p_better: Tensor
    p_rope: Tensor


def check_confidence(confidence: float) -> float:
    """A number in (0, 1), or a ValueError."""
    _checks.number("confidence", confidence, "a number between 0 and 1", lambda x: 0 < x < 1)
    return float(confidence)


def interval_of(samples: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    # samples: (R, ...)  ->  low (...), high (...)
    """The quantiles (1 -+ confidence) / 2, linear between samples. NaN are left out, NaN if over half of them are."""
    tails = samples.new_tensor([(1 - confidence) / 2, (1 + confidence) / 2])
    ordered = samples.sort(0).values  # NaN go last
    defined = samples.isnan().logical_not().sum(0, keepdim=True)
    place = tails.view(2, *[1] * (samples.ndim - 1)) * (defined - 1).clamp(min=0)
    below = place.floor().long()
    above = torch.minimum(below + 1, (defined - 1).clamp(min=0))
    low, high = ordered.gather(0, below), ordered.gather(0, above)
    ends = torch.where(low == high, low, low.lerp(high, place - below))  # infinite ends as well
    return tuple(ends.where(2 * defined[0] > len(samples), torch.nan))


def estimates(value: Any, samples: Any, confidence: float) -> Any:
    # value: a tensor (...), or tensors by name; samples: the same, (R, ...)
    """An `Estimate` for each tensor of `value`."""
    values, spec = tree_flatten(value)
    found = [
        Estimate(middle, *interval_of(each, confidence))
        for middle, each in zip(values, tree_flatten(samples)[0], strict=True)
    ]
    return tree_unflatten(found, spec)


def as_scalars(
    values: Mapping[str, Any], prefix: str = "", labels: Mapping[str, Sequence[str]] | None = None
) -> dict[str, float]:
    """What a logger takes: "acc", "acc/low", "acc/high"; indices stand between, as in "tpr/0" and "tpr/0/low".

    `values` has an `Estimate`, a `Comparison` ("acc" is the difference) or a tensor (...) by name. `labels` gives for
    some of them the names that the last index stands for: {"tpr": ["cat", "dog"]}.

        self.log_dict(as_scalars(metric.interval()))

    >>> accuracy = Estimate(torch.tensor(0.9), torch.tensor(0.75), torch.tensor(1.0))
    >>> as_scalars({"acc": accuracy, "tpr": torch.tensor([0.5, 0.25])}, labels={"tpr": ["cat", "dog"]})
    {'acc': 0.8999999761581421, 'acc/low': 0.75, 'acc/high': 1.0, 'tpr/cat': 0.5, 'tpr/dog': 0.25}
    """
    scalars = {}
    for name, found in values.items():
        names = (labels or {}).get(name)
        fields = found._asdict() if hasattr(found, "_asdict") else {"value": found}
        for number, (field, tensor) in enumerate(fields.items()):
            for index, value in np.ndenumerate(torch.as_tensor(tensor).detach().cpu().numpy()):
                place = [*index[:-1], names[index[-1]]] if names else index
                scalars[prefix + "/".join([name, *map(str, place), *([field] if number else [])])] = float(value)
    return scalars
