"""The Generalized Word Embedding Association Test."""

from torch import Tensor

from . import _sets


@_sets.grouped("x", "a")
def gweat(
    x: Tensor, a: Tensor, *, x_mask: Tensor | None = None, a_mask: Tensor | None = None, per_group: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    # x: (..., G, X, D)  a: (..., G, A, D)  x_mask: (..., G, X)  a_mask: (..., G, A)  ->  (...) float64
    """Does each target group go with its own attribute group? sum_g (mean x_g - mu) . (mean a_g - nu).

    The means are of unit vectors, mu and nu the means of the group means. 0: no association; positive: as paired. For
    two groups it is half of the mean difference of WEAT. `per_group=True` also returns the terms (..., G). Masks,
    empty sets (of any group), zero vectors and errors as in `weat`; ValueError unless both sides have the same number
    of groups, at least two. Swinger et al. 2019, arXiv:1812.08769.
    """
    if x.shape[-3:-2] != a.shape[-3:-2] or x.shape[-3:-2] < (2,):
        got = f"{tuple(x.shape)} and {tuple(a.shape)}"
        raise ValueError(f"x, a: got shapes {got}, wanted equally many groups, at least 2: (..., G, W, D)")
    x, a = _sets.read("x", "a", x=(x, x_mask), a=(a, a_mask))
    x, a = x.unit().mean(), a.unit().mean()
    terms = _sets.dot(x - x.mean(-2, keepdim=True), a - a.mean(-2, keepdim=True))
    return (terms.sum(-1), terms) if per_group else terms.sum(-1)
