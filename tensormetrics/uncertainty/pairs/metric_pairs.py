"""Comparison of two metrics of one type, or of one metric and a number."""

import dataclasses
import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from ...core.arguments import checks
from ...core.metric.base import Metric
from ...core.metric.distributed import described, options_of
from ...core.resampling.errors import UncertaintyWarning
from ...core.resampling.paired import comparisons, comparisons_with
from ...core.resampling.statements import ALTERNATIVES, Question
from ...core.results.estimates import Comparison, check_confidence
from ..item_scores.item_scores import Scores


class Options(NamedTuple):
    """Options of `compare`."""

    confidence: float = 0.95
    alternative: str = "two-sided"
    replicates: int | None = None
    seed: int | None = None
    rope: float | None = None
    of_family: bool = False

    def question(self, direction: Callable[[str], bool | None]) -> Question:
        """Return the checked options; ValueError for one that is out of range."""
        confidence = check_confidence(self.confidence)
        checks.check_choice("alternative", self.alternative, ALTERNATIVES)
        if self.alternative != "two-sided":  # below .5 a bound would exclude the difference
            checks.check_number("confidence", confidence, "a number between 0.5 and 1 for one side", lambda x: x > 0.5)
        if self.rope is not None:
            checks.check_number("rope", self.rope, "None or a number >= 0", lambda x: x >= 0)
        return Question(confidence, self.alternative, self.rope, direction, self.of_family)


class SampledMetric(NamedTuple):
    """A metric with its replicates, or a number."""

    metric: Any
    resampled: Any
    estimates: Any  # the interval of each value

    @classmethod
    def of(cls, metric: Any, options: Options) -> "SampledMetric":
        """Sample a metric, once for all comparisons."""
        if not hasattr(metric, "_resampled"):
            return cls(float(metric), None, None)
        resampled = metric._resampled("comparison", options.replicates, options.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UncertaintyWarning)  # the comparison warns instead
            estimates = metric._estimates(resampled, options.confidence)
        return cls(metric, resampled, estimates)


def compare_sampled(a: SampledMetric, b: SampledMetric, options: Options) -> Any:
    """Return a `Comparison`, or several by name, with the estimates of both samples and the direction."""
    question = options.question(a.metric._direction)
    if b.resampled is None:
        return _with_scores(comparisons_with(a.resampled, b.metric, question), a, b)
    return _with_scores(comparisons(a.resampled, b.resampled, question), a, b)


def _with_scores(result: Any, a: SampledMetric, b: SampledMetric) -> Any:
    def completed(comparison: Comparison, name: str, estimates: list[Any]) -> Comparison:
        name = name or (a.metric.name if isinstance(a.metric, Scores) else estimates[0].name)
        direction = a.metric._direction(name) is not False
        fields = {"name": name, "higher_is_better": direction, "a": estimates[0], "b": estimates[1]}
        return dataclasses.replace(comparison, labels=getattr(estimates[0], "labels", None), **fields)

    samples = [a.estimates, b.estimates]
    if isinstance(result, Comparison):
        return completed(result, "", samples)
    return {
        name: completed(comparison, name, [None if sample is None else sample[name] for sample in samples])
        for name, comparison in result.items()
    }


def check_comparable(a: Any, b: Any, names: tuple[str, str] = ("a", "b")) -> None:
    """Raise an error before any work for arguments that are no metrics, or differ in type or scoring options."""
    if isinstance(b, int | float | np.number) and not isinstance(b, bool):
        checks.check_number(names[1], b, "a metric or a finite number", math.isfinite)
        samples = [a]
    else:
        samples = [a, b]
    for name, sample in zip(names, samples, strict=False):
        if not hasattr(sample, "_resampled"):
            expected = f"a metric of this package, or Uncertain(it){', or a number' if sample is b else ''}"
            raise TypeError(f"{name}: got a {type(sample).__name__}, wanted {expected}")
    if len(samples) == 2:
        if type(a) is not type(b):
            raise ValueError(f"{names[1]}: got a {type(b).__name__}, wanted a {type(a).__name__} as {names[0]} is")
        check_same_scores(a, b)


def check_same_scores(a: Any, b: Any) -> None:
    """Raise a ValueError if a scoring option differs; options that say how a model answers may differ."""
    metrics, others = (_parts(sample) for sample in (a, b))
    if len(metrics) != len(others):
        raise ValueError(f"b: got {len(others)} metrics, wanted {len(metrics)} as a has")
    for options, other_options in zip(metrics, others, strict=True):
        for name in (*options, *other_options):
            option, other_option = (sample.get(name, "nothing") for sample in (options, other_options))
            if option != other_option:
                raise ValueError(f"{name}: got {option} for a and {other_option} for b, wanted the same for both")


def _parts(sample: Any) -> list[dict[str, str]]:
    """Return the options of each metric in a sample as texts."""
    parts = sample.modules() if isinstance(sample, torch.nn.Module) else [sample]
    return [_options_of(part) for part in parts if isinstance(part, Metric) or hasattr(part, "scoring_options")]


def _options_of(metric: Any) -> dict[str, str]:
    """Return the arguments of the constructor as texts, with the defaults of the omitted ones."""
    if hasattr(metric, "scoring_options"):
        return {name: described(option) for name, option in metric.scoring_options().items()}
    options = options_of(metric)
    for base in type(metric).__mro__:  # `**options` of a constructor go to that of a base
        for name, parameter in inspect.signature(cast(Any, base).__init__).parameters.items():
            if parameter.default is not parameter.empty:
                options.setdefault(name, described(parameter.default))
    return {name: option for name, option in options.items() if name not in type(metric).model_options}
