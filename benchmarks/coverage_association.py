"""Claim: in word sets of one population p-values are at most .05 in at most .06 of the tables, and intervals of 95 %
hold the true score in at least .93, whether words have 1, 5, or 1 to 12 rows and whether the sets are of one size.

This measures probabilities, not times: 2,000 simulated tables a cell, with fixed seeds, so that the numbers do not
depend on the machine. The table also has the published p-value of CEAT, which has no such rates.
"""

from collections.abc import Callable, Iterator

import _association_null as simulation
from _common import arguments
from _coverage_report import Cells, Report, fraction

QUICK_TABLES = 100
MARGIN = 0.015  # three standard errors of a fraction of .05 in 2,000 tables
HIGHEST_RATE, LOWEST_COVERAGE = 0.06, 0.93
CAUTIONED = "CEAT, `p_value_random_effects`"


def rows(
    cases: list[simulation.MetricCase],
    rate: Callable[[simulation.MetricCase, simulation.Cell, int | None], simulation.Rate],
    tables: int | None,
    fractions: dict[str, list[float]],
) -> Iterator[Cells]:
    """Yield a row for each case, and add its fractions to `fractions`."""
    for case in cases:
        rates = [rate(case, cell, tables) for cell in simulation.CELLS]
        fractions[case.name] = [result.fraction for result in rates]
        yield case.name, f"{rates[0].tables:,}", *(fraction(result.fraction) for result in rates)


def main() -> None:
    options = arguments(__doc__, ("cpu",))
    tables = QUICK_TABLES if options.quick else None
    report = Report(options, "P-values and intervals of association in words of one population", ())
    columns: Cells = "score", "tables", *(cell.name for cell in simulation.CELLS)
    rates: dict[str, list[float]] = {}
    coverages: dict[str, list[float]] = {}
    title = "Two-sided p-values of at most .05."
    report.table(title, columns, rows(simulation.p_value_cases(), simulation.small_p_values, tables, rates))
    title = "Intervals of 95 % that hold the truth."
    report.table(title, columns, rows(simulation.interval_cases(), simulation.coverage, tables, coverages))
    if not options.quick:
        high = {name: row for name, row in rates.items() if name != CAUTIONED and max(row) > HIGHEST_RATE + MARGIN}
        low = {name: row for name, row in coverages.items() if min(row) < LOWEST_COVERAGE - MARGIN}
        assert not high and not low, (high, low)


if __name__ == "__main__":
    main()
