"""Multilevel Embedding Association Test: an association test decomposed into three levels."""

from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ...core.arguments.checks import takes_arrays
from ..resampling.null_distribution import NullDistribution
from ..sets import word_sets
from ..sets.word_sets import Vectors
from ._associations import associations, effect_size, null_of
from .base import AssociationOptions, BaseMetric


class MLEATResult(NamedTuple):
    """Three levels of the test, float64; the last dimensions are targets x, y and attributes a, b.

    effect (...): `weat_effect_size`, the difference of the associations of x and y with a rather than b.
    by_target (..., 2): the association of x, and of y, with a rather than b.
    mean, deviation (..., 2, 2): mean and standard deviation of the cosines of target words and attribute words.
    """

    effect: Tensor
    by_target: Tensor
    mean: Tensor
    deviation: Tensor


@takes_arrays
def ml_eat(x: Vectors, y: Vectors, a: Vectors, b: Vectors, correction: int = 1) -> MLEATResult:
    # x: (..., X, D)  y: (..., Y, D)  a: (..., A, D)  b: (..., B, D)  ->  `MLEATResult`
    """Compute associations at three levels: both targets against each other, each target, each target and attribute.

    Targets x (..., X, D), y (..., Y, D), attributes a (..., A, D), b (..., B, D), tensors or `WordSet`s. The second
    level is the difference of the means of cos(x, w) over the words w of a and of b, in standard deviations over their
    union, where cos(x, w) is the mean over the target; 0 is no association, positive values are nearer to a. The same
    first level may result from targets near to different attributes or to the same: `plot_eat_map` shows which. Squares
    are divided by the number of words minus `correction`. NaN and errors as in `weat_effect_size`. Wolfe, Hiniker &
    Howe 2024, arXiv:2408.01966.

        >>> x, y, a, b = torch.tensor([[[1.0, 0], [2, 1]], [[0, 1], [1, 3]], [[3, 1], [1, 0]], [[0, 2], [1, 2]]])
        >>> levels = ml_eat(x, y, a, b)
        >>> levels.effect, levels.by_target
        (tensor(1.6559, dtype=torch.float64), tensor([ 1.5305, -1.6457], dtype=torch.float64))
    """
    word_sets.check_correction(correction)
    words = word_sets.units(*word_sets.read(x=x, y=y, a=a, b=b))
    targets, attributes = words[:2], words[2:]
    effect = word_sets.effect_size(*associations(*words), correction)[1]
    by_target = [word_sets.effect_size(*_with(target, *attributes), correction)[1] for target in targets]
    moments = [[_moments(target, attribute, correction) for attribute in attributes] for target in targets]
    mean, deviation = (_table([[moment[i] for moment in row] for row in moments]) for i in (0, 1))
    return MLEATResult(effect, _table([by_target])[..., 0, :], mean, deviation)


def _table(rows: list[list[Tensor]]) -> Tensor:  # (...) each, broadcast  ->  (..., rows, columns)
    values = torch.broadcast_tensors(*(value for row in rows for value in row))
    return torch.stack(values, -1).unflatten(-1, (len(rows), -1))


def _with(target: word_sets.Words, a: word_sets.Words, b: word_sets.Words) -> tuple[word_sets.Values, word_sets.Values]:
    # unit vectors  ->  mean cosines with the target of the words of a (..., A) and of b (..., B), with their counts
    axis = target.mean()
    return (a.by_word(a.project(axis)), a.counts), (b.by_word(b.project(axis)), b.counts)


def _moments(target: word_sets.Words, attribute: word_sets.Words, correction: int) -> tuple[Tensor, Tensor]:
    # unit vectors  ->  (...), (...), mean and standard deviation of their cosines
    words = attribute.vectors if attribute.scale is None else attribute.vectors * attribute.scale.unsqueeze(-1)
    cosines = target.by_word(attribute.by_rows_of_others(target.project_all(words)), -2)
    count = target.weights.unsqueeze(-1) * attribute.weights.unsqueeze(-2)
    size = count.sum((-2, -1))
    mean = (cosines * count).sum((-2, -1)) / size
    squares = ((cosines - mean[..., None, None]).square() * count).sum((-2, -1))
    return mean, (squares / (size - correction).where(size > 0, torch.nan)).sqrt()


PAIRS = ("x_a", "x_b", "y_a", "y_b")


class MLEAT(BaseMetric):
    """Multilevel association test (ML-EAT), whose first level, the effect size of WEAT, is the score; see `ml_eat`.

    `details` of `run_query` has the second level, effect sizes of each target ("effect_size_x", "effect_size_y"), and
    the third, mean and standard deviation of the cosines of target and attribute ("mean_x_a", "deviation_x_a", ...).
    With `p_value`, both targets also have p-values.

    Args:
        correction: 0 or 1, subtracted from the number of words in variances.

    >>> x, y, a, b = torch.tensor([[[1.0, 0], [2, 1]], [[0, 1], [1, 3]], [[3, 1], [1, 0]], [[0, 2], [1, 2]]])
    >>> MLEAT()(x, y, a, b)  # vectors of two words each: targets x, y, attributes a, b
    tensor(1.6559, dtype=torch.float64)
    """

    metric_template = (2, 2)
    metric_name = "Multilevel Embedding Association Test"
    metric_short_name = "ML-EAT"
    function = staticmethod(effect_size)
    function_options = ("correction",)
    no_score = "the association with the attributes does not vary over the target words, or a vector is not finite"

    def __init__(self, *, correction: int = 1, **kwargs: Unpack[AssociationOptions]) -> None:
        super().__init__(**kwargs)
        self.correction = word_sets.check_correction(correction)

    def measure(self, x: Vectors, y: Vectors, a: Vectors, b: Vectors) -> dict[str, Tensor]:
        effect, by_target, mean, deviation = ml_eat(x, y, a, b, self.correction)
        results = {"ml_eat": effect, "effect_size_x": by_target[..., 0], "effect_size_y": by_target[..., 1]}
        for name, values in (("mean", mean), ("deviation", deviation)):
            results |= {
                f"{name}_{pair}": value for pair, value in zip(PAIRS, values.flatten(-2).unbind(-1), strict=True)
            }
        return results

    def null_distributions(self, x: Vectors, y: Vectors, a: Vectors, b: Vectors) -> dict[str, NullDistribution]:
        first, second, *attributes = word_sets.units(*word_sets.read(x=x, y=y, a=a, b=b))
        return {
            "p_value": null_of(*associations(first, second, *attributes), x, y, self.seed),
            "p_value_x": null_of(*_with(first, *attributes), a, b, self.seed),
            "p_value_y": null_of(*_with(second, *attributes), a, b, self.seed),
        }
