"""Mean Average Cosine Similarity."""

from typing import Any, Literal, overload

import torch
from torch import Tensor

from ..embeddings.query import IndexedQuery
from ..sets import marks, word_sets
from ..sets.word_sets import Vectors
from .base import BaseMetric, by_set, by_word


@overload
def mac(t: Vectors, a: Vectors, *, per_word: Literal[False] = ...) -> Tensor: ...
@overload
def mac(t: Vectors, a: Vectors, *, per_word: Literal[True]) -> tuple[Tensor, Tensor]: ...
@marks.score(grouped=("a",), range=(0, 2))
def mac(t: Vectors, a: Vectors, *, per_word: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """Compute the mean cosine distance of target words and attribute sets: mean over t, j of 1 - mean_w cos(t, a_jw).

    Shapes: t: (..., T, D); a: (..., J, W, D), tensors or `WordSet`s -> (...) float64.

    In [0, 2]; despite the name 1 is no similarity, and smaller is more similar. All (t, j) have the same weight.
    `per_word=True` also returns the distances (..., T, J). Empty sets (of any j), zero vectors and errors as in
    `weat`. Manzini, Lim, Tsvetkov & Black 2019, arXiv:1904.04047.

    >>> t = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    >>> a = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])  # two attribute sets of one word
    >>> mac(t, a)
    tensor(0.3292, dtype=torch.float64)
    """
    t, a = word_sets.read("a", t=t, a=a)
    t, centers = t.unit(), a.unit().mean()
    score = 1 - word_sets.dot(t.mean(), centers.mean(-2))
    if not per_word:
        return score
    distances = 1 - t.project_all(centers)
    return score, distances.masked_fill((t.weights == 0).unsqueeze(-1), torch.nan)


class MAC(BaseMetric):
    """Mean cosine distance of target words and attribute sets, 1 = no similarity; see `mac`.

    `targets_eval` has the distance of every target word to every attribute set.
    """

    metric_template = ("n", "n")
    metric_name = "Mean Average Cosine Similarity"
    metric_short_name = "MAC"
    function = staticmethod(mac)
    forms = ("joined", "n")

    def measure(self, t: Vectors, a: Vectors) -> dict[str, Tensor]:
        score, distances = mac(t, a, per_word=True)
        return {"mac": score, "targets_eval": distances}

    def describe(self, values: dict[str, Tensor], index: IndexedQuery) -> dict[str, Any]:
        names, targets_eval = index.query.attribute_sets_names, {}
        of_sets = by_set(index.row_words[0], values["targets_eval"])
        for target, (words, distances) in zip(index.query.target_sets_names, of_sets, strict=True):
            columns = [by_word(words, column) for column in distances.T]
            of_words = zip(*(column.values() for column in columns), strict=True)
            targets_eval[target] = {
                word: dict(zip(names, of_word, strict=True)) for word, of_word in zip(columns[0], of_words, strict=True)
            }
        return {**values, "targets_eval": targets_eval}
