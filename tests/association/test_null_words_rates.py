"""Rates of small p-values and coverage of intervals, by the simulations of the benchmarks. -s prints them."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = 400

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


@pytest.fixture
def simulation():
    import _association_null

    return _association_null


@pytest.mark.parametrize("cell", range(6))
def test_p_values_of_one_population_are_below_5_percent_in_5_percent_of_tables(simulation, cell):
    cases = {case.name: case for case in simulation.p_value_cases()}
    del cases["CEAT, `p_value_random_effects`"]  # its documentation warns of that
    rates = {
        name: simulation.small_p_values(case, simulation.CELLS[cell], TABLES).fraction for name, case in cases.items()
    }
    print(simulation.CELLS[cell].name, rates)
    limit = 0.06 + 4 * (0.05 * 0.95 / TABLES) ** 0.5
    assert {name: rate for name, rate in rates.items() if rate > limit} == {}


@pytest.mark.parametrize("cell", range(6))
def test_intervals_of_one_population_cover_the_score(simulation, cell):
    cases = {case.name: case for case in simulation.interval_cases()}
    rates = {name: simulation.coverage(case, simulation.CELLS[cell], TABLES).fraction for name, case in cases.items()}
    print(simulation.CELLS[cell].name, rates)
    limit = 0.93 - 4 * (0.07 * 0.93 / TABLES) ** 0.5
    assert {name: rate for name, rate in rates.items() if rate < limit} == {}


@pytest.mark.parametrize("words", [5, 8, 15, 30])
def test_intervals_over_small_sets_cover_population_effect_size(words):
    import _association_samples

    coverage = {
        model.kind: _association_samples.coverage_of(model, words).after for model in _association_samples.models()
    }
    print(words, coverage)
    assert {kind: fraction for kind, fraction in coverage.items() if fraction < 0.92} == {}
