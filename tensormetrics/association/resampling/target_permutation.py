"""p-values of scores that are not sums over words: every partition of the target words is scored."""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...core.arguments.checks import takes_arrays
from ...core.numbers.exact_sums import ratio
from ..sets import word_sets
from ..sets.set_checks import weights_as_masks
from ..sets.word_ids import count_words, dense_word_indices, joined_words, word_ids_by_index
from ..sets.word_sets import Vectors, WordSet
from .draws import chunks, partitions_by_word, random_partitions
from .null_distribution import Alternative, Exact, Method, NullDistribution, count_extreme
from .permutation import concatenate
from .random import stream

MAX_PARTITIONS = 20_000


@takes_arrays
def target_permutation_p_value(
    metric: Callable[..., Tensor],
    x: Vectors,
    y: Vectors,
    a: Vectors,
    *,
    alternative: Alternative = "greater",
    method: Method = "auto",
    replicates: int = 10000,
    seed: int | None = 0,
) -> Tensor:
    """Compute the p-value of a score under random partitions of the target words into sets of the same sizes.

    Shapes: x: (..., X, D); y: (..., Y, D); a: (..., A, D), tensors or `WordSet`s -> (...) float64.

    `metric` is `rnd`, `ect` or another function of three `WordSet`s, not of pairs as `ripa`. "exact" scores all
    partitions, up to 20,000, for targets without masks; "auto" does so under the same conditions. All else is as in
    `permutation_p_value`: a word moves with all the rows that `WordSet.words` assigns to it. Scores within 2^-40
    (relative, above 1) of the observed score count as equal to it, NaN scores as not extreme. NaN if the observed score
    is NaN.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 1.0]])
    >>> target_permutation_p_value(rnd, x, y, a, alternative="two-sided")
    tensor(0.6667, dtype=torch.float64)
    """
    score = getattr(metric, "func", metric)  # of a partial
    if getattr(score, "tuples", ()):
        raise TypeError(
            f"metric: got {score.__name__}, whose targets are pairs, wanted one of two separate sets; "
            "write RIPA(p_value=True).run_query(...)"
        )
    return target_null(metric, x, y, a, seed).p_value(alternative, method, replicates)


@torch.no_grad()
def target_null(
    metric: Callable[..., Tensor], x: Vectors, y: Vectors, a: Vectors, seed: int | None = 0
) -> NullDistribution:
    """Return scores under random partitions of the target words; arguments as in `target_permutation_p_value`."""
    observed = metric(x, y, a)  # first, because it checks its arguments
    x, y, attributes = map(WordSet.of, (x, y, a))
    vectors, valid_mask = concatenate(word_sets.read(x=x, y=y))
    batch_shape, n, num_words, device = valid_mask.shape[:-1], x.values.shape[-2], valid_mask.shape[-1], vectors.device
    words = joined_words(batch_shape, (x.words, n, device), (y.words, y.values.shape[-2], device))
    word_indices = dense_word_indices(valid_mask, words)
    sizes = [count_words(word_indices[..., :end], valid_mask[..., :end]).flatten() for end in (n, num_words)]
    has_mask = is_ragged = x.mask is not None or y.mask is not None
    stream_offset = stream(seed)
    if words is not None:
        n, num_words = (int(size.amax()) for size in sizes)  # synchronizes: the counts are on the device
        is_ragged = any(bool((size != count).any()) for size, count in zip(sizes, (n, num_words), strict=True))
        word_indices = word_indices.clamp(max=num_words - 1)
    counts = (sizes[0], sizes[1], num_words)
    draw_partitions = _partitions_by_word(x, y, valid_mask, word_indices, counts, stream_offset)
    if not is_ragged:
        sizes = [size.new_full((1,), count) for size, count in zip(sizes, (n, num_words), strict=True)]
    vectors, valid_mask, word_indices = vectors.unsqueeze(-3), valid_mask.unsqueeze(-2), word_indices.unsqueeze(-2)
    cost = max(vectors.numel(), attributes.values.numel())
    attributes = attributes.repeated()
    # Absent rows are of no word.
    valid_words = None if words is None else words.unsqueeze(-2).masked_fill(~valid_mask, -1)
    margin = observed.abs().clamp(min=1) / word_sets.GRID

    def score(selected: Tensor) -> Tensor:
        # selected: (..., rows, num_words) bool  ->  (..., rows)
        if has_mask or words is not None:  # from words to rows
            selected = selected.expand(*batch_shape, selected.shape[-2], num_words)
            selected = selected.take_along_dim(word_indices, -1) & valid_mask
        others = ~selected & valid_mask
        if valid_words is None:
            return metric(WordSet(vectors, selected.long()), WordSet(vectors, others.long()), attributes)
        with weights_as_masks():
            sets = (WordSet(vectors, members.double(), valid_words) for members in (selected, others))
            return metric(*sets, attributes)

    def draw(start: int, rows: int) -> Tensor:
        selected = random_partitions(stream_offset, sizes[0], sizes[1], num_words, start, rows)
        return score(selected.unflatten(0, batch_shape) if is_ragged and batch_shape else selected[0])

    @torch.no_grad()
    def fraction(alternative: Alternative) -> Tensor:
        combinations = list(itertools.combinations(range(num_words), n))
        table = torch.tensor(combinations, dtype=torch.int64, device=device).view(len(combinations), n)
        members = torch.zeros(len(table), num_words, dtype=torch.bool, device=device).scatter(-1, table, True)
        count = torch.zeros_like(observed, dtype=torch.int64)
        for start, rows in chunks(len(members), cost):
            count += count_extreme(score(members[start : start + rows]), observed, margin, alternative)
        return ratio(count, len(members))

    count = math.comb(num_words, n)
    exact = None if is_ragged else Exact(count, "partitions", MAX_PARTITIONS, MAX_PARTITIONS, fraction)
    by_word = None if draw_partitions is None else lambda start, rows: score(draw_partitions(start, rows))
    return NullDistribution(observed.isfinite(), lambda: observed, draw, cost, margin, exact, draw_by_word=by_word)


def _partitions_by_word(
    x: WordSet,
    y: WordSet,
    valid_mask: Tensor,
    word_indices: Tensor,
    sizes: tuple[Tensor, Tensor, int],
    stream_offset: int,
) -> Callable[[int, int], Tensor] | None:
    # valid_mask, word_indices: (..., rows of x and y)  sizes: words of x and of both, (B,) each, and num_words
    """Return the function that draws partitions (..., rows, num_words) by word ids, None without word ids."""
    if x.words is None or y.words is None:
        return None
    batch_shape, num_words = valid_mask.shape[:-1], sizes[2]
    row_words = torch.cat([words.expand(*batch_shape, words.shape[-1]) for words in (x.words, y.words)], -1)
    word_ids = word_ids_by_index(row_words, valid_mask, word_indices, num_words).view(-1, num_words)
    set_sizes, total_sizes = (size.expand(len(word_ids)) for size in sizes[:2])
    are_words = torch.arange(num_words, device=word_ids.device) < total_sizes.unsqueeze(-1)

    def draw(start: int, rows: int) -> Tensor:
        selected = partitions_by_word(stream_offset, word_ids, are_words, set_sizes, start, rows)
        return selected.unflatten(0, batch_shape) if batch_shape else selected[0]

    return draw
