"""Double-hard debiasing: a principal component related to word frequency is removed before the bias direction."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...core.arguments import checks
from ..embeddings.model import WordEmbeddingModel
from ..embeddings.vocabulary import chunks, rewrite
from ..metrics._clusters import k_means, rows_at
from ..sets import word_sets
from . import base
from .base import Debias


class DoubleHardDebias(Debias):
    """Double-hard debiasing: v -> v - mean - (u.v) u, then without g, for the principal component u with least bias.

    g is the first right singular vector of the definitional pairs, each centered; mean and principal components are
    those of the full table. The words to debias are ordered by the difference of their cosines with the two words of
    `bias_representation`; those at both ends select u: for each of the first components they are debiased and clustered
    by 2-means (10 starts); u is the component with the least agreement of clusters and groups. Wang et al. 2020,
    arXiv:2005.00965.

    Args:
        pca_args, incremental_pca: Have no effect: the components are computed in one pass over the table.
        n_words: Number of words at each end, at most half.
        n_components: Number of components from which u is selected.
        seed: Seed of the starts.
        scope: "all" debiases every target word, "biased" only the selecting words.

    >>> generator = torch.Generator().manual_seed(0)
    >>> words = ["he", "she", *(f"word {k}" for k in range(18))]
    >>> model = WordEmbeddingModel.from_tensor(torch.randn(20, 8, generator=generator), words)
    >>> method = DoubleHardDebias(n_words=5, n_components=2)
    >>> method.fit(model, definitional_pairs=[["he", "she"]], bias_representation=["he", "she"]).transform(model)
    <WordEmbeddingModel named 'Unnamed model_debiased' with 20 word embeddings of 8 dims>
    """

    changes_rows_together = True
    fitted = ("bias_direction", "mean", "components", "representation")

    def __init__(
        self,
        pca_args: dict[str, int] | None = None,
        *,
        n_words: int = 1000,
        n_components: int = 4,
        seed: int | None = 0,
        scope: str = "all",
        incremental_pca: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        checks.check_choice("scope", scope, ("all", "biased"))
        checks.check_flag("incremental_pca", incremental_pca)
        base.num_components(pca_args)
        self.n_words = checks.check_int("n_words", n_words, 1)
        self.n_components = checks.check_int("n_components", n_components, 1)
        self.seed = None if seed is None else checks.check_int("seed", seed, 0)
        self.scope = scope

    def fit(
        self, model: WordEmbeddingModel, definitional_pairs: Sequence[Sequence[str]], bias_representation: Sequence[str]
    ) -> "DoubleHardDebias":
        """Fit the direction and the principal components; `bias_representation` has one word for each group.

        Pairs with an unknown word are left out. ValueError unless there are two words, for an unknown word of these, if
        no pair is left, or if a vector of the table is not finite, as its principal components depend on all rows.
        """
        pairs = base.word_tuples("definitional_pairs", definitional_pairs, 2)
        two = base.word_tuples("bias_representation", [bias_representation], 2)
        representation = base.vectors_of_tuples("bias_representation", model, two)[0]
        vectors = base.vectors_of_tuples("definitional_pairs", model, pairs)
        base.check_finite("model", model, torch.arange(len(model.vectors), device=model.vectors.device))
        self.say("finding the principal components of the table")
        return self.fit_tensors(vectors, model.vectors, representation)

    @torch.no_grad()
    def fit_tensors(self, pairs: Tensor, table: Tensor, representation: Tensor) -> "DoubleHardDebias":
        # pairs: (..., P, 2, D)  table: (..., V, D)  representation: (..., 2, D)
        pairs = base.read("pairs", pairs, "...", "P", 2, "D")
        self.bias_direction = base.subspace(pairs, 1).squeeze(-2)
        self.representation = base.read("representation", representation, "...", 2, pairs.shape[-1]).clone()
        self.mean, self.components = _principal(table, self.n_components)
        return self

    @torch.no_grad()
    def forward(self, vectors: Tensor) -> Tensor:
        """Return debiased vectors.

        Shapes: vectors: (..., N, D), N >= 2 -> (..., N, D) float64.
        """
        vectors = self.read("vectors", vectors, "N")
        judges = _extremes(self._leaning(vectors), self.n_words)
        component = self._best_component(rows_at(vectors, judges))
        result = self._debiased(vectors, component)
        if self.scope == "all":
            return result
        biased = torch.zeros(result.shape[:-1], dtype=torch.bool, device=result.device).scatter(-1, judges, True)
        return result.where(biased.unsqueeze(-1), vectors)

    def write(self, table: Tensor, model: WordEmbeddingModel, rows: Tensor) -> None:
        leaning = torch.cat([self._leaning(vectors) for _, vectors in chunks(table, rows)])
        judges = rows[_extremes(leaning, self.n_words)]
        self.say(f"comparing {self.n_components} principal components on {len(judges)} words")
        component = self._best_component(word_sets.as_words(table[judges], None).vectors)
        rewrite(table, rows if self.scope == "all" else judges, lambda vectors: self._debiased(vectors, component))

    def _leaning(self, vectors: Tensor) -> Tensor:
        # vectors: (..., N, D)  ->  (..., N), positive if nearer to the first word of the representation
        first, second = word_sets.unit(self.representation).unbind(-2)
        return word_sets.matvec(word_sets.unit(vectors), first - second)

    def _best_component(self, judges: Tensor) -> Tensor:
        # judges: (..., 2 n, D), groups concatenated  ->  (..., 1, D)
        n = judges.shape[-2] // 2
        second = torch.arange(2 * n, device=judges.device) >= n
        agreement = []
        for component in self.components.unbind(-2):
            part, _ = k_means(self._debiased(judges, component.unsqueeze(-2)), 2, self.seed)
            same = (part == second).double().mean(-1)
            agreement.append(torch.maximum(same, 1 - same))
        best = torch.stack(agreement, -1).argmin(-1, keepdim=True)
        return rows_at(self.components, best)

    def _debiased(self, vectors: Tensor, component: Tensor) -> Tensor:
        # vectors: (..., N, D)  component: (..., 1, D)  ->  (..., N, D)
        rest = base.without(vectors, component) - self.mean.unsqueeze(-2)
        return base.without(rest, self.bias_direction.unsqueeze(-2))


def _principal(table: Tensor, k: int) -> tuple[Tensor, Tensor]:
    # table: (..., V, D)  ->  mean (..., D), components (..., k, D)
    """Compute the mean and the first principal components, from a covariance matrix over chunks of rows."""
    checks.shape("table", table, "...", "V", "D")
    checks.floating("table", table)
    parts = table.split(max(1, base.CHUNK * table.shape[-1] // max(1, table[..., :1, :].numel())), -2)
    sums = (word_sets.as_words(part, None).vectors.sum(-2) for part in parts)
    mean = functools.reduce(torch.add, sums) / table.shape[-2]
    centered = (word_sets.as_words(part, None).vectors - mean.unsqueeze(-2) for part in parts)
    covariance = functools.reduce(torch.add, (rows.mT @ rows for rows in centered))
    _, axes = torch.linalg.eigh(covariance)  # ascending
    return mean, axes.mT.flip(-2)[..., :k, :]


def _extremes(leaning: Tensor, n: int) -> Tensor:
    # leaning: (..., N)  ->  (..., 2 n), the indices of the n lowest and the n highest, n <= N / 2
    n = min(n, leaning.shape[-1] // 2)
    if not n:
        raise ValueError(f"DoubleHardDebias: got {leaning.shape[-1]} vectors, wanted at least 2 to compare")
    order = leaning.argsort(stable=True, dim=-1)
    return torch.cat([order[..., :n], order[..., -n:]], -1)
