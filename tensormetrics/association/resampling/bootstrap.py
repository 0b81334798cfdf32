"""Bootstrap intervals: words are reweighted, and the standard error is that of the jackknife."""

import inspect
import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.native.device_cache import cached_per_device
from ...core.numbers.quantiles import equal_tailed_interval
from ...core.resampling.draws import TOLERANCE, joint_jackknife, pseudo_masses, scaled_draws, t_scales
from ...core.resampling.errors import UncertaintyWarning
from ...core.results.estimates import Estimate, check_confidence
from ..sets.set_checks import weights_as_masks
from ..sets.word_ids import check_words, joint_mask, joint_words
from ..sets.word_sets import Vectors, WordSet
from .draws import chunks
from .random import concrete_seed
from .word_samples import WordSample, word_sample, word_weights

MAX_DF = 100  # degrees of freedom of a t distribution; more would hardly narrow it
LARGEST = 1 - 2.0**-40  # largest correlation with a finite z
EXPECTED = "one score a query of association, or of a function that passes its sets on to one"

Scores = Callable[[list[Tensor]], Tensor]  # weights of rows of each sample (..., R, *shape)  ->  (R, V)


@takes_arrays
@torch.no_grad()
def bootstrap_interval(
    metric: Callable[..., Tensor],
    *sets: Vectors,
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int | None = 0,
) -> Estimate:
    """Compute a confidence interval of a score of this package over the choice of words.

    Shapes: sets: as `metric` takes them, tensors or `WordSet`s -> Estimate of (...) float64.

    The words of each set are a sample of a population, independent of the other sets; pairs and tuples are drawn as
    units. In each of `replicates` draws words have exponential weights (Rubin 1981, doi:10.1214/aos/1176345338). The
    draws are centered on the score, scaled to the standard error of the jackknife (the variances of the sets are
    added), and multiplied by the scale of a t distribution with Satterthwaite's (1946, doi:10.2307/3002019) degrees of
    freedom, rounded down; for `weat_effect_size` on the scale of Fisher's z. The bounds are their
    (1 -+ confidence) / 2 quantiles, extended to contain the score and cut where the score cannot be, as beyond
    -+2 (X + Y) for `weat`. A set of one word is fixed. Where no word changes the score, one imagined score, half of it
    the least and half the largest, is drawn beside those of the words. NaN scores are ignored; the bounds are NaN if
    over half are NaN. If the target sets of `rnd` by "norm" differ in size, its draws are centered on the score minus
    the jackknife bias, `details["corrected"]`, with a warning. Intervals of 95 % cover the effect size of the
    populations in .93 to .98 of simulated sets of 5 to 30 words, of the two kinds on which the method was chosen.

    `metric` returns one score per query, with options bound by functools.partial: every score of sets of words except
    `ceat`, which has a standard error, `ml_eat`, whose effect is a `weat_effect_size`, and `sc_weat`, for which use
    `mean_sc_weat`; or a function that passes each of
    its sets on to such a score as a `WordSet` with weights as mask. A word is drawn with all the rows that
    `WordSet.words` assigns to it. Draws depend only on `seed` (None: fresh) and the positions of the words in their
    sets. No gradient. ValueError for replicates < 1 and a confidence outside (0, 1), TypeError for a metric that takes
    only tensors.

    >>> x, y, a, b = torch.randn(4, 8, 50, generator=torch.Generator().manual_seed(0)) + 0.5 * torch.eye(4, 50)[:, None]
    >>> print(f"{bootstrap_interval(weat_effect_size, x, y, a, b):.2f}")
    0.36 [-0.95, 1.31]
    """
    if isinstance(metric, torch.nn.Module):
        raise TypeError(f"metric: got a {type(metric).__name__}, wanted a function; write metric.score_function()")
    replicates = checks.check_int("replicates", replicates, 1)
    confidence = check_confidence(confidence)
    seed = concrete_seed(seed)
    value = metric(*sets)  # first, because it checks its arguments
    if not isinstance(value, Tensor):
        got = f"a function that returns a {type(value).__name__}"
        raise TypeError(f"metric: got {got}, wanted one that returns one score for each query")
    score = getattr(metric, "func", metric)  # of a partial
    population = _Population.of(score, {name: WordSet.of(s) for name, s in zip(_names(metric), sets, strict=False)})
    if value.numel() == 0:  # an empty batch has no quantiles
        return Estimate(value, value, value)
    scale = _scale(score, population)

    def scores(weights: list[Tensor]) -> Tensor:
        try:
            with weights_as_masks():
                by_query = metric(*population.weighted(weights)).double()
        except (AttributeError, TypeError) as error:
            raise TypeError(f"metric: got a function that takes no WordSet ({error}), wanted {EXPECTED}") from error
        num_draws = min(weight.shape[-1 - len(s.shape)] for weight, s in zip(weights, population.samples, strict=True))
        if num_draws > 1 and by_query.shape[-1:] != (num_draws,):
            got = f"a function whose scores of {num_draws} draws have the shape {tuple(by_query.shape)}"
            raise TypeError(f"metric: got {got}: it reads no weights, or gives several scores; wanted {EXPECTED}")
        return scale.to(by_query.expand(*value.shape, -1)).reshape(value.numel(), -1).T

    samples, stretched = population.samples, scale.to(value.double().unsqueeze(-1)).flatten()
    cost = _cost([s.values for s in population.sets.values()], getattr(score, "lean", False))
    draws = _draws(samples, scores, cost, replicates, seed)
    draws = draws - (draws.nanmean(0) - stretched)  # remove the bias of the score, which must not count twice
    biased = _biased_sets(metric, population)
    standard_error, df, bias = _jackknife(samples, stretched, value.shape, scores, cost, biased)
    t_factors = _t_scales(df, sum(sample.num_words for sample in samples), replicates, seed)
    moved = scaled_draws(stretched, draws, standard_error, t_factors)
    details = {}
    if bias is not None:
        sizes = [samples[index].sizes[..., 0].expand(value.shape).flatten() for index in biased]
        bias = bias * (sizes[0] != sizes[1])
        moved, details["corrected"] = moved - bias, value.double() - bias.view(value.shape)
        _warn_of_sizes(score, sizes)
    is_alike = (standard_error <= TOLERANCE * stretched.abs().clamp(min=1)).view(value.shape)
    low, high = _ends(value, moved, is_alike, scale, samples, confidence, seed)
    low, high = torch.fmin(low, value.double()), torch.fmax(high, value.double())
    return Estimate(value, low, high, confidence=confidence, method="bayesian bootstrap", details=details)


def _draws(samples: list[WordSample], scores: Scores, cost: int, replicates: int, seed: int) -> Tensor:
    # ->  (R, V), NaN where a score is not finite
    weights = word_weights(samples, replicates, seed)
    draws = torch.cat([
        scores([sample.reweighted(part[i : i + n]) for sample, part in zip(samples, weights, strict=True)])
        for i, n in chunks(replicates, cost, min_rows=2)  # one draw would not reveal a function that ignores weights
    ])  # fmt: skip
    return draws.nan_to_num(math.nan, math.nan, math.nan)


def _names(metric: Callable[..., Tensor]) -> Iterator[str]:
    """Yield the names of the sets; sets of a ``*sets`` parameter are named by their index."""
    for name, parameter in inspect.signature(metric).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield from (f"{name}[{i}]" for i in itertools.count())
        yield name


@dataclass
class _Population:
    """Sets of a query, and samples of their words from populations."""

    sets: dict[str, WordSet]  # masked values are 0
    samples: list[WordSample]
    members: list[tuple[str, ...]]  # names of the sets of each sample: one set, or all sets aligned by position
    grouped: tuple[str, ...]  # sets that are (..., G, W, D)
    tuples: tuple[str, ...]

    @staticmethod
    def of(score: Callable[..., Tensor], sets: dict[str, WordSet]) -> "_Population":
        grouped, tuples = getattr(score, "grouped", ()), getattr(score, "tuples", ())
        members: list[tuple[str, ...]] = [(name,) for name in sets if name not in tuples]
        if tuples:
            members.insert(list(sets).index(tuples[0]), tuples)
        population = _Population(sets, [], members, grouped, tuples)
        population.samples = [population._sample(names) for names in members]
        return population

    def _sample(self, names: tuple[str, ...]) -> WordSample:
        for name in names:
            check_words(f"{name}.words", self.sets[name].words, name, self.sets[name].values[..., 0])
        masks, words = ([self.sets[name][field] for name in names] for field in (1, 2))
        values, groups_of_tuples = self.sets[names[0]].values, self._are_groups_of_tuples(names)
        if groups_of_tuples:
            masks, words = (
                [part for field in fields if field is not None for part in field.unbind(-2)]
                for fields in (masks, words)
            )
        mask, dims = joint_mask(*masks), 2 if names == self.tuples or names[0] not in self.grouped else 3
        if mask is not None:
            if mask.dtype != torch.bool:
                raise TypeError(f"{names[0]}.mask: got {mask.dtype}, wanted torch.bool: the words to draw")
            of_set = mask.unsqueeze(-2) if groups_of_tuples else mask
            for name in names:
                masked_values = self.sets[name].values.where(of_set.unsqueeze(-1), 0)
                self.sets[name] = self.sets[name]._replace(values=masked_values)
        return word_sample(mask, joint_words(*words), values.shape[-dims:-1], values.device)

    def _are_groups_of_tuples(self, names: tuple[str, ...]) -> bool:
        return names == self.tuples and names[0] in self.grouped

    def weighted(self, weights: list[Tensor]) -> list[WordSet]:
        # weights: (..., R, *shape) for each sample
        """Return the sets with a dimension of replicates and with weights as masks."""
        weighted = {}
        for names, weight in zip(self.members, weights, strict=True):
            for name in names:
                values, dims = self.sets[name].values, 3 if name in self.grouped else 2
                mask, words = weight, self.sets[name].words
                if self._are_groups_of_tuples(names):
                    mask = weight.unsqueeze(-2).expand(*weight.shape[:-1], *values.shape[-3:-1])
                if words is not None:
                    valid = self.sets[name].mask
                    words = words if valid is None else words.masked_fill(~valid, -1)
                    words = words.unsqueeze(-dims)
                weighted[name] = WordSet(values.unsqueeze(-1 - dims), mask, words)
        return [weighted[name] for name in self.sets]


class _Scale(NamedTuple):
    """The range of a score, and a transformation that stabilizes its variance, with the inverse."""

    least: Any  # number or (...)
    largest: Any
    to: Callable[[Tensor], Tensor] = lambda scores: scores
    back: Callable[[Tensor], Tensor] = lambda ends: ends


def _scale(score: Callable[..., Tensor], population: _Population) -> _Scale:
    """Return the range of a score, and Fisher's z (1915, doi:10.2307/2331838) for correlations up to a factor."""
    least, largest = getattr(score, "range", (-math.inf, math.inf))
    names = getattr(score, "contrast", getattr(score, "range_per_word", ()))
    samples = [population.samples[population.members.index((name,))] for name in names]
    by_row = getattr(score, "counts_rows", False)
    sizes = [s.valid_mask.sum(-1, keepdim=True) if by_row else s.sizes for s in samples]  # (..., 1)
    if not names:
        return _Scale(least, largest)
    if not hasattr(score, "contrast"):
        size = (sizes[0] + sizes[1]).squeeze(-1)
        return _Scale(least * size, largest * size)
    limit = (sizes[0] + sizes[1]) / (sizes[0] * sizes[1]).double().sqrt()  # of two sets of equal values
    end = limit.squeeze(-1)
    to, back = lambda z: torch.atanh((z / limit).clamp(-LARGEST, LARGEST)), lambda ends: limit * torch.tanh(ends)
    return _Scale(-end, end, to, back)


def _jackknife(
    samples: list[WordSample], value: Tensor, shape: torch.Size, scores: Scores, cost: int, biased: list[int]
) -> tuple[Tensor, Tensor, Tensor | None]:
    # value: (V,), V elements of the shape  ->  (V,) each
    """Return the standard error, the degrees of freedom, and the bias due to the `biased` samples."""
    squares, counts = [], []
    bias, others = None, [sample.unchanged() for sample in samples]
    for index, sample in enumerate(samples):
        without = torch.cat([
            scores([*others[:index], sample.without(*part), *others[index + 1 :]])
            for part in chunks(sample.num_words, cost)
        ])  # fmt: skip
        groups = sample.sizes.shape[-1]
        moved = (without - value).nan_to_num(0, 0, 0).view(groups, -1, len(value))
        squares.append(moved.square().sum(1))
        counts.append(sample.sizes.expand(*shape, groups).reshape(-1, groups).T)
        if index in biased:  # Quenouille 1956, doi:10.1093/biomet/43.3-4.353
            sample_bias = (moved.sum(1) * (1 - 1 / counts[-1].clamp(min=1))).sum(0)
            bias = sample_bias if bias is None else bias + sample_bias
    return *joint_jackknife(torch.cat(squares), torch.cat(counts)), bias


def _ends(
    value: Tensor,
    moved: Tensor,
    is_alike: Tensor,
    scale: _Scale,
    samples: list[WordSample],
    confidence: float,
    seed: int,
) -> tuple[Tensor, Tensor]:
    # value, is_alike: (...)  moved: (R, V), on the scale  ->  (...) each
    """Return the ends of the draws or, where no word changes the score, of draws beside an imagined score.

    These are the limits where one is infinite. Sets of one word stay fixed.
    """
    limits = scale[:2]
    may_be_alike = value.device.type != "cpu" or bool(is_alike.numpy().any())
    is_bounded = all(isinstance(limit, Tensor) or math.isfinite(limit) for limit in limits)
    if may_be_alike:
        sizes = (s.sizes.squeeze(-1) if s.sizes.shape[-1] == 1 else s.sizes.amin(-1) for s in samples)
        words = torch.stack([size.expand(value.shape) for size in sizes]).double()
        words = words.where(words > 1, torch.inf).amin(0)  # of the smallest set, inf if all are fixed
        if is_bounded:
            imagined = _draws_of_alike(value.double(), words, samples, limits, len(moved), seed)
            moved = torch.cat([moved, imagined.view(len(moved), -1)], 1)  # one call for both
    # with imagined draws (2, ...) each, else (1, ...)
    ends = [end.view(-1, *value.shape) for end in equal_tailed_interval(moved, confidence)]
    low, high = (scale.back(end[0].unsqueeze(-1)).squeeze(-1).clamp(*limits) for end in ends)
    if not may_be_alike:
        return low, high
    if is_bounded:
        return torch.where(is_alike, ends[0][1], low), torch.where(is_alike, ends[1][1], high)
    is_alike = is_alike & words.isfinite() & value.isfinite()
    return torch.where(is_alike, limits[0], low), torch.where(is_alike, limits[1], high)


def _draws_of_alike(
    value: Tensor, words: Tensor, samples: list[WordSample], limits: tuple[Any, Any], replicates: int, seed: int
) -> Tensor:
    # value, words: (...)  limits: numbers or (...)  ->  (R, ...)
    """Draw scores that do not depend on any single word.

    As the mean of as many equal scores as the smallest set has words, and of an imagined one, half of it the least and
    half the largest.
    """
    least, largest = limits
    scales = _t_scales(2 * words.flatten(), 2 * sum(s.num_words for s in samples), replicates, seed)
    total = words / scales.view(-1, *words.shape).square()  # Gamma(words)
    low, high = _pseudo_masses(value, seed, replicates).view(2, -1, *[1] * value.ndim)
    return value + (low * (least - value) + high * (largest - value)) / (total + low + high)


@cached_per_device
def _pseudo_masses(device: torch.device, seed: int, replicates: int) -> Tensor:
    return pseudo_masses(seed, replicates, device)


def _biased_sets(metric: Callable[..., Tensor], population: _Population) -> list[int]:
    """Return the indices of the two samples whose sizes bias the score."""
    names, where = getattr(getattr(metric, "func", metric), "biased", ((), None))
    if where is None or not where(getattr(metric, "keywords", {})):
        return []
    return [index for index, members in enumerate(population.members) if set(members) & set(names)]


def _warn_of_sizes(score: Callable[..., Tensor], sizes: list[Tensor]) -> None:
    # sizes: (V,) for each of two sets
    unequal = (sizes[0] != sizes[1]).nonzero()[:1, 0]
    if len(unequal):
        counts = " and ".join(str(int(size[unequal])) for size in sizes)
        warnings.warn(
            f"{getattr(score, '__name__', 'score')} of sets of {counts} words is biased by their sizes: its interval "
            "is about the score without the bias, details['corrected']; or write distance='cos'",
            UncertaintyWarning,
            stacklevel=5,
        )


def _t_scales(df: Tensor, num_words: int, replicates: int, seed: int) -> Tensor:
    # df: (V,)  ->  (R, V)
    max_df = min(num_words, MAX_DF)
    df = (df.nan_to_num(1.0) * (1 + 1e-9)).clamp(1, max_df).long()  # 3.999... is an integer, rounded
    if df.device.type == "cpu" and len(df) <= max_df:
        return t_scales(seed, replicates, df, df.device)
    return _t_scales_up_to(df, max_df, replicates, seed)[:, df - 1]


@cached_per_device
def _t_scales_up_to(device: torch.device, max_df: int, replicates: int, seed: int) -> Tensor:
    # ->  (R, max_df), for 1, 2, ... degrees of freedom
    df = torch.arange(1, max_df + 1, device="cpu")
    return t_scales(seed, replicates, df, df.device).to(device)


def _cost(sets: Sequence[Tensor], lean: bool) -> int:
    """Return the number of elements of a replicate."""
    if not lean:
        return max(s.numel() for s in sets)
    words, dims = sum(s.shape[-2] for s in sets), sets[0].shape[-1]
    return max(s.shape[:-2].numel() for s in sets) * max(words, dims)
