"""p-values of scores that are no sums over words: every partition of the target words is scored anew."""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..._checks import takes_arrays
from ..sets import word_sets
from ..sets.set_checks import weights_as_masks
from ..sets.word_ids import check_words, count_words, joined_words, numbers_by_place, word_places
from ..sets.word_sets import Vectors, WordSet
from .draws import chunks, partitions_by_word, random_partitions
from .null_distribution import Alternative, Exact, Method, NullDistribution, count_extreme
from .permutation import joined
from .random import stream

MOST_PARTITIONS = 20_000


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
    """How often is a score of targets x and y as extreme when their words are partitioned at random into these sizes?

    Shapes: x: (..., X, D); y: (..., Y, D); a: (..., A, D), tensors or `WordSet`s -> (...) float64.

    `metric` is `rnd`, `ect` or another function of three sets that takes a `WordSet` for each. "exact" scores all
    partitions, up to 20,000 of them and for targets without masks; "auto" does so whenever it can; the rest as in
    `permutation_p_value`: a word moves with all the rows that `WordSet.words` gives it.
    Scores within 2^-40 (relative, above 1) of the observed one count as equal to it, NaN scores as not extreme; NaN
    where the observed score is NaN.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 1.0]])
    >>> target_permutation_p_value(rnd, x, y, a, alternative="two-sided")
    tensor(0.6667, dtype=torch.float64)
    """
    return target_null(metric, x, y, a, seed).p_value(alternative, method, replicates)


@torch.no_grad()
def target_null(
    metric: Callable[..., Tensor], x: Vectors, y: Vectors, a: Vectors, seed: int | None = 0
) -> NullDistribution:
    """Return scores under random partitions of the target words; arguments as in `target_permutation_p_value`."""
    observed = metric(x, y, a)  # its own checks come first
    x, y, attributes = map(WordSet.of, (x, y, a))
    check_words("x.words", x.words, "x", x.values[..., 0])
    check_words("y.words", y.words, "y", y.values[..., 0])
    vectors, present = joined(word_sets.read(x=x, y=y))
    lead, n, places, device = present.shape[:-1], x.values.shape[-2], present.shape[-1], vectors.device
    words = joined_words(lead, (x.words, n, device), (y.words, y.values.shape[-2], device))
    place = word_places(present, words)
    sizes = [count_words(place[..., :end], present[..., :end]).flatten() for end in (n, places)]
    masked = ragged = x.mask is not None or y.mask is not None
    begin = stream(seed)
    if words is not None:
        n, places = (int(size.amax()) for size in sizes)  # waits for the device, which knows how many words
        ragged = any(bool((size != most).any()) for size, most in zip(sizes, (n, places), strict=True))
        place = place.clamp(max=places - 1)
    of_words = _partitions_by_word(x, y, present, place, (sizes[0], sizes[1], places), begin)
    if not ragged:
        sizes = [size.new_full((1,), number) for size, number in zip(sizes, (n, places), strict=True)]
    vectors, present, place = vectors.unsqueeze(-3), present.unsqueeze(-2), place.unsqueeze(-2)
    cost = max(vectors.numel(), attributes.values.numel())
    attributes = attributes.repeated()
    own = None if words is None else words.unsqueeze(-2).masked_fill(~present, -1)  # absent rows are of no word
    margin = observed.abs().clamp(min=1) / word_sets.GRID

    def score(chosen: Tensor) -> Tensor:
        # chosen: (..., rows, places) bool  ->  (..., rows)
        if masked or words is not None:  # from places to rows
            chosen = chosen.expand(*lead, chosen.shape[-2], places).take_along_dim(place, -1) & present
        others = ~chosen & present
        if own is None:
            return metric(WordSet(vectors, chosen.long()), WordSet(vectors, others.long()), attributes)
        with weights_as_masks():
            return metric(WordSet(vectors, chosen.double(), own), WordSet(vectors, others.double(), own), attributes)

    def draw(start: int, rows: int) -> Tensor:
        chosen = random_partitions(begin, sizes[0], sizes[1], places, start, rows)
        return score(chosen.unflatten(0, lead) if ragged and lead else chosen[0])

    def draw_by_word(start: int, rows: int) -> Tensor:
        assert of_words is not None
        chosen = of_words(start, rows)
        return score(chosen.unflatten(0, lead) if lead else chosen[0])

    @torch.no_grad()
    def share(alternative: Alternative) -> Tensor:
        table = torch.tensor(list(itertools.combinations(range(places), n)), device=device).view(-1, n)
        members = torch.zeros(len(table), places, dtype=torch.bool, device=device).scatter(-1, table, True)
        count = torch.zeros_like(observed, dtype=torch.int64)
        for start, rows in chunks(len(members), cost):
            count += count_extreme(score(members[start : start + rows]), observed, margin, alternative)
        return count.double() / len(members)

    most = 0 if ragged else MOST_PARTITIONS
    exact = Exact(math.comb(places, n), "partitions", most, most, share)
    own_draw = None if of_words is None else draw_by_word
    return NullDistribution(observed.isfinite(), lambda: observed, draw, cost, margin, exact, draw_by_word=own_draw)


def _partitions_by_word(
    x: WordSet, y: WordSet, present: Tensor, place: Tensor, sizes: tuple[Tensor, Tensor, int], begin: int
) -> Callable[[int, int], Tensor] | None:
    # present, place: (..., rows of x and y)  sizes: words of x and of both, (B,) each, and places
    """Return the function that draws partitions (B, rows, places) by the numbers of words, None if there are none."""
    if x.words is None or y.words is None:
        return None
    lead, places = present.shape[:-1], sizes[2]
    of_rows = torch.cat([words.expand(*lead, words.shape[-1]) for words in (x.words, y.words)], -1)
    numbers = numbers_by_place(of_rows, present, place, places).view(-1, places)
    of_set, of_both = (size.expand(len(numbers)) for size in sizes[:2])
    are_words = torch.arange(places, device=numbers.device) < of_both.unsqueeze(-1)

    def draw(start: int, rows: int) -> Tensor:
        return partitions_by_word(begin, numbers, are_words, of_set, start, rows)

    return draw
