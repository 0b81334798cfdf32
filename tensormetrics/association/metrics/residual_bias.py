"""Accuracy of recovering classes of words from their vectors, for instance after debiasing."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from typing_extensions import Unpack  # torch brings it

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.metric.base import Options
from ...core.metric.row_metric import RowMetric
from ...core.numbers.exact_sums import cumulative_mass, index_add
from ...core.resampling.means import resampled_means
from ...core.resampling.resampling import Resampled
from ...core.resampling.weights import ItemNames, ResamplingUnits, check_draws, units
from ...core.results.estimates import Estimate
from ...core.results.score_table import ScoreTable
from ..embeddings.vocabulary import CHUNK
from ..resampling.folds import deal_words, word_keys
from ..sets import word_sets
from ._clusters import k_means, largest_cosines
from ._linear_probe import check_rows, fit_probes, predicted_classes, standardize

NAMES = "linear_probe", "k_means", "nearest_neighbors", "majority"


@takes_arrays
@torch.no_grad()
def residual_bias(
    vectors: Tensor,
    labels: Tensor,
    words: Any = None,
    *,
    folds: int = 5,
    neighbors: int = 15,
    C: float = 1.0,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Compute the accuracies with which classifiers recover the classes of words from their vectors.

    A projection that makes a bias score 0 may leave the classes recoverable. Each accuracy is cross-validated by word:
    a word is predicted by classifiers of the words in the other folds. All rows of a word are in one fold, and a word
    has weight 1, in training as in the mean.

    Fit a debiasing method to other words than the measured ones. If `LEACE` is fitted to the same words, their classes
    have equal means over all folds, so the means of the other folds differ in the opposite direction, and a linear
    probe is less accurate than chance.

    - ``linear_probe``: logistic regression, one-vs-rest for more than two classes.
    - ``k_means``: one cluster per class, found without labels; a cluster predicts its most frequent class.
    - ``nearest_neighbors``: the most frequent class of the nearest words, by cosine.
    - ``majority``: the most frequent class of the other folds, the chance level.

    Args:
        vectors: Vectors of the words; a word may have several, such as those of its contexts.
        labels: Class of each row, any integers.
        words: Word of each row, as names or integers; by default each row is a word. With words the result does not
            depend on the order of the rows.
        folds: Number of folds, at most one for each word.
        neighbors: Number of nearest words that vote; ties are for the smaller label.
        C: Inverse strength of the penalty |w|^2 / 2, for vectors whose dimensions have a mean variance of 1.
        seed: Seed of the folds and of the first centers of clusters.

    Shape:
        - vectors: ``(..., N, D)``; leading dimensions, such as layers, share folds where they share labels
        - labels: ``(N,)`` or ``(..., N)``; words: ``(N,)``
        - Output: ``(...)`` each, float64

    Returns:
        The accuracies by name, NaN for fewer than two words and where a vector is not finite.

    Raises:
        ValueError: If shapes do not match, or an option is out of range.

    Example:
        >>> labels = torch.arange(60) % 2
        >>> vectors = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)) + 2 * labels[:, None]
        >>> {name: round(float(accuracy), 2) for name, accuracy in residual_bias(vectors, labels).items()}
        {'linear_probe': 0.97, 'k_means': 0.97, 'nearest_neighbors': 0.78, 'majority': 0.5}

    References:
        Gonen & Goldberg 2019, doi:10.18653/v1/N19-1061
    """
    _check_options(folds, neighbors, C, seed)
    check_rows(vectors, labels)
    size, device = vectors.shape[-2], vectors.device
    word_ids = torch.arange(size, device=device) if words is None else units("words", words, size, device)
    return _named(_word_scores(vectors, labels, word_ids, folds, neighbors, C, seed)[0])


def _named(scores: Tensor) -> dict[str, Tensor]:
    # scores: (..., W, 4)  ->  (...) each
    return dict(zip(NAMES, scores.mean(-2).unbind(-1), strict=True))


def _check_options(folds: int, neighbors: int, C: float, seed: int) -> None:
    checks.check_int("folds", folds, 2)
    checks.check_int("neighbors", neighbors, 1)
    checks.check_number("C", C, "a number > 0", lambda x: x > 0)
    checks.check_int("seed", seed, 0)


def _word_scores(
    vectors: Tensor, labels: Tensor, words: Tensor, folds: int, neighbors: int, C: float, seed: int
) -> tuple[Tensor, Tensor]:
    # vectors: (..., N, D)  labels: (N,) or (..., N)  words: (N,) int64
    # ->  (..., W, 4), the fraction of rows of each word that are predicted correctly  (W,) int64, the words
    word_ids, word_index, counts = words.unique(return_inverse=True, return_counts=True)
    if len(word_ids) < 2 or not vectors.numel():
        shape = *vectors.shape[:-2], len(word_ids), len(NAMES)
        return torch.full(shape, torch.nan, dtype=torch.float64, device=vectors.device), word_ids
    order = word_keys(words, seed).argsort(stable=True)  # so that the result does not depend on the order of rows
    word_index, weights = word_index[order], (1 / counts.double())[word_index[order]]
    classes = labels[..., order].unique(return_inverse=True)[1].expand(vectors.shape[:-1])
    rows = word_sets.as_words(vectors[..., order, :], None).vectors
    is_finite = rows.isfinite().all(-1).all(-1)
    rows = rows.where(is_finite[..., None, None], 0)
    num_folds = min(folds, len(word_ids))
    fold = deal_words(classes, words[order], seed)[0] % num_folds  # (..., N)
    members = one_hot(classes, max(2, int(classes.max()) + 1)).to(rows.dtype)  # (..., N, K)
    training = weights * (
        fold.unsqueeze(-2) != torch.arange(num_folds, device=fold.device).unsqueeze(-1)
    )  # (..., F, N)
    standardized = standardize(rows, weights.expand(rows.shape[:-1]))
    probed = predicted_classes(standardized.unsqueeze(-3), *fit_probes(standardized, members, training, C))
    predictions = [
        probed.gather(-2, fold.unsqueeze(-2)).squeeze(-2),
        _clustered(rows, members, training, seed).gather(-2, fold.unsqueeze(-2)).squeeze(-2),
        _voted(rows, members, weights, fold, neighbors),
        _mode(training @ members).gather(-1, fold),
    ]
    right = torch.stack([(predicted == classes).to(rows.dtype) for predicted in predictions], -1)
    right = right.where(is_finite[..., None, None], torch.nan)
    sums = rows.new_zeros(*right.shape[:-2], len(word_ids), len(NAMES))
    return index_add(sums, -2, word_index, right * weights.unsqueeze(-1)), word_ids


def _clustered(rows: Tensor, members: Tensor, training: Tensor, seed: int) -> Tensor:
    # rows: (..., N, D)  members: (..., N, K)  training: (..., F, N)  ->  (..., F, N) int64
    k = members.shape[-1]
    clusters, _ = k_means(rows.unsqueeze(-3), k, seed, training)
    counts = (one_hot(clusters, k) * training.unsqueeze(-1)).mT @ members.unsqueeze(-3)  # (..., F, clusters, K)
    return _mode(counts).gather(-1, clusters)


def _voted(rows: Tensor, members: Tensor, weights: Tensor, fold: Tensor, neighbors: int) -> Tensor:
    # rows: (..., N, D)  members: (..., N, K)  weights: (N,)  fold: (..., N)  ->  (..., N) int64
    """Return the class of the nearest words of other folds; the rows of a word share its vote."""
    unit = word_sets.unit(rows)
    num_rows = min(len(weights), neighbors * round(1 / float(weights.min())))  # rows that the nearest words may have
    size = max(1, CHUNK // max(1, fold.numel()))
    classes = []
    for part, query_fold in zip(unit.split(size, -2), fold.split(size, -1), strict=True):
        cosines = (part @ unit.mT).masked_fill(query_fold.unsqueeze(-1) == fold.unsqueeze(-2), -torch.inf)
        nearest = largest_cosines(cosines, num_rows)  # (..., n, num_rows)
        votes = weights[nearest] * (cosines.gather(-1, nearest) > -torch.inf)
        before = cumulative_mass(votes) - votes
        votes = torch.minimum(votes, (neighbors - before).clamp(min=0))
        nearest_members = members.unsqueeze(-3).expand(*nearest.shape[:-1], *members.shape[-2:])
        class_votes = torch.take_along_dim(nearest_members, nearest.unsqueeze(-1), -2)  # (..., n, num_rows, K)
        classes.append(_mode((votes.unsqueeze(-2) @ class_votes).squeeze(-2)))
    return torch.cat(classes, -1)


def _mode(counts: Tensor) -> Tensor:
    # counts: (..., K), sums of the weights of rows  ->  (...) int64
    # Rounded, so that the rows of a word add up to exactly one row of another word.
    return (counts * word_sets.GRID).round().argmax(-1)


class ResidualBias(RowMetric[ScoreTable[Estimate]]):
    """Accuracies with which classifiers recover the classes of words from their vectors, with intervals over words.

    See `residual_bias`. `interval` and `compare` reweigh the words with the classifiers as they are; two metrics that
    were updated with the same words, one before debiasing and one after, are compared by `compare`.

    Args:
        folds: Number of folds, at most one for each word.
        neighbors: Number of nearest words that vote.
        C: Inverse strength of the penalty of the linear probe.
        seed: Seed of the folds and of the first centers of clusters.

    Example:
        >>> labels = torch.arange(400) % 2
        >>> vectors = torch.randn(400, 4, generator=torch.Generator().manual_seed(0)) + labels[:, None]
        >>> method = LEACE().fit_tensors(vectors[:200], labels[:200])
        >>> before, after = ResidualBias(), ResidualBias()
        >>> before.update(vectors[200:], labels[200:])
        >>> after.update(method(vectors[200:]), labels[200:])
        >>> print(f"{before.interval()['linear_probe']:.2f}, then {after.interval()['linear_probe']:.2f}")
        0.84 [0.76, 0.92], then 0.55 [0.44, 0.65]
    """

    higher_is_better = False
    plot_lower_bound: float | None = 0.0
    plot_upper_bound: float | None = 1.0

    vectors: Tensor
    labels: Tensor

    def __init__(
        self, *, folds: int = 5, neighbors: int = 15, C: float = 1.0, seed: int = 0, **kwargs: Unpack[Options]
    ) -> None:
        super().__init__(**kwargs)
        _check_options(folds, neighbors, C, seed)
        self.folds, self.neighbors, self.C, self.seed = folds, neighbors, C, seed
        self.add_columns("vectors", "labels")

    def update(self, vectors: Tensor, labels: Tensor, **items: Unpack[ResamplingUnits]) -> None:
        """Append a batch of rows.

        Args:
            vectors: Vectors of words.
            labels: Class of each row.
            **items: `groups`, the word of each row, or `ids` where each row is a word.

        Shape:
            - vectors: ``(N, D)``, floating; labels: ``(N,)``, integer; ids, groups: ``(N,)`` integers or names
        """
        checks.shape("vectors", vectors, "N", "D")
        check_rows(vectors, labels)
        self.append_items({"vectors": vectors, "labels": labels.long()}, **items)

    def update_options(self) -> dict[str, Any]:
        return {"update": type(self).update}

    def compute(self) -> dict[str, Tensor]:
        words = self.item_names().units
        options = self.folds, self.neighbors, self.C, self.seed
        scores, word_ids = _word_scores(self.vectors, self.labels, words, *options)
        word_index = torch.searchsorted(word_ids, words)
        # Sums of the labels of a word, so that words with different labels in two metrics differ.
        self._items = scores, word_ids, torch.zeros_like(word_ids).index_add_(0, word_index, self.labels)
        return _named(scores)

    def _resampled_sums(self, replicates: int | None, seed: int | None) -> Resampled:
        scores, words, labels = self._items
        # Folds share training words, so that words are not predicted independently: the variance of the mean over J
        # folds is 1 + J / (J - 1) times that of independent ones (Nadeau & Bengio 2003, doi:10.1023/A:1024068626366).
        folds = max(2, min(self.folds, len(words)))
        widening = (1 + folds / (folds - 1)) ** 0.5
        scores = torch.lerp(scores.mean(0), scores, widening)
        means = resampled_means(scores, ItemNames(words), *check_draws(replicates, seed), (0.0, 1.0), labels)
        # For the same reason words cannot be swapped between two metrics one by one.
        return means.take(read=lambda values: dict(zip(NAMES, values.unbind(-1), strict=True)))._replace(half=None)

    def _direction(self, name: str) -> bool | None:
        return None if name == "majority" else False
