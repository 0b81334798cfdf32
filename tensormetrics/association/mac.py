"""Mean Average Cosine Similarity."""

import torch
from torch import Tensor

from . import _sets


@_sets.grouped("a")
def mac(
    t: Tensor, a: Tensor, *, t_mask: Tensor | None = None, a_mask: Tensor | None = None, per_word: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    # t: (..., T, D)  a: (..., J, W, D)  t_mask: (..., T)  a_mask: (..., J, W)  ->  (...) float64
    """The mean cosine distance of target words and attribute sets: mean over t and j of 1 - mean_w cos(t, a_jw).

    In [0, 2]; the name says similarity, but 1 is none and smaller is more alike. All (t, j) weigh the same.
    `per_word=True` also returns the distances (..., T, J). Masks, empty sets (of any j), zero vectors and errors as in
    `weat`. Manzini, Lim, Tsvetkov & Black 2019, arXiv:1904.04047.
    """
    t, a = _sets.read("a", t=(t, t_mask), a=(a, a_mask))
    t, centres = t.unit(), a.unit().mean()
    score = 1 - _sets.dot(t.mean(), centres.mean(-2))
    if not per_word:
        return score
    distances = 1 - t.project_all(centres)
    return score, distances.masked_fill((t.count == 0).unsqueeze(-1), torch.nan)
