"""Word sets as tensors, for all association metrics. Vectors are converted to float64."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.numbers.exact_sums import scatter_add
from .set_checks import check_broadcast, check_mask, check_vectors
from .word_ids import check_words, row_fractions

# Numbers of elements: copying up to SMALL is faster than an operator; more than LARGE exceed a CPU cache.
SMALL, LARGE = 2**16, 2**19
SERIAL = 2**15  # elementwise operators use one thread for fewer elements
RESAMPLED = 64  # counts of one set of vectors from which computing its cosines with all others is faster
GRID = 2.0**40  # values are ranked, counted and compared as multiples of 1 / GRID


class WordSet(NamedTuple):
    """A set of words with padding, or of words with several rows (templates, contexts, sentences).

    Accepted instead of a tensor by the functions and metrics of `association` wherever they take a set.

    Args:
        values: Vectors of the words; scores for functions of scores. Values are not read where a bool mask is False.
        mask: True for words; all rows are words by default. Integers are counts of the words.
        words: The id of each row's word in its set; by default each row is a word. A word counts once, with the mean
            over its rows; p-values and intervals move and draw it with all its rows.

    Shape:
        - values: ``(..., W, D)``, floating; scores ``(..., W)``
        - mask, words: ``(..., W)``, bool and integer; their leading dimensions broadcast with those of `values`

    Example:
        >>> x = torch.tensor([[[2.0, 1.0], [3.0, 1.0]], [[2.0, 1.0], [0.0, 0.0]]])  # two words, and one
        >>> y, a, b = torch.tensor([[[1.0, 2.0]], [[1.0, 0.0]], [[0.0, 1.0]]])
        >>> weat(WordSet(x, torch.tensor([[True, True], [True, False]])), y, a, b)
        tensor([1.5269, 0.8944], dtype=torch.float64)
    """

    values: Tensor
    mask: Tensor | None = None
    words: Tensor | None = None

    @staticmethod
    def of(vectors: "Vectors") -> "WordSet":
        return vectors if isinstance(vectors, WordSet) else WordSet(vectors)

    def repeated(self, dims: int = 2) -> "WordSet":
        """Return the set with a new dimension of size 1 before its last `dims`: 3 for groups of sets, else 2."""
        mask, words = (None if field is None else field.unsqueeze(-dims) for field in (self.mask, self.words))
        return WordSet(self.values.unsqueeze(-1 - dims), mask, words)


Vectors = Tensor | WordSet  # a set as passed by users


class Words(NamedTuple):
    """A set of word vectors with a count and a scale for each vector.

    vectors (..., W, D) float64, 0 for masked rows; counts (..., W) float64, 0 for masked rows and 1 for others (or a
    weight, in a bootstrap replicate; or 1 / rows of its word), None if all are 1; scale (..., W), a factor of the
    vectors, None for 1. `row_fractions` and `word_indices` (..., W) are for words with several rows, None if each row
    is a word. Leading dimensions broadcast.
    """

    vectors: Tensor
    counts: Tensor | None = None
    scale: Tensor | None = None
    row_fractions: Tensor | None = None
    word_indices: Tensor | None = None

    @property
    def weights(self) -> Tensor:
        # ->  (..., W)
        return self.vectors.new_ones(self.vectors.shape[-2]) if self.counts is None else self.counts

    def size(self) -> Tensor | float:
        # ->  (...); a float, because torch would have to promote an int
        return float(self.vectors.shape[-2]) if self.counts is None else self.counts.sum(-1)

    def mean_weights(self) -> Tensor:
        # ->  (..., W), the weight of each word in a mean; NaN for an empty set
        size = self.size()
        return self.weights / (size.unsqueeze(-1) if isinstance(size, Tensor) else size)

    def unit(self) -> "Words":
        """Return the set with vectors of length 1, by a scale: writing the vectors would cost more than using them."""
        if self.scale is not None:
            return self
        return self._replace(scale=inverse(torch.linalg.vector_norm(self.vectors, dim=-1)))

    def mean(self) -> Tensor:
        # ->  (..., D), NaN for an empty set
        if self.counts is None and self.scale is None:
            return self.vectors.mean(-2)
        weight = self.weights if self.scale is None else self.scale if self.counts is None else self.counts * self.scale
        size = self.size()
        return weighted_sum(weight, self.vectors) / (size.unsqueeze(-1) if isinstance(size, Tensor) else size)

    def project(self, direction: Tensor) -> Tensor:
        # direction: (..., D)  ->  (..., W)
        projections = matvec(self.vectors, direction)
        return projections if self.scale is None else projections * self.scale

    def project_all(self, directions: Tensor) -> Tensor:
        # directions: (..., K, D)  ->  (..., W, K)
        projections = products(self.vectors, directions)
        return projections if self.scale is None else projections * self.scale.unsqueeze(-1)

    def average(self, values: Tensor) -> Tensor:
        # values: (..., W)  ->  (...), their mean over the words, NaN for an empty set
        return values.mean(-1) if self.counts is None else (values * self.counts).sum(-1) / self.size()

    def of_sets(self, set_indices: Tensor) -> "Words":
        # set_indices: (Q,), of sets (S, W, D)
        """Return the counts and word indices of selected sets; the vectors are those of all sets."""
        fields = self.counts, self.row_fractions, self.word_indices
        counts, fractions, word_indices = (None if field is None else field[set_indices] for field in fields)
        return self._replace(counts=counts, row_fractions=fractions, word_indices=word_indices)

    def by_word(self, values: Tensor, dim: int = -1) -> Tensor:
        # values: (..., W), or (..., W, K) for dim -2  ->  same shape
        """Replace the value of each row by the mean over the rows of its word."""
        if self.row_fractions is None or self.word_indices is None:
            return values
        if dim == -2:
            return self.by_rows_of_others(values.mT).mT
        fractions, word_indices = self.row_fractions, self.word_indices
        values, fractions, word_indices = torch.broadcast_tensors(values, fractions, word_indices)
        return scatter_add(values.new_zeros(values.shape), word_indices, values * fractions).gather(-1, word_indices)

    def by_rows_of_others(self, values: Tensor) -> Tensor:
        # values: (..., K, W)  ->  same shape
        """Replace the values of rows by the means over the rows of words, for each of K others."""
        if self.row_fractions is None or self.word_indices is None:
            return values
        fractions, word_indices = self.row_fractions.unsqueeze(-2), self.word_indices.unsqueeze(-2)
        return self._replace(row_fractions=fractions, word_indices=word_indices).by_word(values)

    def mask_absent(self, values: Tensor) -> Tensor:
        # values: (..., W)  ->  (..., W), NaN for masked rows
        return values if self.counts is None else values.masked_fill(self.counts == 0, torch.nan)


def read(*grouped: str, **sets: Vectors) -> tuple[Words, ...]:
    """Check the named sets and convert them to `Words`. Sets named in `grouped` are (..., G, W, D).

    A mask may also hold integers, the counts of the words, and within `weights_as_masks` any weights, as the bootstrap
    uses. Vectors may be NaN only if a boolean mask is False.
    """
    first, word_set = next(iter(sets.items()))
    like = word_set.values if isinstance(word_set, WordSet) else word_set
    checks.tensor(first, like)
    dtype = precision(like)
    words, batch_shapes = [], []
    for name, word_set in sets.items():
        vectors, mask, words_of_rows = WordSet.of(word_set)
        dims = 3 if name in grouped else 2
        check_vectors(name, vectors, dims, first, like)
        if vectors.ndim > dims:
            batch_shapes.append((name, vectors.shape[:-dims]))
        if mask is not None:
            check_mask(f"{name}.mask", mask, vectors, dims)
            batch_shapes.append((f"{name}.mask", mask.shape[: 1 - dims]))
        if words_of_rows is not None:
            check_words(f"{name}.words", words_of_rows, name, vectors[..., 0])
        words.append(as_words(vectors, mask, dtype, words_of_rows))
    if len(batch_shapes) > 1:
        check_broadcast(batch_shapes)
    return tuple(words)


def precision(like: Tensor) -> torch.dtype:
    return torch.float32 if like.device.type == "mps" else torch.float64  # MPS has no float64


def as_words(
    vectors: Tensor, mask: Tensor | None, dtype: torch.dtype = torch.float64, words: Tensor | None = None
) -> Words:
    # words: (..., W), the id of each row's word; if the mask holds weights, masked rows have separate ids
    vectors = vectors if vectors.dtype == dtype else vectors.to(dtype)
    if words is not None:
        fractions, word_indices = row_fractions(words, None if mask is None or mask.is_floating_point() else mask > 0)
        unweighted = as_words(vectors, mask, dtype)
        counts = fractions.to(dtype) if unweighted.counts is None else unweighted.counts * fractions.to(dtype)
        return unweighted._replace(counts=counts, row_fractions=fractions.to(dtype), word_indices=word_indices)
    if mask is None:
        return Words(vectors) if vectors.size(-2) else Words(vectors, vectors.new_ones(0))
    if mask.dtype == torch.bool:
        vectors = vectors.where(mask.unsqueeze(-1), 0)
    return Words(vectors, mask.to(dtype))


def units(*sets: Words) -> tuple[Words, ...]:
    """Return the sets with vectors of length 1, jointly if possible, as an operation costs more than small sets."""
    if any(s.scale is not None for s in sets):
        return tuple([s.unit() for s in sets])
    lengths = [torch.linalg.vector_norm(s.vectors, dim=-1) for s in sets]
    if any(length.shape[:-1] != lengths[0].shape[:-1] for length in lengths):
        scales = map(inverse, lengths)
    else:
        scales = inverse(torch.cat(lengths, -1)).split_with_sizes([length.shape[-1] for length in lengths], -1)
    return tuple([s._replace(scale=scale) for s, scale in zip(sets, scales, strict=True)])


def is_large(*sets: Words) -> bool:
    """Return whether the sets are on a CPU and exceed its cache together."""
    return sets[0].vectors.device.type == "cpu" and sum(s.vectors.numel() for s in sets) > LARGE


def small_tensors(*sets: Vectors) -> list[Tensor] | None:
    """Return the sets of one query if they are valid, unpadded and small, so that operators dominate the time."""
    tensors = [s for s in sets if isinstance(s, Tensor) and s.ndim == 2]
    if len(tensors) < len(sets):
        return None
    size, num_dims, device = 0, tensors[0].shape[1], tensors[0].device
    for t in tensors:
        rows, columns = t.shape
        if t.device != device or not t.is_floating_point() or t.layout is not torch.strided:
            return None
        if columns != num_dims or not rows:
            return None
        size += rows * columns
    return tensors if size <= SMALL else None


def has_several_counts(*sets: Words) -> bool:
    """Return whether many counts share the same vectors, as in a bootstrap; then products of words are fewer."""
    vectors = max(s.vectors.shape[:-2].numel() for s in sets)
    has_many = any(s.counts is not None and s.counts.shape[:-1].numel() > RESAMPLED * vectors for s in sets)
    return has_many and all(s.vectors.shape[-2] for s in sets)


def unit(vectors: Tensor) -> Tensor:
    # vectors: (..., D)  ->  (..., D)
    """Scale vectors to length 1; the zero vector stays, with gradient 0."""
    return vectors * inverse(torch.linalg.vector_norm(vectors, dim=-1, keepdim=True))


def unit_set(vectors: Vectors) -> Vectors:
    """Scale the vectors of a set to length 1."""
    if isinstance(vectors, WordSet):
        return vectors._replace(values=unit(vectors.values.double()))
    return unit(vectors.double())


def inverse(length: Tensor) -> Tensor:
    # length: (...)  ->  (...), 0 for 0
    return torch.threshold(length, 0, torch.inf).reciprocal()


# A matrix product, batched or not, wakes the threads of the BLAS whatever its size, and waiting for them takes longer
# than multiplying a few numbers. Products of a matrix and a vector, sums and elementwise operations of fewer than
# SERIAL elements wake none. Unlike products, einsums do not repeat a matrix for many vectors, but parsing them is slow.


def matvec(matrix: Tensor, vector: Tensor) -> Tensor:
    # matrix: (..., n, m)  vector: (..., m)  ->  (..., n)
    if matrix.ndim == 2 and vector.ndim == 1:
        return matrix @ vector
    if matrix.shape[:-2] == vector.shape[:-1]:
        if _is_single_threaded(matrix, 1):
            return (matrix * vector.unsqueeze(-2)).sum(-1)
        if matrix.ndim == 3:
            return torch.bmm(vector.unsqueeze(-2), matrix.mT).squeeze(-2)  # a third faster with the vector first
    return torch.einsum("...m,...nm->...n", vector, matrix)


def weighted_sum(weight: Tensor, vectors: Tensor) -> Tensor:
    # weight: (..., W)  vectors: (..., W, D)  ->  (..., D)
    if vectors.ndim == 2 and weight.ndim == 1:
        return torch.mv(vectors.mT, weight)
    if vectors.shape[:-1] == weight.shape:
        if _is_single_threaded(vectors, 1):
            return (weight.unsqueeze(-1) * vectors).sum(-2)
        if vectors.ndim == 3:
            return torch.bmm(weight.unsqueeze(-2), vectors).squeeze(-2)
    return torch.einsum("...w,...wd->...d", weight, vectors)


def products(u: Tensor, v: Tensor) -> Tensor:
    # u: (..., n, D)  v: (..., m, D)  ->  (..., n, m)
    if u.shape[:-2] == v.shape[:-2]:
        if _is_single_threaded(u, v.shape[-2]):
            return dot(u.unsqueeze(-2), v.unsqueeze(-3))
        if u.ndim <= 3:
            return u @ v.mT if u.ndim == 2 else torch.bmm(u, v.mT)
    return torch.einsum("...nd,...md->...nm", u, v)


def _is_single_threaded(matrix: Tensor, repeats: int) -> bool:
    return matrix.is_cpu and matrix.numel() * repeats < SERIAL


def resolution(*tensors: Tensor) -> float:
    """Return the length that a difference of unit vectors may have by rounding of these tensors, at least 1 / GRID."""
    return max(1 / GRID, *(torch.finfo(t.dtype).eps for t in tensors))


def dot(u: Tensor, v: Tensor) -> Tensor:
    # u: (..., D)  v: (..., D)  ->  (...)
    return torch.linalg.vecdot(u, v)


def check_correction(correction: int) -> int:
    if correction not in (0, 1) or isinstance(correction, bool):
        raise ValueError(f"correction: got {correction!r}, wanted 0 or 1")
    return correction


Values = tuple[Tensor, Tensor | None]  # (..., n), and the count of each (..., n), None for 1


def difference(u: Values, v: Values) -> Tensor:
    # ->  (...), the sum of u - the sum of v
    return total(*u)[0] - total(*v)[0]


def effect_size(u: Values, v: Values, correction: int) -> tuple[Tensor, Tensor]:
    # ->  (...), (...)
    """Return sum u - sum v, and mean u - mean v in standard deviations of the union; NaN for a constant union."""
    if u[1] is None and v[1] is None:
        return effect_size_of(join(u[0], v[0]), u[0].shape[-1], correction)
    (u_sum, n), (v_sum, m) = total(*u), total(*v)
    pooled_variance = variance(u, v, correction)
    constant = pooled_variance <= GRID**-2  # rounding makes equal values differ by less
    effect = (u_sum / n - v_sum / m) / pooled_variance.masked_fill(constant, 1).sqrt()
    return u_sum - v_sum, effect.masked_fill(constant, torch.nan)


def effect_size_of(both: Tensor, n: int, correction: int) -> tuple[Tensor, Tensor]:
    # both: (..., n + m), n and m > 0  ->  (...), (...)
    """Compute the `effect_size` of the first n values and the others."""
    size = both.shape[-1]
    u, v = both.split_with_sizes([n, size - n], -1)
    u_sum, v_sum = u.sum(-1), v.sum(-1)
    difference = u_sum - v_sum
    # torch.std_mean is one operation, but slow for many rows, and it warns of empty ones.
    root = 1.0 if both.ndim == 1 else math.sqrt(size - correction)
    mean_difference = difference * (root / n) if 2 * n == size else u_sum * (root / n) - v_sum * (root / (size - n))
    if both.ndim == 1:
        std, _ = torch.std_mean(both, dim=-1, correction=correction)
    else:
        std = torch.linalg.vector_norm(torch.sub(both, (u_sum + v_sum).unsqueeze(-1), alpha=1 / size), dim=-1)
    return difference, in_deviations(mean_difference, std, root / GRID)


def in_deviations(mean_difference: Tensor, std: Tensor, min_std: float) -> Tensor:
    # mean_difference, std: (...)  ->  (...), NaN without gradient where the std is not above rounding errors
    if (
        not mean_difference.requires_grad and not torch._C._are_functorch_transforms_active()
    ):  # under vmap requires_grad is always False
        return mean_difference / torch.threshold(std, min_std, math.nan)
    constant = std <= min_std
    return (mean_difference / std.masked_fill(constant, 1)).masked_fill(constant, torch.nan)


def total(values: Tensor, count: Tensor | None) -> tuple[Tensor, Tensor | float]:
    # values, count: (..., n)  ->  sum (...), NaN for an empty set, and size (...)
    if count is None:
        return values.sum(-1), float(values.shape[-1])
    size = count.sum(-1)
    return dot(values, count).masked_fill(size == 0, torch.nan), size


def variance(u: Values, v: Values, correction: int) -> Tensor:
    # ->  (...), the variance of the union: squares over n + m - correction
    (u, u_count), (v, v_count) = u, v
    both = join(u, v)
    if u_count is None and v_count is None:
        centered = both - both.mean(-1, keepdim=True)  # torch.var warns about an empty batch
        return dot(centered, centered) / float(both.shape[-1] - correction)
    count = join(*(torch.ones_like(s) if c is None else c for s, c in ((u, u_count), (v, v_count))))
    size = count.sum(-1)
    mean = (both * count).sum(-1) / size
    return ((both - mean.unsqueeze(-1)).square() * count).sum(-1) / (size - correction)


def join(*parts: Tensor, dim: int = -1) -> Tensor:
    # parts: (..., n_i)  ->  (..., sum of n_i), their leading dimensions broadcast; with dim=-2 (..., n_i, D)
    batch_shapes = {part.shape[:dim] for part in parts}
    if len(batch_shapes) > 1:
        batch_shape = torch.broadcast_shapes(*batch_shapes)
        parts = [part.expand(*batch_shape, *part.shape[dim:]) for part in parts]
    return torch.cat(parts, dim)
