"""Public functions and metrics that compute the same quantity return the same value."""

import inspect
import warnings

import pytest
import torch
from cases import PUBLIC
from cases.entry_points import QUANTITIES, Quantity, public_name
from torch import Tensor

from tensormetrics.core.metric.base import Metric
from tensormetrics.uncertainty import Estimate

USUAL = 4  # data of each quantity in the first tier
CASES = [
    pytest.param(name, data, marks=[pytest.mark.full] if index >= USUAL else [])
    for name, quantity in QUANTITIES.items()
    for index, data in enumerate(quantity.data)
]
REFUSED = "refused"


def outcome(function, data):
    """Return the results of a function of the data as tensors, or `REFUSED` with the error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = function(*data)
    except (ValueError, TypeError) as error:
        return REFUSED, f"{type(error).__name__}: {error}"
    parts = value if isinstance(value, Estimate) else (value,)
    return tuple(torch.as_tensor(part, dtype=torch.float64).detach().flatten() for part in parts), None


def disagreements(quantity: Quantity, functions, data_name):
    data = quantity.data[data_name](torch.Generator().manual_seed(5))
    lengths = {len(part) if isinstance(part, Tensor) and part.ndim else 0 for part in data}
    can_be_cut = len(lengths) == 1 and min(lengths) > 1
    supported = {
        name: call
        for name, call in functions.items()
        if data_name not in quantity.skip_reasons.get(name, {})
        and (can_be_cut or not name.endswith(("in two updates", "item by item")))
    }
    outcomes = {name: outcome(call, data) for name, call in supported.items()}
    (first, (expected, _)), *others = outcomes.items()
    for name, (actual, error) in others:
        is_same = (
            actual == expected if REFUSED in (actual, expected) else all(map(close(quantity.rtol), actual, expected))
        )
        if not is_same:
            yield f"{name}: {error or actual}, but {first}: {outcomes[first][1] or expected}"


def close(rtol):
    return lambda a, b: a.shape == b.shape and torch.allclose(a, b, rtol, 1e-12, equal_nan=True)


@pytest.mark.parametrize(("name", "data"), CASES)
def test_functions_of_one_quantity_return_same_value(name, data):
    quantity = QUANTITIES[name]
    problems = [*disagreements(quantity, quantity.entry_points, data)]
    if quantity.intervals:
        problems += [f"interval of {message}" for message in disagreements(quantity, quantity.intervals, data)]
    assert not problems, "\n".join(problems)


def twins() -> set[str]:
    """Return the metrics that a function has the name of, but for case and underscores, and these functions."""
    metrics = [name for name, value in PUBLIC.items() if inspect.isclass(value) and issubclass(value, Metric)]
    functions = {name.lower().replace("_", ""): name for name, value in PUBLIC.items() if inspect.isfunction(value)}
    return {name for metric in metrics if (twin := functions.get(metric.lower())) for name in (metric, twin)}


@pytest.mark.lists
def test_metric_and_function_of_one_name_are_compared():
    names = {
        public_name(function)
        for quantity in QUANTITIES.values()
        for function in (*quantity.entry_points, *quantity.intervals)
    }
    samples_contexts = {"association.ceat"}  # the inputs of CEAT are sampled already
    assert twins() - names == samples_contexts, "add them to tests/cases/entry_points"


def test_excluded_functions_have_a_row():
    for name, quantity in QUANTITIES.items():
        assert quantity.skip_reasons.keys() <= quantity.entry_points.keys() | quantity.intervals.keys(), name
