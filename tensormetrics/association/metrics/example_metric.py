"""The metric of the guide to writing one's own."""

from collections.abc import Callable

from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ..resampling.null_distribution import Draws
from ..resampling.target_permutation import XYAWords, target_draws, target_permutation_p_value
from ..sets import word_sets
from ..sets.word_sets import XYAMasks
from .base import BaseMetric


def example_metric(
    x: Tensor,
    y: Tensor,
    a: Tensor,
    *,
    x_mask: Tensor | None = None,
    y_mask: Tensor | None = None,
    a_mask: Tensor | None = None,
) -> Tensor:
    """How much nearer the mean attribute is to y than to x: cos(mean y, mean a) - cos(mean x, mean a).

    Shapes: x: (..., X, D); y: (..., Y, D); a: (..., A, D); masks: (..., X), (..., Y), (..., A) -> (...) float64.

    In [-2, 2]; negative: nearer to x; swapping x and y changes the sign. Masks, empty sets, zero vectors and errors as
    in `weat`.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 1.0]])
    >>> example_metric(x, y, a)
    tensor(-0.1545, dtype=torch.float64)
    """
    x, y, a = (word_sets.unit(s.mean()) for s in word_sets.read(x=(x, x_mask), y=(y, y_mask), a=(a, a_mask)))
    return word_sets.dot(y - x, a)


class ExampleMetric(BaseMetric):
    """How much nearer the mean attribute is to the second target set than to the first; see `example_metric`."""

    metric_template = (2, 1)
    metric_name = "Example Metric"
    metric_short_name = "EM"
    result_keys = {"em": float}

    def measure(self, x: Tensor, y: Tensor, a: Tensor, **masks: Unpack[XYAMasks]) -> dict[str, Tensor]:
        return {"em": example_metric(x, y, a, **masks)}

    def measure_shared(
        self, targets: word_sets.Words, attributes: word_sets.Words, t: Tensor, a: Tensor
    ) -> dict[str, Tensor]:
        cosines = word_sets.unit(targets.mean()) @ word_sets.unit(attributes.mean()).mT  # (T, A)
        x, y = t.unbind(-1)
        return {"em": cosines[y, a[:, 0]] - cosines[x, a[:, 0]]}

    def score_function(self) -> Callable[..., Tensor]:
        return example_metric

    def p_values(
        self, x: Tensor, y: Tensor, a: Tensor, a_words: Tensor | None = None, **masks: Unpack[XYAWords]
    ) -> dict[str, Tensor]:
        # attribute words do not move
        return {"p_value": target_permutation_p_value(self.score_function(), x, y, a, **masks, **self._test())}

    def null_draws(
        self, x: Tensor, y: Tensor, a: Tensor, a_words: Tensor | None = None, **masks: Unpack[XYAWords]
    ) -> Draws:
        return target_draws(self.score_function(), x, y, a, seed=self.p_value_seed, **masks)
