"""In words of one population few p-values are small and intervals hold the score. With -s the shares are printed."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = 400

pytestmark = pytest.mark.slow


@pytest.fixture
def simulation(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import _association_null

    return _association_null


@pytest.mark.parametrize("cell", range(6))
def test_p_values_of_one_population_are_small_in_a_twentieth_of_tables(simulation, cell):
    doors = {door.name: door for door in simulation.p_value_cases()}
    del doors["CEAT, `p_value_random_effects`"]  # whose caution says so
    shares = {
        name: simulation.small_p_values(door, simulation.CELLS[cell], TABLES).fraction for name, door in doors.items()
    }
    print(simulation.CELLS[cell].name, shares)
    limit = 0.06 + 4 * (0.05 * 0.95 / TABLES) ** 0.5
    assert {name: share for name, share in shares.items() if share > limit} == {}


@pytest.mark.parametrize("cell", range(6))
def test_intervals_of_one_population_hold_the_score(simulation, cell):
    doors = {door.name: door for door in simulation.interval_cases() if door.tables is None}
    shares = {name: simulation.coverage(door, simulation.CELLS[cell], TABLES).fraction for name, door in doors.items()}
    print(simulation.CELLS[cell].name, shares)
    limit = 0.93 - 4 * (0.07 * 0.93 / TABLES) ** 0.5
    assert {name: share for name, share in shares.items() if share < limit} == {}
