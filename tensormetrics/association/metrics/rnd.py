"""Relative Norm Distance."""

from typing import Literal, get_args, overload

import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ...core.arguments import checks
from ..resampling.null_distribution import NullDistribution
from ..resampling.target_permutation import target_null
from ..sets import marks, word_sets
from ..sets.word_sets import Vectors
from .base import AssociationOptions, BaseMetric

Distance = Literal["norm", "cos", "cos_similarity"]


@overload
def rnd(x: Vectors, y: Vectors, a: Vectors, distance: Distance = ..., *, per_word: Literal[False] = ...) -> Tensor: ...
@overload
def rnd(
    x: Vectors, y: Vectors, a: Vectors, distance: Distance = ..., *, per_word: Literal[True]
) -> tuple[Tensor, Tensor]: ...


@marks.score(biased=(("x", "y"), lambda options: options.get("distance", "norm") == "norm"))
def rnd(
    x: Vectors, y: Vectors, a: Vectors, distance: Distance = "norm", *, per_word: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute the mean difference of distances of attribute words to the means of x and y: mean_a d(a, x) - d(a, y).

    Shapes: x: (..., X, D); y: (..., Y, D); a: (..., A, D), tensors or `WordSet`s -> (...) float64.

    `distance` is "norm" (Euclidean), "cos" (1 - cosine) or "cos_similarity" (the cosine, with the opposite sign).
    Negative: nearer to x; 0: no difference; swapping x and y changes the sign. `per_word=True` also returns the
    differences (..., A). The mean of fewer words is noisier and therefore further from all words: "norm" of target sets
    of unequal size is biased towards the larger one, by about 8 % of the distance for 5 against 50 words of one
    population. Use "cos", or `corrected` of `RND`. Empty sets, zero vectors and errors as in `weat`; ValueError for
    another distance. Garg, Schiebinger, Jurafsky & Zou 2018, doi:10.1073/pnas.1720347115.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 1.0]])
    >>> rnd(x, y, a)
    tensor(-0.4343, dtype=torch.float64)
    """
    checks.check_choice("distance", distance, get_args(Distance))
    x, y, a = word_sets.read(x=x, y=y, a=a)
    if distance == "norm":
        to_x, to_y = (torch.linalg.vector_norm(a.vectors - s.mean().unsqueeze(-2), dim=-1) for s in (x, y))
        difference = to_x - to_y
    else:
        cosine_difference = a.unit().project(word_sets.unit(x.mean()) - word_sets.unit(y.mean()))
        difference = cosine_difference if distance == "cos_similarity" else -cosine_difference
    score = a.average(difference)
    return (score, a.mask_absent(difference)) if per_word else score


class RND(BaseMetric):
    """Relative norm distance: mean difference of distances of attribute words to two target sets; see `rnd`.

    `details` of `run_query` has the difference of each attribute word as `distance_by_word`. With `replicates` and
    `distance="norm"`, it has as `corrected` the score without the bias of unequal target sets, and the interval is for
    this score.

    Args:
        distance: ``"norm"``, Euclidean; ``"cos"``, 1 - cosine similarity; or ``"cos_similarity"``.
    """

    metric_template = (2, 1)
    metric_name = "Relative Norm Distance"
    metric_short_name = "RND"
    function = staticmethod(rnd)
    function_options = ("distance",)
    values_by_word = {"distance_by_word": 1}

    def __init__(self, *, distance: Distance = "norm", **kwargs: Unpack[AssociationOptions]) -> None:
        super().__init__(**kwargs)
        checks.check_choice("distance", distance, get_args(Distance))
        self.distance: Distance = distance

    def measure(self, x: Vectors, y: Vectors, a: Vectors) -> dict[str, Tensor]:
        score, differences = rnd(x, y, a, self.distance, per_word=True)
        return {"rnd": score, "distance_by_word": differences}

    def measure_shared(
        self, targets: word_sets.Words, attributes: word_sets.Words, t: Tensor, a: Tensor
    ) -> dict[str, Tensor]:
        means = targets.mean()
        if self.distance == "norm":
            distances = torch.cdist(attributes.vectors, means, compute_mode="donot_use_mm_for_euclid_dist")
        else:
            cosines = attributes.unit().project_all(word_sets.unit(means))
            distances = cosines if self.distance == "cos_similarity" else 1 - cosines
        nearness = word_sets.Words(distances, attributes.counts).mean()  # (A, T)
        x, y = t.unbind(-1)
        return {"rnd": nearness[a[:, 0], x] - nearness[a[:, 0], y]}

    def null_distributions(self, x: Vectors, y: Vectors, a: Vectors) -> dict[str, NullDistribution]:
        return {"p_value": target_null(self.score_function(), x, y, a, self.seed)}
