"""Rows of the statistics of samples and effects in the uncertainty domain."""

from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from tensormetrics import uncertainty
from tensormetrics.uncertainty import functional

from .case import FunctionCase, LeftOut


def samples_last(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    x = torch.rand(*batch_shape, 40, generator=generator, dtype=torch.float64)
    x[..., 7] = torch.nan
    return (x,)


def means_and_variances(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.rand(2, *batch_shape, 5, generator=generator, dtype=torch.float64))


def experiments(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    u = torch.rand(*batch_shape, 30, generator=generator, dtype=torch.float64)
    return 0.8 + 0.04 * torch.randn(*batch_shape, 60, 3, generator=generator, dtype=torch.float64).clamp(-3, 3), u


def ordered(call: Any) -> Any:
    nan = LeftOut("such a sample is left out", lambda x: call(x[..., 1:]))
    infinite = LeftOut(
        "an infinite sample is the largest or smallest: results that depend on the order alone are finite"
    )
    return lambda position, value: nan if value != value else infinite


def interval(x: Tensor) -> tuple[Tensor, ...]:
    return functional.hdi(x, dim=-1)


def repeated(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    return (torch.randn(*batch_shape, 24, generator=generator, dtype=torch.float64),)


def component_tensors(scores: Tensor, ids: Any = None) -> tuple[Tensor, ...]:
    nested = uncertainty.variance_components(scores, np.arange(24) // 4 if ids is None else ids)
    return nested.value, *nested.parts.values(), nested.se(), nested.se(5, 9)


def deviations_and_differences(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.rand(2, *batch_shape, 5, generator=generator, dtype=torch.float64) * 0.5 + 0.1)


def plan_tensors(sd: Tensor, difference: Tensor) -> tuple[Tensor, ...]:
    plans = (
        uncertainty.plan(sd=sd, difference=difference, power=0.8),
        uncertainty.plan(sd=sd, difference=difference, items=50, rope=0.01),
        uncertainty.plan(sd=sd, items=40, power=difference),
    )
    return tuple(tensor for plan in plans for tensor in (plan.items, plan.groups, plan.difference, plan.power))


def fold_tensors(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    comparison = uncertainty.compare_folds(a.movedim(-1, 0), b.movedim(-1, 0), rope=0.1)
    details = (comparison.details[name] for name in ("sd", "se", "t"))
    return *comparison, comparison.p_value, comparison.p_better, comparison.p_rope, *details


def sample_tensors(a: Tensor) -> tuple[Tensor, ...]:
    a = a.movedim(-1, 0)
    comparison = uncertainty.compare_samples(
        a, torch.full(a.shape, 0.4, dtype=torch.float64, device=a.device), rope=0.1
    )
    return *comparison, comparison.p_value, comparison.p_better, comparison.p_rope


FUNCTIONS = {
    "hdi": FunctionCase(interval, samples_last, not_finite=ordered(interval)),
    "five_by_two_p_value": FunctionCase(
        lambda differences: (functional.five_by_two_p_value(differences),),
        lambda generator, batch_shape: (torch.randn(*batch_shape, 5, 2, generator=generator),),
        rtol=1e-12,
        not_finite=LeftOut("an infinite difference is the most significant one, NaN gives NaN"),
    ),
    "compare_folds": FunctionCase(
        fold_tensors,
        means_and_variances,
        rtol=1e-9,
        not_finite="nan",
    ),
    "variance_components": FunctionCase(
        component_tensors,
        repeated,
        rtol=1e-12,
        not_finite=lambda position, value: LeftOut("a missing score") if value != value else "nan",
    ),
    "plan": FunctionCase(plan_tensors, deviations_and_differences, rtol=1e-9, not_finite="raises"),
    "compare_samples": FunctionCase(
        sample_tensors,
        samples_last,
        not_finite=ordered(sample_tensors),
    ),
}
