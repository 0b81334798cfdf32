"""Word sets as tensors: what all association metrics share. What is read here is float64 from here on."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ... import _checks
from .set_checks import check_broadcast, check_mask, check_vectors
from .word_ids import check_words, row_shares

FEW, MANY = 2**16, 2**19  # numbers: so few are copied in less time than an operator takes, so many fill a cache
SERIAL = 2**15  # fewer numbers are left to one thread by elementwise operators
RESAMPLED = 64  # counts of one set of vectors that are worth its cosines with all others
GRID = 2.0**40  # values are ranked, counted and called equal as multiples of 1 / GRID


class WordSet(NamedTuple):
    """A set whose size differs within a batch, or whose words have several rows (templates, contexts, sentences).

    Takes the place of a tensor wherever the functions and metrics of `association` take a set.

    Args:
        values: Vectors of the words; scores where a function takes scores. Masked ones are not read.
        mask: True where a word is; all are by default. Integers say how often each counts.
        words: The number of each row's word in its set; by default each row is a word. A word counts once, by the mean
            over its rows; p-values and intervals move and draw it with all of them.

    Shape:
        - values: ``(..., W, D)``, floating; scores ``(..., W)``
        - mask, words: ``(..., W)``, bool and integer; their leading dimensions broadcast with those of `values`

    Example:
        >>> x = torch.tensor([[[2.0, 1.0], [3.0, 1.0]], [[2.0, 1.0], [0.0, 0.0]]])  # of two words, and of one
        >>> y, a, b = torch.tensor([[[1.0, 2.0]], [[1.0, 0.0]], [[0.0, 1.0]]])
        >>> weat(WordSet(x, torch.tensor([[True, True], [True, False]])), y, a, b)
        tensor([1.5269, 0.8944], dtype=torch.float64)
    """

    values: Tensor
    mask: Tensor | None = None
    words: Tensor | None = None

    @staticmethod
    def of(given: "Vectors") -> "WordSet":
        return given if isinstance(given, WordSet) else WordSet(given)

    def repeated(self, dims: int = 2) -> "WordSet":
        """Return the set with a leading dimension of size 1 before its own `dims`: 3 of groups of sets, else 2."""
        mask, words = (None if each is None else each.unsqueeze(-dims) for each in (self.mask, self.words))
        return WordSet(self.values.unsqueeze(-1 - dims), mask, words)


Vectors = Tensor | WordSet  # a set as users give it


class Words(NamedTuple):
    """A set of word vectors, how often each of them counts, and the factor by which it is to be multiplied.

    vectors (..., W, D) float64, 0 where no word is; counts (..., W) float64, 0 there and 1 elsewhere (or a weight, in a
    bootstrap replicate; or one over the rows of its word), None where all are 1; scale (..., W), None for 1. Those
    of `row_shares` and `places` belong to words of several rows, None where each row is one. Leading dimensions
    broadcast.
    """

    vectors: Tensor
    counts: Tensor | None = None
    scale: Tensor | None = None
    row_shares: Tensor | None = None
    places: Tensor | None = None

    @property
    def weights(self) -> Tensor:
        # ->  (..., W)
        return self.vectors.new_ones(self.vectors.shape[-2]) if self.counts is None else self.counts

    def counts_of(self, chosen: Tensor) -> Tensor | None:
        # chosen: (Q,)  ->  (Q, W), of sets (S, W, D)
        return None if self.counts is None else self.counts[chosen]

    def size(self) -> Tensor | float:
        # ->  (...); to divide by an int, torch would have to promote it first
        return float(self.vectors.shape[-2]) if self.counts is None else self.counts.sum(-1)

    def shares(self) -> Tensor:
        # ->  (..., W), what each word counts in a mean; NaN where there is no word
        size = self.size()
        return self.weights / (size.unsqueeze(-1) if isinstance(size, Tensor) else size)

    def unit(self) -> "Words":
        """The vectors at length 1, by a scale: to write them down takes longer than all that is done with them."""
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
        found = times(self.vectors, direction)
        return found if self.scale is None else found * self.scale

    def project_all(self, directions: Tensor) -> Tensor:
        # directions: (..., K, D)  ->  (..., W, K)
        found = products(self.vectors, directions)
        return found if self.scale is None else found * self.scale.unsqueeze(-1)

    def average(self, values: Tensor) -> Tensor:
        # values: (..., W)  ->  (...), their mean over the words, NaN for an empty set
        return values.mean(-1) if self.counts is None else (values * self.counts).sum(-1) / self.size()

    def of_sets(self, chosen: Tensor) -> "Words":
        # chosen: (Q,), of sets (S, W, D)
        """Return how the rows of chosen sets belong to words; their vectors are those of all."""
        chosen_shares, chosen_places = (
            None if each is None else each[chosen] for each in (self.row_shares, self.places)
        )
        return self._replace(row_shares=chosen_shares, places=chosen_places)

    def by_word(self, values: Tensor, dim: int = -1) -> Tensor:
        # values: (..., W), or (..., W, K) for dim -2  ->  the same, each row with the mean over the rows of its word
        if self.row_shares is None or self.places is None:
            return values
        if dim == -2:
            return self.by_rows_of_others(values.mT).mT
        shares, places = self.row_shares, self.places
        values, shares, places = torch.broadcast_tensors(values, shares, places)
        return torch.zeros_like(values).scatter_add(-1, places, values * shares).gather(-1, places)

    def by_rows_of_others(self, values: Tensor) -> Tensor:
        # values: (..., K, W)  ->  the same, of each of K others the means over the rows of words
        if self.row_shares is None or self.places is None:
            return values
        shares, places = self.row_shares.unsqueeze(-2), self.places.unsqueeze(-2)
        return self._replace(row_shares=shares, places=places).by_word(values)

    def present(self, values: Tensor) -> Tensor:
        # values: (..., W)  ->  (..., W), NaN where no word is
        return values if self.counts is None else values.masked_fill(self.counts == 0, torch.nan)


def read(*grouped: str, **sets: Vectors) -> tuple[Words, ...]:
    """Check the named sets and make them `Words`. Those named in `grouped` are (..., G, W, D).

    A mask may also hold integers, how often each word counts, and within `weights_as_masks` any weights: so the
    bootstrap tells its replicates. Only where a boolean mask is False may a vector be NaN.
    """
    first, given = next(iter(sets.items()))
    like = given.values if isinstance(given, WordSet) else given
    _checks.tensor(first, like)
    dtype = precision(like)
    words, leads = [], []
    for name, given in sets.items():
        vectors, mask, words_of_rows = WordSet.of(given)
        dims = 3 if name in grouped else 2
        check_vectors(name, vectors, dims, first, like)
        if vectors.ndim > dims:
            leads.append((name, vectors.shape[:-dims]))
        if mask is not None:
            check_mask(f"{name}.mask", mask, vectors, dims)
            leads.append((f"{name}.mask", mask.shape[: 1 - dims]))
        if words_of_rows is not None:
            check_words(f"{name}.words", words_of_rows, name, vectors[..., 0])
        words.append(as_words(vectors, mask, dtype, words_of_rows))
    if len(leads) > 1:
        check_broadcast(leads)
    return tuple(words)


def precision(like: Tensor) -> torch.dtype:
    return torch.float32 if like.device.type == "mps" else torch.float64  # MPS has no float64


def as_words(
    vectors: Tensor, mask: Tensor | None, dtype: torch.dtype = torch.float64, words: Tensor | None = None
) -> Words:
    # words: (..., W), the number of each row's word; where the mask holds weights, those of absent rows are others
    vectors = vectors if vectors.dtype == dtype else vectors.to(dtype)
    if words is not None:
        shares, places = row_shares(words, None if mask is None or mask.is_floating_point() else mask > 0)
        plain = as_words(vectors, mask, dtype)
        counts = shares.to(dtype) if plain.counts is None else plain.counts * shares.to(dtype)
        return plain._replace(counts=counts, row_shares=shares.to(dtype), places=places)
    if mask is None:
        return Words(vectors) if vectors.size(-2) else Words(vectors, vectors.new_ones(0))
    if mask.dtype == torch.bool:
        vectors = vectors.where(mask.unsqueeze(-1), 0)
    return Words(vectors, mask.to(dtype))


def units(*sets: Words) -> tuple[Words, ...]:
    """Each of the sets at length 1; small ones together, because a tensor operation takes longer than their words."""
    if any(s.scale is not None for s in sets):
        return tuple([s.unit() for s in sets])
    lengths = [torch.linalg.vector_norm(s.vectors, dim=-1) for s in sets]
    if any(length.shape[:-1] != lengths[0].shape[:-1] for length in lengths):
        scales = map(inverse, lengths)
    else:
        scales = inverse(torch.cat(lengths, -1)).split_with_sizes([length.shape[-1] for length in lengths], -1)
    return tuple([s._replace(scale=scale) for s, scale in zip(sets, scales, strict=True)])


def are_many(*sets: Words) -> bool:
    """So many numbers on a CPU that its cache holds one set at a time."""
    return sets[0].vectors.device.type == "cpu" and sum(s.vectors.numel() for s in sets) > MANY


def few_tensors(*sets: Vectors) -> list[Tensor] | None:
    """Return the unpadded sets of one query with nothing to object to, if tensor operations take longer than words."""
    tensors = [s for s in sets if isinstance(s, Tensor) and s.ndim == 2]
    if len(tensors) < len(sets):
        return None
    numbers, dims, device = 0, tensors[0].shape[1], tensors[0].device
    for t in tensors:
        rows, columns = t.shape
        if t.device != device or not t.is_floating_point() or t.layout is not torch.strided:
            return None
        if columns != dims or not rows:
            return None
        numbers += rows * columns
    return tensors if numbers <= FEW else None


def resampled(*sets: Words) -> bool:
    """Do many counts stand for the same vectors, as in a bootstrap? Then products of words with words are fewer."""
    vectors = max(s.vectors.shape[:-2].numel() for s in sets)
    many = any(s.counts is not None and s.counts.shape[:-1].numel() > RESAMPLED * vectors for s in sets)
    return many and all(s.vectors.shape[-2] for s in sets)


def unit(vectors: Tensor) -> Tensor:
    # vectors: (..., D)  ->  (..., D)
    """The vectors at length 1; the zero vector stays, with gradient 0."""
    return vectors * inverse(torch.linalg.vector_norm(vectors, dim=-1, keepdim=True))


def unit_set(given: Vectors) -> Vectors:
    """The set with its vectors at length 1."""
    if isinstance(given, WordSet):
        return given._replace(values=unit(given.values.double()))
    return unit(given.double())


def inverse(length: Tensor) -> Tensor:
    # length: (...)  ->  (...), 0 for 0
    return torch.threshold(length, 0, torch.inf).reciprocal()


# A matrix product wakes the threads of the BLAS whatever its size, and to wait for them takes longer than to multiply
# a few numbers; so do their batches. Products of a matrix and a vector, sums and elementwise operations of so FEW wake
# none. Unlike products, einsums do not repeat a matrix for each of many vectors, but take a while to be read.


def times(matrix: Tensor, vector: Tensor) -> Tensor:
    # matrix: (..., n, m)  vector: (..., m)  ->  (..., n)
    if matrix.ndim == 2 and vector.ndim == 1:
        return matrix @ vector
    if matrix.shape[:-2] == vector.shape[:-1]:
        if _wakes_none(matrix, 1):
            return (matrix * vector.unsqueeze(-2)).sum(-1)
        if matrix.ndim == 3:
            return torch.bmm(vector.unsqueeze(-2), matrix.mT).squeeze(-2)  # the vector first: faster by a third
    return torch.einsum("...m,...nm->...n", vector, matrix)


def weighted_sum(weight: Tensor, vectors: Tensor) -> Tensor:
    # weight: (..., W)  vectors: (..., W, D)  ->  (..., D)
    if vectors.ndim == 2 and weight.ndim == 1:
        return torch.mv(vectors.mT, weight)
    if vectors.shape[:-1] == weight.shape:
        if _wakes_none(vectors, 1):
            return (weight.unsqueeze(-1) * vectors).sum(-2)
        if vectors.ndim == 3:
            return torch.bmm(weight.unsqueeze(-2), vectors).squeeze(-2)
    return torch.einsum("...w,...wd->...d", weight, vectors)


def products(u: Tensor, v: Tensor) -> Tensor:
    # u: (..., n, D)  v: (..., m, D)  ->  (..., n, m)
    if u.shape[:-2] == v.shape[:-2]:
        if _wakes_none(u, v.shape[-2]):
            return dot(u.unsqueeze(-2), v.unsqueeze(-3))
        if u.ndim <= 3:
            return u @ v.mT if u.ndim == 2 else torch.bmm(u, v.mT)
    return torch.einsum("...nd,...md->...nm", u, v)


def _wakes_none(matrix: Tensor, times: int) -> bool:
    return matrix.is_cpu and matrix.numel() * times < SERIAL


def resolution(*tensors: Tensor) -> float:
    """How long a difference of unit vectors may be by the rounding of these tensors alone, and at least 1 / GRID."""
    return max(1 / GRID, *(torch.finfo(t.dtype).eps for t in tensors))


def dot(u: Tensor, v: Tensor) -> Tensor:
    # u: (..., D)  v: (..., D)  ->  (...)
    return torch.linalg.vecdot(u, v)


def check_correction(correction: int) -> None:
    if correction not in (0, 1) or isinstance(correction, bool):
        raise ValueError(f"correction: got {correction!r}, wanted 0 or 1")


Values = tuple[Tensor, Tensor | None]  # (..., n), and how often each counts (..., n), None for once


def difference(u: Values, v: Values) -> Tensor:
    # ->  (...), the sum of u - the sum of v
    return total(*u)[0] - total(*v)[0]


def contrast(u: Values, v: Values, correction: int) -> tuple[Tensor, Tensor]:
    # ->  (...), (...)
    """sum of u - sum of v; and mean of u - mean of v in standard deviations of both together, NaN if none varies."""
    if u[1] is None and v[1] is None:
        return contrast_of(join(u[0], v[0]), u[0].shape[-1], correction)
    (u_sum, n), (v_sum, m) = total(*u), total(*v)
    spread = variance(u, v, correction)
    constant = spread <= GRID**-2  # rounding makes equal values differ by less
    effect = (u_sum / n - v_sum / m) / spread.masked_fill(constant, 1).sqrt()
    return u_sum - v_sum, effect.masked_fill(constant, torch.nan)


def contrast_of(both: Tensor, n: int, correction: int) -> tuple[Tensor, Tensor]:
    # both: (..., n + m), n and m > 0  ->  (...), (...)
    """`contrast` of the first n values with the others."""
    size = both.shape[-1]
    u, v = both.split_with_sizes([n, size - n], -1)
    u_sum, v_sum = u.sum(-1), v.sum(-1)
    difference = u_sum - v_sum
    # torch's deviation is one operation, but slow for many rows, and it warns of none.
    root = 1.0 if both.ndim == 1 else math.sqrt(size - correction)
    gap = difference * (root / n) if 2 * n == size else u_sum * (root / n) - v_sum * (root / (size - n))
    if both.ndim == 1:
        spread, _ = torch.std_mean(both, dim=-1, correction=correction)
    else:
        spread = torch.linalg.vector_norm(torch.sub(both, (u_sum + v_sum).unsqueeze(-1), alpha=1 / size), dim=-1)
    return difference, _in_deviations(gap, spread, root / GRID)


def _in_deviations(gap: Tensor, spread: Tensor, least: float) -> Tensor:
    # gap, spread: (...)  ->  (...), NaN and without a gradient where rounding alone explains the spread
    if not gap.requires_grad and not torch._C._are_functorch_transforms_active():  # in a vmap no tensor says it does
        return gap / torch.threshold(spread, least, math.nan)
    constant = spread <= least
    return (gap / spread.masked_fill(constant, 1)).masked_fill(constant, torch.nan)


def total(values: Tensor, count: Tensor | None) -> tuple[Tensor, Tensor | float]:
    # values, count: (..., n)  ->  sum (...), NaN for an empty set, and size (...)
    if count is None:
        return values.sum(-1), float(values.shape[-1])
    size = count.sum(-1)
    return dot(values, count).masked_fill(size == 0, torch.nan), size


def variance(u: Values, v: Values, correction: int) -> Tensor:
    # ->  (...), of both together: their squares over n + m - correction
    (u, u_count), (v, v_count) = u, v
    both = join(u, v)
    if u_count is None and v_count is None:
        centred = both - both.mean(-1, keepdim=True)  # torch.var warns of an empty batch
        return dot(centred, centred) / float(both.shape[-1] - correction)
    count = join(*(torch.ones_like(s) if c is None else c for s, c in ((u, u_count), (v, v_count))))
    size = count.sum(-1)
    mean = (both * count).sum(-1) / size
    return ((both - mean.unsqueeze(-1)).square() * count).sum(-1) / (size - correction)


def join(*parts: Tensor, dim: int = -1) -> Tensor:
    # parts: (..., n_i)  ->  (..., sum of n_i), their leading dimensions broadcast; with dim=-2 (..., n_i, D)
    leads = {part.shape[:dim] for part in parts}
    if len(leads) > 1:
        lead = torch.broadcast_shapes(*leads)
        parts = [part.expand(*lead, *part.shape[dim:]) for part in parts]
    return torch.cat(parts, dim)
