"""Bootstrap intervals: the words of every set are drawn anew, as counts."""

import inspect
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ... import _checks, _native
from ..._interruptible import interruptible
from ...uncertainty.engine.estimates import Estimate, check_confidence
from ..sets.word_ids import check_words, count_words, word_places
from .draws import chunks
from .random import random_uniform, stream


@torch.no_grad()
def bootstrap_interval(
    metric: Callable[..., Tensor],
    *sets: Tensor,
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int | None = 0,
    **masks: Tensor,
) -> Estimate:
    """Between which bounds does a score of this package lie, had other words of the same kind been chosen?

    Shapes: sets, masks: as `metric` takes them, words as masks, int64 -> Estimate of (...) float64.

    The words of each set are resampled with replacement, sets independently of each other, pairs and tuples as wholes;
    the bounds are the (1 -+ confidence) / 2 quantiles of `replicates` such scores, linearly interpolated. Scores that
    are NaN are left out; the bounds are NaN if over half are. `metric` gives one score per query, and options are
    bound to it by functools.partial: every score of this package but `ceat`, which has a standard error, and `sc_weat`,
    for which take `mean_sc_weat`. A word that has several rows is drawn with all of them: for each mask, such as
    `x_mask`, there is `x_words`, which numbers the word of each row. Draws depend on `seed` (None: fresh) and the sizes
    of the sets alone. No gradient. ValueError for replicates < 1 and a confidence outside (0, 1).
    Efron 1979, doi:10.1214/aos/1176344552.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a, b = torch.tensor([[1.0, 0.0], [2.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    >>> print('{:.2f} [{:.2f}, {:.2f}]'.format(*bootstrap_interval(weat, x, y, a, b)))
    1.32 [0.48, 2.18]
    """
    if isinstance(metric, torch.nn.Module):
        raise TypeError(f"metric: got a {type(metric).__name__}, wanted a function; write metric.score_function()")
    replicates = _checks.integer_at_least("replicates", replicates, 1)
    confidence = check_confidence(confidence)
    parameters = list(inspect.signature(metric).parameters)
    words = {name: masks.pop(name) for name in list(masks) if name.endswith("_words")}
    known = {name for name in parameters if name.endswith("_mask")}
    if unknown := (masks.keys() - known) | (words.keys() - {name[:-4] + "words" for name in known}):
        raise TypeError(f"{min(unknown)}: not a mask of this metric, whose arguments are {', '.join(parameters)}")
    value = metric(*sets, **masks)  # its own checks, before anything is taken apart
    vectors = dict(zip(parameters, sets, strict=False))
    score = getattr(metric, "func", metric)  # of a partial
    grouped = getattr(score, "grouped", ())
    draws = {}  # mask -> what it takes to draw its counts
    for n, name in enumerate(p for p in parameters if p.endswith("_mask")):
        own = name.removesuffix("_mask")
        # A mask that is not of one set is of all sets that have no other: the pairs of RIPA, the tuples of direct bias.
        covered = [own] if own in vectors else [s for s in vectors if f"{s}_mask" not in parameters]
        shape = vectors[own].shape[-3:-1] if own in grouped else vectors[covered[0]].shape[-2:-1]
        rows = vectors[covered[0]][..., 0]
        rows = rows[..., 0, :] if covered[0] in grouped and own not in grouped else rows
        check_words(f"{own}_words", words.get(f"{own}_words"), covered[0], rows)
        draws[name] = masks.get(name), words.get(f"{own}_words"), shape, stream(seed) + n
        for s in covered if name in masks else ():
            mask = masks[name] if s == own or s not in grouped else masks[name].unsqueeze(-2)
            vectors[s] = vectors[s].where(mask.unsqueeze(-1), 0)
    repeated = [v.unsqueeze(-4 if s in grouped else -3) for s, v in vectors.items()]
    scores = [
        metric(*repeated, **{name: _counts(*draw, start, rows, sets[0].device) for name, draw in draws.items()})
        for start, rows in chunks(replicates, _cost(sets, getattr(score, "lean", False)))
    ]
    scores = torch.cat(scores, -1)
    if scores.numel() == 0:  # a batch of no queries, which has no quantiles
        return Estimate(value, value, value)
    enough = 2 * scores.isfinite().sum(-1) >= replicates
    ends = (1 - confidence) / 2, (1 + confidence) / 2
    tails = torch.linspace(*ends, 2, dtype=scores.dtype, device=scores.device)  # made there, not sent
    low, high = scores.nanquantile(tails, -1).masked_fill(~enough, torch.nan).unbind()
    return Estimate(value, low, high)


def _cost(sets: Sequence[Tensor], lean: bool) -> int:
    """How many numbers a replicate takes."""
    if not lean:
        return max(s.numel() for s in sets)
    words, dims = sum(s.shape[-2] for s in sets), sets[0].shape[-1]
    return max(s.shape[:-2].numel() for s in sets) * max(words, dims)


def _counts(
    mask: Tensor | None,
    words: Tensor | None,
    shape: torch.Size,
    begin: int,
    start: int,
    rows: int,
    device: torch.device,
) -> Tensor:
    # mask, words: (..., *shape)  ->  (..., rows, *shape) int64: how often each row's word was drawn
    """The replicates number `start` and following, each of as many words as there are; `shape` is (W,) or (G, W), and
    each group is drawn by itself."""
    groups, width = (1, *shape)[-2:]
    if mask is None and words is None:
        size = torch.full((1, groups), width, device=device)
        return resampled_counts(size, width, begin, start, rows).view(rows, *shape)
    present = torch.ones(shape, dtype=torch.bool, device=device) if mask is None else mask
    if words is not None:
        present, words = torch.broadcast_tensors(present, words)
    places = word_places(present, words)
    lead = present.shape[: present.ndim - len(shape)]
    size = count_words(places, present).reshape(lead.numel(), groups)
    times = resampled_counts(size, width, begin, start, rows).view(*lead, rows, *shape)
    present, places = (t.unsqueeze(-1 - len(shape)) for t in (present, places))
    return times.take_along_dim(places, -1) * present


# size: (B, G) int64, words of each group, at most `width`  ->  (B, rows, G, width) int64
OPERATOR = _native.define(
    "resampled_counts(Tensor size, int width, int begin, int start, int rows) -> Tensor",
    lambda size, width, begin, start, rows: size.new_empty(size.shape[0], rows, size.shape[1], width),
    _native.Operator("subsets", "bootstrap_interval", 10),
)
_native_counts = interruptible(OPERATOR, lambda size, width, begin, start, rows: 2 * size.numel() * width * rows)


def resampled_counts(size: Tensor, width: int, begin: int, start: int, rows: int) -> Tensor:
    return (_native_counts if size.device.type == "cpu" else _resampled_counts)(size, width, begin, start, rows)


@_native.reference("resampled_counts")
def _resampled_counts(size: Tensor, width: int, begin: int, start: int, rows: int) -> Tensor:
    """How often each word is drawn in the replicates `start` and following, queries of equal sizes drawing the same."""
    groups, size = size.shape[1], size[:, None, :, None]
    # Addresses run through the groups first, so that a width takes none from the words.
    uniform = random_uniform(begin, start, rows, width * groups, size.device).view(rows, width, groups).mT
    index = (uniform * size).long()
    drawn = (torch.arange(width, device=size.device) < size).long().expand_as(index)
    return torch.zeros_like(index).scatter_add(-1, index, drawn)
