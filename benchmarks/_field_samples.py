"""Coverage of intervals of fields of documents, where the truth is known: the scores of 40,000 other documents."""

import random
from functools import cache
from typing import Any

from tensormetrics.structured import FieldReport, evaluate

SETS, REPLICATES, TRUTH_DOCUMENTS = 400, 300, 40_000
SIZES = (5, 10, 30, 100)
P_HARD, ERRORS_HARD, ERRORS_EASY = 0.3, 0.4, 0.08  # documents, and errors of each field
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "rare": {"type": "string"},  # in three of ten documents
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"key": {"type": "string"}, "value": {"type": "integer"}}},
        },
    },
}
PATHS = ("title", "rare", "items[]", "items[].value")
TOTALS = ("micro-f1", "similarity", "exact")


def documents(count: int, generator: random.Random) -> tuple[list[Any], list[Any]]:
    """Return predictions and references; some documents are hard in all their fields."""
    preds, refs = [], []
    for _ in range(count):
        errors = ERRORS_HARD if generator.random() < P_HARD else ERRORS_EASY

        def is_right(errors: float = errors) -> bool:
            return generator.random() > errors

        ref: dict[str, Any] = {"title": "t"}
        ref["items"] = [{"key": f"k{n}", "value": n} for n in range(generator.randrange(1, 6))]
        if generator.random() < 0.3:
            ref["rare"] = "x"
        pred: dict[str, Any] = {"items": []}
        if is_right():
            pred["title"] = "t" if is_right() else "u"
        if "rare" in ref and is_right():
            pred["rare"] = "x"
        for item in ref["items"]:
            if is_right():
                pred["items"].append(item if is_right() else item | {"value": -1})
        if not is_right():
            pred["items"].append({"key": "invented", "value": 99})
        preds.append(pred)
        refs.append(ref)
    return preds, refs


def estimates(report: FieldReport) -> list[Any]:
    """Return F1 of each field, then the totals."""
    return [*(report[path].f1 for path in PATHS), *(report.totals[name] for name in TOTALS)]


@cache
def truth() -> list[float]:
    """Return the scores of the population."""
    report = evaluate(*documents(TRUTH_DOCUMENTS, random.Random(1)), SCHEMA, replicates=0)
    return [float(value) for value in estimates(report)]


def field_coverage(size: int, sets: int | None) -> list[float]:
    """Return for each score the fraction of sets whose interval holds that of the population."""
    held = [0] * len(truth())
    sets = sets or SETS
    for seed in range(sets):
        sample = documents(size, random.Random(10_000 * size + seed))
        report = evaluate(*sample, SCHEMA, replicates=REPLICATES, seed=seed)
        for n, (estimate, true) in enumerate(zip(estimates(report), truth(), strict=True)):
            is_undefined = bool(estimate.value.isnan())
            held[n] += is_undefined or bool((estimate.low <= true) & (true <= estimate.high))
    return [count / sets for count in held]
