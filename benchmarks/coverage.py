"""Claim: intervals of 95 % hold the truth in about 95 % of data sets, also with 5 items, 3 groups or a score near 0 or
1, and comparisons of two models do not contradict themselves. Percentile intervals of the same draws do neither.

This measures probabilities, not times: 1,000 simulated sets a row, some rows 400 to 2,000, with fixed seeds, so that
the numbers do not depend on the machine. Peers that are not installed are left out: scipy, evalstats,
confidenceinterval.
"""

import importlib.util
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import _association_samples as association_samples
import _battle_samples as battle_samples
import _edge_samples as edge_samples
import _field_samples as field_samples
import _pair_samples as pair_samples
import _ranked_samples as ranked_samples
import _repeat_samples as repeat_samples
import _sequence_samples as sequence_samples
import _small_samples as simulation
import numpy as np
from _common import arguments
from _coverage_report import Cells, Report, fraction
from _small_samples import Array, Scenario

NEEDS = ("scipy",)
QUICK_SETS = 100
INTERVAL_COLUMNS = "scores", "sizes", "percentile", "new", "mean widths, percentile / new"
PAIR_COLUMNS = (
    "models of equal score, or of the difference",
    "sizes",
    "percentile",
    "new",
    "percentile excludes 0",
    "swap test alone, p <= .05",
    "`p_value` <= .05",
    "gross before: interval / `p_better`",
    "contradictions",
)
NUMBER_COLUMNS = "scores", "sizes", "two-sided", "greater", "less", "contradictions"
RANKED_COLUMNS = "scores", "positives + negatives", "coverage", "mean width", "`p_value` <= .05 of equal models"
CALIBRATION_COLUMNS = "sizes", '`norm="l1"`', '`norm="rms"`'
VERIFICATION_COLUMNS = "items, classes, distance", *(f"{name}: coverage, width" for name in pair_samples.METRICS)
FIELD_COLUMNS = "documents", *field_samples.PATHS, *field_samples.TOTALS
PARTITION_COLUMNS = "items, clusters", *(f"dependence {dependence}" for dependence in pair_samples.DEPENDENCES)
MATCHED_COLUMNS = "items, classes", *(f"agreement {agreement}" for agreement in pair_samples.AGREEMENTS)
PASS_COLUMNS = (
    "chances of problems",
    "problems",
    *(f"{sign}{k}" for sign in ("pass@", "pass^") for k in repeat_samples.K),
)
CROSSED_COLUMNS = "items x seeds", "standard deviations: items, seeds, rest", "crossed t", "items alone"
TEST_COLUMNS = "test", "sizes", "p <= .05"
BATTLE_COLUMNS = (
    "battles",
    "of each pair",
    "coverage of ratings",
    "mean width in Elo",
    "coverage of differences",
    "a copy differs, `p_value` <= .05",
    "both best among `best`",
    "all ranks right",
)
INDEPENDENT_COLUMNS = "scores", "sizes", "coverage", "`p_value` <= .05"
TWO_COLUMNS = "battles", *(f"true rate {rate}" for rate in battle_samples.RATES)
POSITION_COLUMNS = "battles of each pair", "coverage", "mean width"
SEQUENCE_COLUMNS = "scores", "missed at any look", "by the t interval", "mean width at 500", "of the t interval"
LOOK_COLUMNS = "models of equal score", "`p_value` <= .05 at any look", "by the t test"
PEER_COLUMNS = "scores", "method", "coverage", "mean width", "p <= .05", "interval against p", "no interval"


def width(x: float) -> str:
    """Write two digits or more."""
    return f"{x:.2g}" if x < 0.1 else f"{x:.2f}"


def joined(texts: Iterable[str]) -> str:
    return ", ".join(texts)


def by_kind(rows: list[Scenario]) -> Iterator[tuple[str, str, list[Scenario]]]:
    """Yield rows of one kind, and their sizes: "5, 10 items"."""
    for kind, scenarios in itertools.groupby(rows, key=lambda row: row.kind):
        same_kind = list(scenarios)
        counts, units = zip(*(row.size.split(" ", 1) for row in same_kind), strict=True)
        is_one_unit = len(set(units)) == 1
        yield kind, f"{joined(counts)} {units[0]}" if is_one_unit else joined(row.size for row in same_kind), same_kind


def intervals(rows: list[Scenario], sets: int | None) -> Iterator[Cells]:
    for kind, sizes, scenarios in by_kind(rows):
        results = [simulation.intervals_of(row, sets) for row in scenarios]
        yield (
            kind,
            sizes,
            joined(fraction(result.before) for result in results),
            joined(fraction(result.after) for result in results),
            joined(f"{width(result.width_before)} / {width(result.width)}" for result in results),
        )


def comparisons(rows: list[Scenario], sets: int | None) -> Iterator[Cells]:
    for kind, sizes, scenarios in by_kind(rows):
        results = [simulation.comparisons_of(row, sets, simulation.LEVELS) for row in scenarios]
        yield (
            kind,
            sizes,
            joined(fraction(result.coverage.before) for result in results),
            joined(fraction(result.coverage.after) for result in results),
            joined(fraction(result.excludes_before) for result in results),
            joined(fraction(result.swaps_significant) for result in results),
            joined(fraction(result.significant) for result in results),
            joined(" / ".join(map(fraction, result.gross_before)) for result in results),
            str(sum(result.contradictions for result in results)),
        )


def comparisons_with_truth(rows: list[Scenario], sets: int | None) -> Iterator[Cells]:
    for kind, sizes, scenarios in by_kind(rows):
        results = [simulation.number_tests_of(row, sets, simulation.LEVELS) for row in scenarios]
        yield (
            kind,
            sizes,
            *(
                joined(fraction(result.significant[alternative]) for result in results)
                for alternative in simulation.ALTERNATIVES
            ),
            str(sum(result.contradictions for result in results)),
        )


def effect_sizes(sets: int | None) -> Iterator[Cells]:
    for model in association_samples.models():
        results = [association_samples.coverage_of(model, count, sets) for count in association_samples.SET_SIZES]
        yield (
            model.kind,
            f"{joined(map(str, association_samples.SET_SIZES))} words a set",
            joined(fraction(result.before) for result in results),
            joined(fraction(result.after) for result in results),
            joined(f"{width(result.width_before)} / {width(result.width)}" for result in results),
        )


def ranked(sets: int | None) -> Iterator[Cells]:
    sizes = ranked_samples.SIZES
    for name, kind, area in ranked_samples.rows():
        results = [ranked_samples.coverage_of(kind, area, size, sets) for size in sizes]
        yield (
            name,
            joined(f"{positives} + {negatives}" for positives, negatives in sizes),
            joined(fraction(result.coverage) for result in results),
            joined(width(result.width) for result in results),
            joined(fraction(result.significant) for result in results),
        )


def calibration(sets: int | None) -> Iterator[Cells]:
    for count in ranked_samples.CALIBRATION_SIZES:
        rows = [
            [ranked_samples.calibration_coverage(norm, count, offset, sets) for offset in ranked_samples.OFFSETS]
            for norm in ("l1", "rms")
        ]
        yield f"{count} items", *(joined(fraction(value) for value in row) for row in rows)


class Answer(NamedTuple):
    """Interval and, for two models, p-value; NaN for missing ones."""

    low: float = float("nan")
    high: float = float("nan")
    p_value: float = float("nan")


def bca(*models: Array) -> Answer:
    """Return scipy's default: BCa, 9,999 resamples."""
    import scipy.stats

    def statistic(*samples: Array, axis: int) -> Array:
        means = [sample.mean(axis) for sample in samples]
        return means[0] if len(means) == 1 else means[0] - means[1]

    result = scipy.stats.bootstrap(models, statistic, paired=len(models) > 1, rng=np.random.default_rng(0))
    return Answer(*result.confidence_interval)


def evalstats(*models: Array) -> Answer:
    """Return `mean_ci` of one model, `compare_models` of two."""
    import evalstats
    import pandas as pd

    if len(models) == 1:
        estimate = evalstats.mean_ci(models[0], rng=0)
        return Answer(estimate.ci_low, estimate.ci_high)
    items = np.arange(len(models[0]))
    columns = {"model": np.repeat(["a", "b"], len(items)), "item": np.tile(items, 2), "score": np.concatenate(models)}
    try:
        result = evalstats.compare_models(evalstats.load_from(pd.DataFrame(columns)))
    except evalstats.InsufficientItemsError:
        return Answer()
    pair = result.to_frame()["pairwise"].iloc[0]
    return Answer(pair["ci_low"], pair["ci_high"], pair["p_value"])


def confidenceinterval(model: Array) -> Answer:
    """Return the interval of `accuracy_score`, Wilson's."""
    from confidenceinterval import accuracy_score

    return Answer(*accuracy_score(np.ones(len(model)), model)[1])


class Peer(NamedTuple):
    """Function of another package."""

    package: str
    label: str
    answer: Callable[..., Answer]
    compares: bool = True
    takes_group_means: bool = False  # else items count as independent: no package supports groups


PEERS = (
    Peer("scipy", "scipy `bootstrap` (BCa)", bca),
    Peer("evalstats", "evalstats", evalstats),
    Peer("confidenceinterval", "confidenceinterval", confidenceinterval, compares=False),
    Peer("scipy", "scipy `bootstrap` (BCa) of the groups' means", bca, takes_group_means=True),
    Peer("evalstats", "evalstats of the groups' means", evalstats, takes_group_means=True),
)


def answers(peer: Peer, scenario: Scenario, sets: int) -> Array:
    # ->  (sets, 3)
    """Compute the results of a peer for each of the simulated sets."""
    results = []
    for metrics in simulation.sampled_rows(scenario, sets):
        models = [rows[:, 0].T for rows in metrics]
        if peer.takes_group_means:
            starts = np.flatnonzero(np.diff(scenario.groups, prepend=-1))
            models = [np.add.reduceat(scores, starts, 1) / np.bincount(scenario.groups) for scores in models]
        results += [peer.answer(*samples) for samples in zip(*models, strict=True)]
    return np.array(results, dtype=float)


def peers(rows: list[Scenario], sets: int, is_pair: bool) -> Iterator[Cells]:
    for row in rows:
        if is_pair:
            tests = simulation.comparisons_of(row, sets)
            coverage, contradictions, significant = tests.coverage, tests.contradictions, fraction(tests.significant)
            before = fraction(tests.swaps_significant), fraction(tests.gross_before[0])
        else:
            coverage, contradictions, significant = simulation.intervals_of(row, sets), 0, ""
            before = "", ""
        against = fraction(contradictions / sets) if is_pair else ""
        yield row.name, "tensormetrics", fraction(coverage.after), width(coverage.width), significant, against, ".000"
        yield (
            row.name,
            "percentile, swap test",
            fraction(coverage.before),
            width(coverage.width_before),
            *before,
            ".000",
        )
        for peer in PEERS:
            is_installed = importlib.util.find_spec(peer.package) is not None
            if not is_installed or (is_pair and not peer.compares) or (peer.takes_group_means and row.groups is None):
                continue
            low, high, p_value = answers(peer, row, sets).T
            has_interval = ~np.isnan(low)
            holds = (low <= row.truth + simulation.TOLERANCE) & (high >= row.truth - simulation.TOLERANCE)
            excludes = (low > 0) | (high < 0)
            has_p = is_pair and bool((~np.isnan(p_value)).any())
            yield (
                row.name,
                peer.label,
                fraction(holds.mean()),
                width(np.nanmean(high - low)) if has_interval.any() else "",
                fraction((p_value <= 0.05).mean()) if has_p else "",
                fraction((excludes != (p_value <= 0.05))[has_interval].mean()) if has_p else "",
                fraction(1 - has_interval.mean()),
            )


def verification(sets: int | None) -> Iterator[Cells]:
    for row in pair_samples.ROWS:
        results = [pair_samples.pair_coverage(name, row, sets) for name in pair_samples.METRICS]
        cells = (f"{fraction(covered)}, {width(mean)}" for covered, mean in results)
        yield f"{row.items}, {row.classes}, {row.distance}", *cells


def fields(sets: int | None) -> Iterator[Cells]:
    for size in field_samples.SIZES:
        yield str(size), *(fraction(value) for value in field_samples.field_coverage(size, sets))


def partitions(sets: int | None) -> Iterator[Cells]:
    for items, clusters in pair_samples.PARTITION_SIZES:
        fractions = (
            fraction(pair_samples.partition_coverage(items, clusters, dependence, sets))
            for dependence in pair_samples.DEPENDENCES
        )
        yield f"{items}, {clusters}", *fractions


def matched(sets: int | None) -> Iterator[Cells]:
    for size in pair_samples.MATCHED_SIZES:
        results = [pair_samples.accuracy_coverage(*size, agreement, sets) for agreement in pair_samples.AGREEMENTS]
        yield joined(map(str, size)), *(" / ".join(map(fraction, result)) for result in results)


def passes(sets: int | None) -> Iterator[Cells]:
    sizes = repeat_samples.PROBLEMS
    for name, law in repeat_samples.LAWS.items():
        results = [repeat_samples.pass_at_k_coverage(law, size, sets) for size in sizes]
        yield (
            name,
            joined(map(str, sizes)),
            *(joined(fraction(result[score]) for result in results) for score in results[0]),
        )


def crossed(sets: int | None) -> Iterator[Cells]:
    for table in repeat_samples.TABLES:
        deviations = f"{table.sd_items}, {table.sd_seeds}, {table.sd_rest}"
        fractions = repeat_samples.crossed_coverage(table, sets)
        yield f"{table.items} x {table.seeds}", deviations, *map(fraction, fractions)


def tests(sets: int | None) -> Iterator[Cells]:
    sizes = repeat_samples.RANKED
    fractions = [repeat_samples.delong_rejections(*size, sets) for size in sizes]
    counts = joined(f"{positives} + {negatives}" for positives, negatives in sizes)
    yield "`delong`, equal models", counts, joined(map(fraction, fractions))
    margins = [repeat_samples.margin_rejections(items, sets) for items in repeat_samples.MARGINS]
    counts = f"{joined(map(str, repeat_samples.MARGINS))} items"
    for name, column in zip(("p_not_worse", "p_equivalent"), zip(*margins, strict=True), strict=True):
        yield f"`{name}`, difference at the margin", counts, joined(map(fraction, column))


def independent(sets: int | None) -> Iterator[Cells]:
    for row in repeat_samples.INDEPENDENT:
        kind = f"normal, sd 1 and {row.sd:g}" if row.rates is None else f"right or wrong, {joined(map(str, row.rates))}"
        yield kind, joined(map(str, row.sizes)), *joined_fractions(*repeat_samples.independent_fractions(row, sets))


def battles(sets: int | None) -> Iterator[Cells]:
    for row in battle_samples.rows():
        fractions = battle_samples.fractions_of(row, sets)
        after = joined_fractions(
            fractions.differences, fractions.copy_differs, fractions.best_hold, fractions.ranks_hold
        )
        yield row.kind, str(row.battles), fraction(fractions.ratings), f"{fractions.width:.0f}", *after


def two_models() -> Iterator[Cells]:
    for size in battle_samples.TWO_MODELS:
        yield str(size), *(" / ".join(map(fraction, pair)) for pair in battle_samples.two_models(size))


def position_effects(sets: int | None) -> Iterator[Cells]:
    for size, covered, mean in battle_samples.position_effects(sets):
        yield str(size), fraction(covered), width(mean)


def sequences(sets: int | None) -> Iterator[Cells]:
    for row in sequence_samples.ROWS:
        fractions = sequence_samples.sequence_of(row, sets)
        missed = joined_fractions(fractions.missed, fractions.missed_by_t)
        yield row.kind, *missed, width(fractions.width), width(fractions.width_of_t)


def looks(sets: int | None) -> Iterator[Cells]:
    for rate, p_equal in ((0.7, 0.0), (0.7, 0.8), (0.9, 0.8)):
        name = f"right or wrong, {fraction(rate)}, alike in {p_equal:.0%} of items"
        yield name, *joined_fractions(*sequence_samples.equal_models(rate, p_equal, sets))


def joined_fractions(*fractions: float) -> Cells:
    return tuple(map(fraction, fractions))


def main() -> None:
    options = arguments(__doc__, ("cpu",))
    warnings.simplefilter("ignore")  # peers warn of few items
    sets = QUICK_SETS if options.quick else None
    installed = tuple(dict.fromkeys(peer.package for peer in PEERS if importlib.util.find_spec(peer.package)))
    report = Report(options, "How often intervals hold the truth", installed)
    for title, rows in {
        "Coverage of intervals: rows on which the constants of the method were chosen.": simulation.interval_rows(),
        "Coverage of intervals: rows that were drawn up afterwards.": simulation.held_out_interval_rows(),
        "Coverage of intervals: answers that are more alike within groups of very unequal sizes.": (
            simulation.beta_binomial_rows()
        ),
        "Coverage of intervals: more items than units are kept.": simulation.overflow_rows(),
        "Width with 200 items.": simulation.width_rows(),
    }.items():
        report.table(title, INTERVAL_COLUMNS, intervals(rows, sets))
    for title, rows in {
        "Comparisons of equal models: rows on which the constants were chosen.": simulation.null_rows(),
        "Comparisons of equal models by scores without bounds.": simulation.unbounded_null_rows(),
        "Comparisons of models that differ.": simulation.power_rows(),
        "Comparisons: rows that were drawn up afterwards.": simulation.held_out_pair_rows(),
        "Comparisons of many pairs.": [*simulation.pair_width_rows(), *simulation.overflow_pair_rows()],
    }.items():
        report.table(title, PAIR_COLUMNS, comparisons(rows, sets))
    title = "One model against its true score: p_value <= .05."
    report.table(title, NUMBER_COLUMNS, comparisons_with_truth(simulation.number_rows(), sets))
    report.table("Effect sizes of WEAT over sets of few words.", INTERVAL_COLUMNS, effect_sizes(sets))
    title = "Ranked scores of few positives and negatives, 200 sets each."
    report.table(title, RANKED_COLUMNS, ranked(sets))
    title = "Calibration error: probabilities that are too high by 0, .05, .1 and .2, 100 sets each."
    report.table(title, CALIBRATION_COLUMNS, calibration(sets))
    title = "Scores of all pairs of embeddings, 200 sets each."
    report.table(title, VERIFICATION_COLUMNS, verification(sets))
    title = "Fields of documents, three of ten of which are hard; `items[]` are matched objects."
    report.table(title, FIELD_COLUMNS, fields(sets))
    report.table("Chances that k samples hold a right one, 400 sets each.", PASS_COLUMNS, passes(sets))
    report.table("Items and seeds, 1,600 sets each.", CROSSED_COLUMNS, crossed(sets))
    report.table("Tests by name, 4,000 sets each.", TEST_COLUMNS, tests(sets))
    title = f"Two independent samples, {repeat_samples.INDEPENDENT_SETS} sets each."
    report.table(title, INDEPENDENT_COLUMNS, independent(sets))
    title = "Cluster accuracy: refused / missed, of 200 sets each."
    report.table(title, MATCHED_COLUMNS, matched(sets))
    title = "Adjusted mutual information, draws that the library does not offer, 200 sets each."
    report.table(title, PARTITION_COLUMNS, partitions(sets))
    title = f"Ratings of six models from battles, {battle_samples.SETS} sets each."
    report.table(title, BATTLE_COLUMNS, battles(sets))
    report.table("Ratings of two models / Jeffreys' interval, over all outcomes.", TWO_COLUMNS, two_models())
    report.table("Position effect where there is none.", POSITION_COLUMNS, position_effects(sets))
    title = f"Means at twenty looks, after 25 to 500 items, {sequence_samples.SETS} sets each."
    report.table(title, SEQUENCE_COLUMNS, sequences(sets))
    report.table("Equal models at the same looks.", LOOK_COLUMNS, looks(sets))
    for table in edge_samples.tables(sets):
        report.table(*table)
    peer_sets = sets or simulation.SETS
    report.table("Other packages, one model.", PEER_COLUMNS, peers(simulation.peer_rows(), peer_sets, False))
    report.table("Other packages, equal models.", PEER_COLUMNS, peers(simulation.peer_pair_rows(), peer_sets, True))


if __name__ == "__main__":
    main()
