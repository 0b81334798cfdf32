"""A number is one number, whichever public name gives it."""

import importlib
import inspect
import warnings

import pytest
import torch
from cases import FILES
from cases.entry_points import QUANTITIES, UNCOMPARED, Quantity, public_name

from tensormetrics._metric import Metric
from tensormetrics.uncertainty import Estimate

CASES = [(name, data) for name, number in QUANTITIES.items() for data in number.data]
REFUSED = "refused"


def outcome(way, data):
    """Return what a way says about the data: tensors, or `REFUSED` with the error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = way(*data)
    except (ValueError, TypeError) as error:
        return REFUSED, f"{type(error).__name__}: {error}"
    parts = value if isinstance(value, Estimate) else (value,)
    return tuple(torch.as_tensor(part, dtype=torch.float64).detach().flatten() for part in parts), None


def disagreements(number: Quantity, ways, data_name):
    data = number.data[data_name](torch.Generator().manual_seed(5))
    asked = {way: call for way, call in ways.items() if not number.skip_reasons.get(way, {}).keys() & {data_name}}
    outcomes = {way: outcome(call, data) for way, call in asked.items()}
    (first, (wanted, _)), *others = outcomes.items()
    for way, (got, error) in others:
        same = got == wanted if REFUSED in (got, wanted) else all(map(close(number.rtol), got, wanted))
        if not same:
            yield f"{way}: {error or got}, but {first}: {outcomes[first][1] or wanted}"


def close(rtol):
    return lambda a, b: a.shape == b.shape and torch.allclose(a, b, rtol, 1e-12, equal_nan=True)


@pytest.mark.parametrize(("name", "data"), CASES)
def test_all_ways_give_one_number(name, data):
    number = QUANTITIES[name]
    found = [*disagreements(number, number.entry_points, data)]
    if number.intervals:
        found += [f"interval of {text}" for text in disagreements(number, number.intervals, data)]
    assert not found, "\n".join(found)


def functions_and_metrics():
    for domain in FILES:
        module = importlib.import_module(f"tensormetrics.{domain}")
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) or (inspect.isclass(value) and issubclass(value, Metric)):
                yield f"{domain}.{name}"


@pytest.mark.lists
def test_every_function_and_metric_stands_in_the_table_or_has_a_reason():
    tabled = {public_name(way) for number in QUANTITIES.values() for way in (*number.entry_points, *number.intervals)}
    public = {*functions_and_metrics()}
    assert public - tabled - UNCOMPARED.keys() == set(), "add them to tests/cases/entry_points"
    assert UNCOMPARED.keys() & tabled == set() and UNCOMPARED.keys() <= public


def test_what_is_left_out_is_a_way():
    for name, number in QUANTITIES.items():
        assert number.skip_reasons.keys() <= number.entry_points.keys() | number.intervals.keys(), name
