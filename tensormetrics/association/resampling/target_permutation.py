"""p-values of scores that are no sums over words: every partition of the target words is scored anew."""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ..._checks import takes_arrays
from ..sets import word_sets
from ..sets.word_ids import check_words, count_words, joined_words, word_places
from .draws import chunks, random_partitions
from .null_distribution import Draws
from .permutation import Alternative, Method, is_exact, is_extreme, joined
from .random import stream

MOST_PARTITIONS = 20_000


class XYAWords(word_sets.XYAMasks, total=False):
    """Also the numbers of the words that move."""

    x_words: Tensor | None
    y_words: Tensor | None


@takes_arrays
@torch.no_grad()
def target_permutation_p_value(
    metric: Callable[..., Tensor],
    x: Tensor,
    y: Tensor,
    a: Tensor,
    *,
    alternative: Alternative = "greater",
    method: Method = "auto",
    replicates: int = 10000,
    seed: int | None = 0,
    x_mask: Tensor | None = None,
    y_mask: Tensor | None = None,
    a_mask: Tensor | None = None,
    x_words: Tensor | None = None,
    y_words: Tensor | None = None,
) -> Tensor:
    """How often is a score of targets x and y as extreme when their words are partitioned at random into these sizes?

    Shapes: x: (..., X, D); y: (..., Y, D); a: (..., A, D); masks and words: (..., X), (..., Y), (..., A) -> (...)
    float64.

    `metric` is `rnd`, `ect` or another function of such sets that takes their masks. "exact" scores all
    partitions, up to 20,000 of them and for targets without masks; "auto" does so whenever it can; the rest as in
    `permutation_p_value`: `x_words`, `y_words` number the word of each row, and a word moves with all its rows.
    Scores within 2^-40 (relative, above 1) of the observed one count as equal to it, NaN scores as not extreme; NaN
    where the observed score is NaN.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 1.0]])
    >>> target_permutation_p_value(rnd, x, y, a, alternative="two-sided")
    tensor(0.6667, dtype=torch.float64)
    """
    masks: XYAWords = {"x_mask": x_mask, "y_mask": y_mask, "a_mask": a_mask, "x_words": x_words, "y_words": y_words}
    targets = _targets(metric, x, y, a, **masks)
    observed, n, places = targets.observed, targets.n, targets.places
    most = 0 if x_mask is not None or y_mask is not None or targets.ragged else MOST_PARTITIONS
    exact = is_exact(alternative, method, replicates, math.comb(places, n), most, most, "partitions")
    if exact:
        table = torch.tensor(list(itertools.combinations(range(places), n)), device=x.device).view(-1, n)
        members = torch.zeros(len(table), places, dtype=torch.bool, device=x.device).scatter(-1, table, True)
    begin, total = stream(seed), len(members) if exact else replicates
    extreme = torch.zeros_like(observed, dtype=torch.int64)
    margin = observed.abs().clamp(min=1).unsqueeze(-1) / word_sets.GRID
    for start, rows in chunks(total, targets.cost):
        chosen = members[start : start + rows] if exact else targets.draw(begin, start, rows)
        extreme += is_extreme(targets.score(chosen), observed.unsqueeze(-1), margin, alternative).sum(-1)
    share = extreme.double() / total if exact else (1 + extreme.double()) / (1 + total)
    return share.where(observed.isfinite(), torch.nan)


def target_draws(
    metric: Callable[..., Tensor], x: Tensor, y: Tensor, a: Tensor, *, seed: int | None, **masks: Unpack[XYAWords]
) -> Draws:
    """The scores of the partitions that "approximate" of `target_permutation_p_value` draws."""
    targets, begin = _targets(metric, x, y, a, **masks), stream(seed)
    observed = targets.observed.where(targets.observed.isfinite(), torch.nan)
    return Draws(observed, lambda start, rows: targets.score(targets.draw(begin, start, rows)), targets.cost)


class Targets(NamedTuple):
    """The words of two target sets at places, and how they are partitioned and scored."""

    observed: Tensor  # (...)
    n: int  # places of the first set, the most of all queries
    places: int
    ragged: bool  # do queries differ in these?
    draw: Callable[[int, int, int], Tensor]  # (begin, start, rows)  ->  (..., rows, places) bool
    score: Callable[[Tensor], Tensor]  # (..., rows, places) bool  ->  (..., rows)
    cost: int  # numbers that one partition holds


def _targets(
    metric: Callable[..., Tensor],
    x: Tensor,
    y: Tensor,
    a: Tensor,
    *,
    x_mask: Tensor | None = None,
    y_mask: Tensor | None = None,
    a_mask: Tensor | None = None,
    x_words: Tensor | None = None,
    y_words: Tensor | None = None,
) -> Targets:
    observed = metric(x, y, a, x_mask=x_mask, y_mask=y_mask, a_mask=a_mask)  # its own checks come first
    check_words("x_words", x_words, "x", x[..., 0])
    check_words("y_words", y_words, "y", y[..., 0])
    vectors, present = joined(word_sets.read(x=(x, x_mask), y=(y, y_mask)))
    lead, n, places = present.shape[:-1], x.shape[-2], present.shape[-1]
    words = joined_words(lead, (x_words, n, x.device), (y_words, y.shape[-2], x.device))
    place = word_places(present, words)
    sizes = [count_words(place[..., :end], present[..., :end]).flatten() for end in (n, places)]
    masked = ragged = x_mask is not None or y_mask is not None
    if words is not None:
        n, places = (int(size.amax()) for size in sizes)  # waits for the device, which knows how many words
        ragged = any(bool((size != most).any()) for size, most in zip(sizes, (n, places), strict=True))
        place = place.clamp(max=places - 1)
    if not ragged:
        sizes = [size.new_full((1,), number) for size, number in zip(sizes, (n, places), strict=True)]
    vectors, present, place = vectors.unsqueeze(-3), present.unsqueeze(-2), place.unsqueeze(-2)
    if a_mask is not None:
        a, a_mask = a.where(a_mask.unsqueeze(-1), 0), a_mask.unsqueeze(-2)

    def draw(begin: int, start: int, rows: int) -> Tensor:
        chosen = random_partitions(begin, sizes[0], sizes[1], places, start, rows)
        return chosen.unflatten(0, lead) if ragged and lead else chosen[0]

    def score(chosen: Tensor) -> Tensor:
        if masked or words is not None:  # from places to rows
            chosen = chosen.expand(*lead, chosen.shape[-2], places).take_along_dim(place, -1) & present
        others = ~chosen & present
        return metric(vectors, vectors, a.unsqueeze(-3), x_mask=chosen.long(), y_mask=others.long(), a_mask=a_mask)

    return Targets(observed, n, places, ragged, draw, score, max(vectors.numel(), a.numel()))
