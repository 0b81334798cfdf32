"""Bootstrap intervals: the words of every set are reweighted, and the spread is that of the jackknife."""

import inspect
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ... import _checks
from ..._checks import takes_arrays
from ..._device_cache import kept
from ...uncertainty.engine.draws import joint_jackknife, scaled_draws, t_scales
from ...uncertainty.results.estimates import Estimate, check_confidence, interval_of
from ..sets.set_checks import weights_as_masks
from ..sets.word_ids import check_words
from .draws import chunks
from .random import concrete_seed
from .word_samples import WordSample, word_sample, word_weights

MAX_DF = 100  # of a t distribution; that of more degrees of freedom is hardly narrower
LARGEST = 1 - 2.0**-40  # correlation that has a finite z

Scores = Callable[[list[Tensor]], Tensor]  # weights of rows of each sample (..., R, *shape)  ->  (R, V)


@takes_arrays
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

    The words of each set are a sample of a population, independent of the other sets; pairs and tuples are wholes. In
    each of `replicates` draws words have weights of the exponential distribution (Rubin 1981,
    doi:10.1214/aos/1176345338). The draws are centred on the score, moved away from it until their spread is that of
    the jackknife, the variances of the sets added, and multiplied by the scale of a t distribution whose degrees of
    freedom are Satterthwaite's (1946, doi:10.2307/3002019) rounded down; for `weat_effect_size` all that on the scale
    of Fisher's z. The bounds are their (1 -+ confidence) / 2 quantiles. A set of one word is taken as fixed. Scores
    that are NaN are left out; the bounds are NaN if over half are. Intervals of 95 % hold the effect size of the
    populations in .93 to .98 of simulated sets of 5 to 30 words, of the two kinds on which the method was chosen.

    `metric` gives one score per query, and options are bound to it by functools.partial: every score of this package
    but `ceat`, which has a standard error, and `sc_weat`, for which take `mean_sc_weat`. A word that has several rows
    is drawn with all of them: for each mask, such as `x_mask`, there is `x_words`, which numbers the word of each row.
    Draws depend on `seed` (None: fresh) and the places of the words in their sets alone. No gradient. ValueError for
    replicates < 1 and a confidence outside (0, 1), TypeError for a metric without masks.

    >>> x, y, a, b = torch.randn(4, 8, 50, generator=torch.Generator().manual_seed(0)) + 0.5 * torch.eye(4, 50)[:, None]
    >>> print(f"{bootstrap_interval(weat_effect_size, x, y, a, b):.2f}")
    0.36 [-0.95, 1.31]
    """
    if isinstance(metric, torch.nn.Module):
        raise TypeError(f"metric: got a {type(metric).__name__}, wanted a function; write metric.score_function()")
    replicates = _checks.integer_at_least("replicates", replicates, 1)
    confidence = check_confidence(confidence)
    seed = concrete_seed(seed)
    parameters = list(inspect.signature(metric).parameters)
    words = {name: masks.pop(name) for name in list(masks) if name.endswith("_words")}
    known = {name for name in parameters if name.endswith("_mask")}
    if unknown := (masks.keys() - known) | (words.keys() - {name[:-4] + "words" for name in known}):
        raise TypeError(f"{min(unknown)}: not a mask of this metric, whose arguments are {', '.join(parameters)}")
    if not known:
        raise TypeError(f"metric: got a function of {', '.join(parameters)}, wanted masks among them, such as x_mask")
    value = metric(*sets, **masks)  # its own checks, before anything is taken apart
    score = getattr(metric, "func", metric)  # of a partial
    grouped = getattr(score, "grouped", ())
    vectors = dict(zip(parameters, sets, strict=False))
    samples = _samples(parameters, vectors, masks, words, grouped)
    if value.numel() == 0:  # a batch of no queries, which has no quantiles
        return Estimate(value, value, value)
    repeated = [v.unsqueeze(-4 if s in grouped else -3) for s, v in vectors.items()]
    scale = _scale(score, samples)

    def scores(weights: list[Tensor]) -> Tensor:
        with weights_as_masks():
            by_query = metric(*repeated, **dict(zip(samples, weights, strict=True))).double()
        return scale.to(by_query.expand(*value.shape, -1)).reshape(value.numel(), -1).T

    words_of, stretched = list(samples.values()), scale.to(value.double().unsqueeze(-1)).flatten()
    cost = _cost(sets, getattr(score, "lean", False))
    weights = word_weights(words_of, replicates, seed)
    draws = torch.cat([
        scores([sample.reweighted(part[i : i + n]) for sample, part in zip(words_of, weights, strict=True)])
        for i, n in chunks(replicates, cost)
    ])  # fmt: skip
    draws = draws.where(draws.isfinite(), torch.nan)
    draws = draws - (draws.nanmean(0) - stretched)  # whose bias is that of the score, and not to count twice
    standard_error, df = _jackknife(words_of, stretched, value.shape, scores, cost)
    t_factors = _t_scales(df, sum(sample.num_words for sample in words_of), replicates, seed)
    ends = interval_of(scaled_draws(stretched, draws, standard_error, t_factors), confidence)
    low, high = (scale.back(end.view(*value.shape, 1)).squeeze(-1) for end in ends)
    low, high = torch.fmin(low, value.double()), torch.fmax(high, value.double())
    return Estimate(value, low, high, confidence=confidence, method="bayesian bootstrap")


def _samples(
    parameters: list[str],
    vectors: dict[str, Tensor],
    masks: dict[str, Tensor],
    words: dict[str, Tensor],
    grouped: Sequence[str],
) -> dict[str, WordSample]:
    """Return the words by mask, and write 0 for vectors that are masked."""
    samples = {}
    for name in (p for p in parameters if p.endswith("_mask")):
        own = name.removesuffix("_mask")
        # A mask that is not of one set is of all sets that have no other: the pairs of RIPA, the tuples of direct bias.
        covered = [own] if own in vectors else [s for s in vectors if f"{s}_mask" not in parameters]
        like = vectors[covered[0]]
        shape = vectors[own].shape[-3:-1] if own in grouped else like.shape[-2:-1]
        rows = like[..., 0, :, 0] if covered[0] in grouped and own not in grouped else like[..., 0]
        check_words(f"{own}_words", words.get(f"{own}_words"), covered[0], rows)
        samples[name] = word_sample(masks.get(name), words.get(f"{own}_words"), shape, like.device)
        for s in covered if name in masks else ():
            mask = masks[name] if s == own or s not in grouped else masks[name].unsqueeze(-2)
            vectors[s] = vectors[s].where(mask.unsqueeze(-1), 0)
    return samples


class _Scale(NamedTuple):
    """A scale on which the spread of a score hardly depends on the score, and the way back."""

    to: Callable[[Tensor], Tensor]
    back: Callable[[Tensor], Tensor]


def _scale(score: Callable[..., Tensor], samples: dict[str, WordSample]) -> _Scale:
    """Return Fisher's z (1915, doi:10.2307/2331838) of scores that are correlations but for a factor."""
    names = getattr(score, "contrast", None)
    if names is None:
        return _Scale(lambda scores: scores, lambda ends: ends)
    first, second = (samples[f"{name}_mask"].valid_mask.sum(-1, keepdim=True) for name in names)
    limit = (first + second) / (first * second).double().sqrt()
    return _Scale(
        lambda scores: torch.atanh((scores / limit).clamp(-LARGEST, LARGEST)), lambda ends: limit * torch.tanh(ends)
    )


def _jackknife(
    samples: list[WordSample], value: Tensor, shape: torch.Size, scores: Scores, cost: int
) -> tuple[Tensor, Tensor]:
    # value: (V,), V numbers of the shape  ->  standard error and degrees of freedom, (V,) each
    squares, counts = [], []
    for number, sample in enumerate(samples):
        others = [other.unchanged() for other in samples]
        without = torch.cat([
            scores([*others[:number], sample.without(*part), *others[number + 1 :]])
            for part in chunks(sample.num_words, cost)
        ])  # fmt: skip
        groups = sample.sizes.shape[-1]
        squares.append((without - value).nan_to_num(0, 0, 0).square().view(groups, -1, len(value)).sum(1))
        counts.append(sample.sizes.expand(*shape, groups).reshape(-1, groups).T)
    return joint_jackknife(torch.cat(squares), torch.cat(counts))


def _t_scales(df: Tensor, num_words: int, replicates: int, seed: int) -> Tensor:
    # df: (V,)  ->  (R, V)
    most = min(num_words, MAX_DF)
    df = df.nan_to_num(1.0).floor().clamp(1, most)
    if df.device.type == "cpu" and len(df) <= most:
        return t_scales(seed, replicates, df, df.device)
    return _t_scales_up_to(df, most, replicates, seed)[:, df.long() - 1]


@kept
def _t_scales_up_to(device: torch.device, most: int, replicates: int, seed: int) -> Tensor:
    # ->  (R, most), of 1, 2, ... degrees of freedom
    df = torch.arange(1, most + 1, device="cpu")
    return t_scales(seed, replicates, df, df.device).to(device)


def _cost(sets: Sequence[Tensor], lean: bool) -> int:
    """How many numbers a replicate takes."""
    if not lean:
        return max(s.numel() for s in sets)
    words, dims = sum(s.shape[-2] for s in sets), sets[0].shape[-1]
    return max(s.shape[:-2].numel() for s in sets) * max(words, dims)
