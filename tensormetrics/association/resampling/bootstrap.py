"""Bootstrap intervals: the words of every set are reweighted, and the spread is that of the jackknife."""

import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ... import _checks
from ..._checks import takes_arrays
from ..._device_cache import cached_per_device
from ...uncertainty.engine.draws import joint_jackknife, scaled_draws, t_scales
from ...uncertainty.engine.errors import UncertaintyWarning
from ...uncertainty.results.estimates import Estimate, check_confidence
from ...uncertainty.results.quantiles import equal_tailed_interval
from ..sets.set_checks import weights_as_masks
from ..sets.word_ids import check_words, joint_mask, joint_words
from ..sets.word_sets import Vectors, WordSet
from .draws import chunks
from .random import concrete_seed
from .word_samples import WordSample, word_sample, word_weights

MAX_DF = 100  # of a t distribution; that of more degrees of freedom is hardly narrower
LARGEST = 1 - 2.0**-40  # correlation that has a finite z
WANTED = "one score a query of association, or of a function that passes its sets on to one"

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
    """Between which bounds does a score of this package lie, had other words of the same kind been chosen?

    Shapes: sets: as `metric` takes them, tensors or `WordSet`s -> Estimate of (...) float64.

    The words of each set are a sample of a population, independent of the other sets; pairs and tuples are wholes. In
    each of `replicates` draws words have weights of the exponential distribution (Rubin 1981,
    doi:10.1214/aos/1176345338). The draws are centred on the score, moved away from it until their spread is that of
    the jackknife, the variances of the sets added, and multiplied by the scale of a t distribution whose degrees of
    freedom are Satterthwaite's (1946, doi:10.2307/3002019) rounded down; for `weat_effect_size` all that on the scale
    of Fisher's z. The bounds are their (1 -+ confidence) / 2 quantiles. A set of one word is taken as fixed. Scores
    that are NaN are left out; the bounds are NaN if over half are. Where the target sets of `rnd` by "norm" differ in
    size, its draws are centred on the score less the bias of the jackknife, `details["corrected"]`, and a warning says
    so. Intervals of 95 % hold the effect size of the populations in .93 to .98 of simulated sets of 5 to 30 words, of
    the two kinds on which the method was chosen.

    `metric` gives one score per query, and options are bound to it by functools.partial: every score of this package
    but `ceat`, which has a standard error, and `sc_weat`, for which take `mean_sc_weat`; or a function that passes each
    of its sets on to one, as a `WordSet` whose mask holds weights. A word is drawn with all the rows that
    `WordSet.words` gives it. Draws depend on `seed` (None: fresh) and the places of the words in their sets alone. No
    gradient. ValueError for replicates < 1 and a confidence outside (0, 1), TypeError for a metric that reads tensors
    alone.

    >>> x, y, a, b = torch.randn(4, 8, 50, generator=torch.Generator().manual_seed(0)) + 0.5 * torch.eye(4, 50)[:, None]
    >>> print(f"{bootstrap_interval(weat_effect_size, x, y, a, b):.2f}")
    0.36 [-0.95, 1.31]
    """
    if isinstance(metric, torch.nn.Module):
        raise TypeError(f"metric: got a {type(metric).__name__}, wanted a function; write metric.score_function()")
    replicates = _checks.check_int("replicates", replicates, 1)
    confidence = check_confidence(confidence)
    seed = concrete_seed(seed)
    value = metric(*sets)  # its own checks, before anything is taken apart
    if not isinstance(value, Tensor):
        got = f"a function that gives a {type(value).__name__}"
        raise TypeError(f"metric: got {got}, wanted one that gives one score for each query")
    score = getattr(metric, "func", metric)  # of a partial
    population = _Population.of(score, {name: WordSet.of(s) for name, s in zip(_names(metric), sets, strict=False)})
    if value.numel() == 0:  # a batch of no queries, which has no quantiles
        return Estimate(value, value, value)
    scale = _scale(score, population)

    def scores(weights: list[Tensor]) -> Tensor:
        try:
            with weights_as_masks():
                by_query = metric(*population.weighted(weights)).double()
        except (AttributeError, TypeError) as error:
            raise TypeError(f"metric: got a function that takes no WordSet ({error}), wanted {WANTED}") from error
        num_draws = min(weight.shape[-1 - len(s.shape)] for weight, s in zip(weights, population.samples, strict=True))
        if num_draws > 1 and by_query.shape[-1:] != (num_draws,):
            got = f"a function whose scores of {num_draws} draws have the shape {tuple(by_query.shape)}"
            raise TypeError(f"metric: got {got}: it reads no weights, or gives several scores; wanted {WANTED}")
        return scale.to(by_query.expand(*value.shape, -1)).reshape(value.numel(), -1).T

    samples, stretched = population.samples, scale.to(value.double().unsqueeze(-1)).flatten()
    cost = _cost([s.values for s in population.sets.values()], getattr(score, "lean", False))
    weights = word_weights(samples, replicates, seed)
    draws = torch.cat([
        scores([sample.reweighted(part[i : i + n]) for sample, part in zip(samples, weights, strict=True)])
        for i, n in chunks(replicates, cost, least=2)  # one draw would not show that a function reads no weights
    ])  # fmt: skip
    draws = draws.where(draws.isfinite(), torch.nan)
    draws = draws - (draws.nanmean(0) - stretched)  # whose bias is that of the score, and not to count twice
    biased = _biased_sets(metric, population)
    standard_error, df, bias = _jackknife(samples, stretched, value.shape, scores, cost, biased)
    t_factors = _t_scales(df, sum(sample.num_words for sample in samples), replicates, seed)
    moved = scaled_draws(stretched, draws, standard_error, t_factors)
    details = {}
    if bias is not None:
        sizes = [samples[number].sizes[..., 0].expand(value.shape).flatten() for number in biased]
        bias = bias * (sizes[0] != sizes[1])
        moved, details["corrected"] = moved - bias, value.double() - bias.view(value.shape)
        _warn_of_sizes(score, sizes)
    ends = equal_tailed_interval(moved, confidence)
    low, high = (scale.back(end.view(*value.shape, 1)).squeeze(-1) for end in ends)
    low, high = torch.fmin(low, value.double()), torch.fmax(high, value.double())
    return Estimate(value, low, high, confidence=confidence, method="bayesian bootstrap", details=details)


def _names(metric: Callable[..., Tensor]) -> Iterator[str]:
    """Return the names of the sets, which those of a ``*sets`` have not."""
    for name, parameter in inspect.signature(metric).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield from (f"{name}[{i}]" for i in itertools.count())
        yield name


@dataclass
class _Population:
    """The sets of a query, and its words as samples of populations, each of the words of some of the sets."""

    sets: dict[str, WordSet]  # 0 where values are masked
    samples: list[WordSample]
    members: list[tuple[str, ...]]  # the sets of each sample: one, or all that are aligned by position
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
            masks, words = ([part for t in each if t is not None for part in t.unbind(-2)] for each in (masks, words))
        mask, dims = joint_mask(*masks), 2 if names == self.tuples or names[0] not in self.grouped else 3
        if mask is not None:
            if mask.dtype != torch.bool:
                raise TypeError(f"{names[0]}.mask: got {mask.dtype}, wanted torch.bool: the words that are drawn")
            of_set = mask.unsqueeze(-2) if groups_of_tuples else mask
            for name in names:
                cached_per_device = self.sets[name].values.where(of_set.unsqueeze(-1), 0)
                self.sets[name] = self.sets[name]._replace(values=cached_per_device)
        return word_sample(mask, joint_words(*words), values.shape[-dims:-1], values.device)

    def _are_groups_of_tuples(self, names: tuple[str, ...]) -> bool:
        return names == self.tuples and names[0] in self.grouped

    def weighted(self, weights: list[Tensor]) -> list[WordSet]:
        # weights: of each sample (..., R, *shape)
        """Return the sets with a dimension of replicates, and weights as masks."""
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
    """A scale on which the spread of a score hardly depends on the score, and the way back."""

    to: Callable[[Tensor], Tensor]
    back: Callable[[Tensor], Tensor]


def _scale(score: Callable[..., Tensor], population: _Population) -> _Scale:
    """Return Fisher's z (1915, doi:10.2307/2331838) of scores that are correlations but for a factor."""
    names = getattr(score, "contrast", None)
    if names is None:
        return _Scale(lambda scores: scores, lambda ends: ends)
    samples = (population.samples[population.members.index((name,))] for name in names)
    by_row = getattr(score, "counts_rows", False)
    first, second = (s.valid_mask.sum(-1, keepdim=True) if by_row else s.sizes for s in samples)
    limit = (first + second) / (first * second).double().sqrt()
    return _Scale(
        lambda scores: torch.atanh((scores / limit).clamp(-LARGEST, LARGEST)), lambda ends: limit * torch.tanh(ends)
    )


def _jackknife(
    samples: list[WordSample], value: Tensor, shape: torch.Size, scores: Scores, cost: int, biased: list[int]
) -> tuple[Tensor, Tensor, Tensor | None]:
    # value: (V,), V numbers of the shape  ->  standard error, degrees of freedom, and bias by some samples, (V,) each
    squares, counts = [], []
    bias = None
    for number, sample in enumerate(samples):
        others = [other.unchanged() for other in samples]
        without = torch.cat([
            scores([*others[:number], sample.without(*part), *others[number + 1 :]])
            for part in chunks(sample.num_words, cost)
        ])  # fmt: skip
        groups = sample.sizes.shape[-1]
        moved = (without - value).nan_to_num(0, 0, 0).view(groups, -1, len(value))
        squares.append(moved.square().sum(1))
        counts.append(sample.sizes.expand(*shape, groups).reshape(-1, groups).T)
        if number in biased:  # Quenouille 1956, doi:10.1093/biomet/43.3-4.353
            own_bias = (moved.sum(1) * (1 - 1 / counts[-1].clamp(min=1))).sum(0)
            bias = own_bias if bias is None else bias + own_bias
    return *joint_jackknife(torch.cat(squares), torch.cat(counts)), bias


def _biased_sets(metric: Callable[..., Tensor], population: _Population) -> list[int]:
    """Return the numbers of the two samples by whose sizes the score is biased."""
    names, where = getattr(getattr(metric, "func", metric), "biased", ((), None))
    if where is None or not where(getattr(metric, "keywords", {})):
        return []
    return [number for number, members in enumerate(population.members) if set(members) & set(names)]


def _warn_of_sizes(score: Callable[..., Tensor], sizes: list[Tensor]) -> None:
    # sizes: (V,) of two sets
    unequal = (sizes[0] != sizes[1]).nonzero()[:1, 0]
    if len(unequal):
        counts = " and ".join(str(int(size[unequal])) for size in sizes)
        warnings.warn(
            f"{getattr(score, '__name__', 'score')} of sets of {counts} words is biased by their sizes: its interval "
            "is about the score without the bias, details['corrected'] (`rnd_corrected`); or write distance='cos'",
            UncertaintyWarning,
            stacklevel=5,
        )


def _t_scales(df: Tensor, num_words: int, replicates: int, seed: int) -> Tensor:
    # df: (V,)  ->  (R, V)
    most = min(num_words, MAX_DF)
    df = df.nan_to_num(1.0).floor().clamp(1, most)
    if df.device.type == "cpu" and len(df) <= most:
        return t_scales(seed, replicates, df, df.device)
    return _t_scales_up_to(df, most, replicates, seed)[:, df.long() - 1]


@cached_per_device
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
