"""Log probability bias score of masked language models."""

from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.resampling.weights import ResamplingUnits
from ._score_sums import MeanScore, masked_mean


@takes_arrays
def lpbs(x: Tensor, x_prior: Tensor, y: Tensor, y_prior: Tensor, *, mask: Tensor | None = None) -> Tensor:
    # x, x_prior, y, y_prior, mask: (..., N)  ->  (...) float64
    """Compute how much more an attribute raises the log-probability of one target than of another, in nats.

    The mean over N sentences of (x - x_prior) - (y - y_prior), of log-probabilities, (..., N) each: x and y of the two
    targets, such as "he" and "she", in "[MASK] is a programmer", and the priors in the same sentence with the attribute
    masked too. Real; 0 is no bias, positive values favor x, swapping x and y changes the sign. `mask` (..., N) is True
    for sentences. NaN without a sentence. ValueError for different shapes, TypeError for integers. Kurita et al. 2019,
    arXiv:1906.07337.

        >>> p = torch.tensor([[0.4, 0.2], [0.2, 0.2], [0.1, 0.3], [0.2, 0.2]])
        >>> lpbs(*p.log())
        tensor(0.4904, dtype=torch.float64)
    """
    return masked_mean(_scores(x, x_prior, y, y_prior), mask)


def _scores(x: Tensor, x_prior: Tensor, y: Tensor, y_prior: Tensor) -> Tensor:
    # (..., N) each  ->  (..., N) float64
    inputs = {"x": x, "x_prior": x_prior, "y": y, "y_prior": y_prior}
    for name, log_p in inputs.items():
        checks.tensor(name, log_p)
        if not log_p.is_floating_point():
            raise TypeError(f"{name}: got {log_p.dtype}, wanted logarithms of probabilities; write {name}.log()")
        if log_p.ndim < 1:
            raise ValueError(f"{name}: got shape (), wanted (..., N)")
        checks.shape(name, log_p, *x.shape)
    checks.same_device(**inputs)
    x, x_prior, y, y_prior = (log_p.double() for log_p in inputs.values())
    return (x - x_prior) - (y - y_prior)


class LPBS(MeanScore):
    """Mean of `lpbs` over the sentences of all updates, with `replicates` also its interval.

    A sentence with a non-finite score, for example of a token of probability 0, is ignored and counted in `not_finite`.

    >>> metric = LPBS()
    >>> metric.update(*torch.tensor([[0.4, 0.2], [0.2, 0.2], [0.1, 0.3], [0.2, 0.2]]).log())
    >>> metric.compute()
    tensor(0.4904, dtype=torch.float64)
    """

    def update(self, x: Tensor, x_prior: Tensor, y: Tensor, y_prior: Tensor, **items: Unpack[ResamplingUnits]) -> None:
        # x, x_prior, y, y_prior: (N,)  ids, groups: (N,) integer or names
        """Add sentences: log-probabilities (N,) of both targets, with and without the attribute."""
        checks.shape("x", x, "N")
        self.add_scores(_scores(x, x_prior, y, y_prior), **items)
