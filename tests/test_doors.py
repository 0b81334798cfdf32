"""A number is one number, whichever public name gives it."""

import importlib
import inspect
import warnings

import pytest
import torch
from cases import FILES
from cases.entry_points import NUMBERS, SINGLE, Number, name_of

from tensormetrics._metric import Metric
from tensormetrics.uncertainty import Estimate

CASES = [(name, data) for name, number in NUMBERS.items() for data in number.data]
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


def disagreements(number: Number, ways, data_name):
    data = number.data[data_name](torch.Generator().manual_seed(5))
    asked = {way: call for way, call in ways.items() if not number.without.get(way, {}).keys() & {data_name}}
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
    number = NUMBERS[name]
    found = [*disagreements(number, number.ways, data)]
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
    tabled = {name_of(way) for number in NUMBERS.values() for way in (*number.ways, *number.intervals)}
    public = {*functions_and_metrics()}
    assert public - tabled - SINGLE.keys() == set(), "add them to tests/cases/entry_points"
    assert SINGLE.keys() & tabled == set() and SINGLE.keys() <= public


def test_what_is_left_out_is_a_way():
    for name, number in NUMBERS.items():
        assert number.without.keys() <= number.ways.keys() | number.intervals.keys(), name
