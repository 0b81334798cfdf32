"""Claim: from the JSON texts of 1,000 documents of 30 values to the counts of every field takes 20 times less than with
stickler, one pair of lists of 500 objects 100 times less; 100,000 documents need no more memory than 10,000.

Equal counts are asserted before anything is timed: scalars in all four categories, lists and the correct values in
their items (stickler counts items without a partner in another way). Times are medians of interleaved turns in one
process of one thread. Needs stickler-eval 1.0.0.
"""

import json
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from _common import Table, arguments
from stickler import ComparableField, StructuredModel
from stickler.comparators import ExactComparator, LevenshteinComparator

from tensormetrics.structured import FieldReport, FieldScores, evaluate
from tensormetrics.structured.fields import similar

NEEDS = ("stickler", "rapidfuzz")
VOCABULARY = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")
SCALARS = {"id": str, "date": str, "total": float, "vendor": str, "currency": str, "paid": bool}
OF_LINES = {"sku": str, "quantity": int, "price": float, "name": str}
FUZZY = ("vendor", "name")
KINDS = {str: "string", float: "number", int: "integer", bool: "boolean"}
ROUNDS = 5

Documents = list[dict[str, Any]]


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the documents."""

    def of(fields: dict[str, type]) -> dict[str, Any]:
        return {name: {"type": KINDS[kind]} for name, kind in fields.items()}

    lines = {"type": "array", "items": {"type": "object", "properties": of(OF_LINES)}}
    return {"type": "object", "properties": of(SCALARS) | {"lines": lines}}


def rival(is_fuzzy: bool) -> type[StructuredModel]:
    """Return the same documents as a model of stickler."""

    def of(fields: dict[str, type]) -> dict[str, Any]:
        comparable: dict[str, Any] = {}
        for name in fields:
            fuzzy = is_fuzzy and name in FUZZY
            comparator, threshold = (LevenshteinComparator(), 0.8) if fuzzy else (ExactComparator(), 1.0)
            comparable[name] = ComparableField(comparator=comparator, threshold=threshold, default=None)
        return {"__annotations__": {name: kind | None for name, kind in fields.items()}, **comparable}

    line = type("Line", (StructuredModel,), {**of(OF_LINES), "match_threshold": 0.5, "__module__": __name__})
    fields = of(SCALARS)
    fields["__annotations__"] |= {"lines": list[line]}  # type: ignore[valid-type]
    return type("Invoice", (StructuredModel,), {**fields, "lines": ComparableField(default=[]), "__module__": __name__})


def corpus(count: int, lines: Callable[[random.Random], int], seed: int = 0) -> tuple[list[str], Documents]:
    """Return answers with some errors, as texts, and references."""
    generator = random.Random(seed)

    def random_text(size: int) -> str:
        return " ".join(generator.choices(VOCABULARY, k=size))

    def line() -> dict[str, Any]:
        sku = "".join(generator.choices("abcdef", k=6))
        return {"sku": sku, "quantity": generator.randrange(10), "price": generator.random(), "name": random_text(4)}

    refs, preds = [], []
    for n in range(count):
        ref = {"id": f"d{n}", "date": f"2024-01-{n % 28 + 1:02}", "total": generator.random(), "vendor": random_text(3)}
        ref |= {"currency": "EUR", "paid": n % 2 == 0, "lines": [line() for _ in range(lines(generator))]}
        pred = json.loads(json.dumps(ref))
        for name, wrong in (("vendor", "other"), ("total", None), ("date", "2023-01-01")):
            if generator.random() < 0.1:
                pred[name] = wrong
        for item in pred["lines"]:
            if generator.random() < 0.2:
                item["quantity"] = 99
            if generator.random() < 0.1:
                item["name"] = item["name"][:-1]
        generator.shuffle(pred["lines"])
        refs.append(ref)
        preds.append(json.dumps(pred))
    return preds, refs


def ours(preds: list[str], refs: Documents, is_fuzzy: bool) -> FieldReport:
    fields = {"vendor": similar(0.8), "lines[].name": similar(0.8)} if is_fuzzy else None
    return evaluate(preds, refs, schema(), fields=fields, replicates=0)


def theirs(model: type[StructuredModel], preds: list[str], refs: Documents) -> dict[str, dict[str, int]]:
    """Return the sums of the categories by field."""
    sums: dict[str, dict[str, int]] = {}
    for pred, ref in zip(preds, refs, strict=True):
        result = model.from_json(ref).compare_with(model.from_json(json.loads(pred)), include_confusion_matrix=True)
        for name, field in result["confusion_matrix"]["fields"].items():
            parts = {name: field, **{f"lines[].{key}": part for key, part in field.get("fields", {}).items()}}
            for path, part in parts.items():
                row = sums.setdefault(path, {})
                for kind in ("tp", "fd", "fn", "fa"):
                    row[kind] = row.get(kind, 0) + int(part["overall"][kind])
    return sums


def assert_equal_counts(report: FieldReport, sums: dict[str, dict[str, int]]) -> None:
    for name in SCALARS:
        field = report[name]
        counts = (field.correct, field.wrong, field.missed, field.invented)
        assert counts == tuple(sums[name][kind] for kind in ("tp", "fd", "fn", "fa")), name
    items, row = report["lines[]"], sums["lines"]
    assert (items.correct, items.support) == (row["tp"], row["tp"] + row["fd"] + row["fn"])
    for name in OF_LINES:
        assert report[f"lines[].{name}"].correct == sums[f"lines[].{name}"]["tp"], name


def against_stickler(name: str, count: int, size: Any, is_fuzzy: bool, rounds: int, target: str) -> Iterator[Any]:
    model = rival(is_fuzzy)
    preds, refs = corpus(count, size)
    assert_equal_counts(ours(preds, refs, is_fuzzy), theirs(model, preds, refs))
    times: tuple[list[float], list[float]] = [], []
    calls = (lambda: ours(preds, refs, is_fuzzy)), (lambda: theirs(model, preds, refs))
    for _ in range(rounds):
        for timings, call in zip(times, calls, strict=True):
            start = time.perf_counter()
            call()
            timings.append(time.perf_counter() - start)
    mine, other = (statistics.median(timings) for timings in times)
    yield name, f"{mine:.3f}", f"{other:.2f}", f"{other / mine:.0f}", target


def single_call(name: str, target: str, call: Callable[[], Any]) -> Iterator[Any]:
    start = time.perf_counter()
    call()
    yield name, f"{time.perf_counter() - start:.2f}", "", "", target


def in_batches(count: int) -> None:
    metric = FieldScores(schema())
    preds, refs = corpus(1000, lambda generator: generator.randrange(1, 12))
    for _ in range(count // 1000):
        metric.update(preds, refs)
    metric.compute()


def memory_of_batches(count: int) -> Iterator[Any]:
    in_batches(count // 10)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield from single_call(f"{count:,} documents in batches of 1,000", "<= 30 s", lambda: in_batches(count))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    yield f"memory above that of {count // 10:,} documents", f"{grown:.0f} MB", "", "", "0"


def with_intervals(count: int) -> Iterator[Any]:
    names = [f"field{n}" for n in range(50)]
    generator = random.Random(0)
    refs = [{name: generator.randrange(9) for name in names} for _ in range(count)]
    preds = [{name: value if generator.random() < 0.9 else -1 for name, value in ref.items()} for ref in refs]
    times = []
    for replicates in (0, 1000):
        start = time.perf_counter()
        evaluate(preds, refs, replicates=replicates, extra="ignore")
        times.append(time.perf_counter() - start)
    yield f"1,000 replicates of 50 fields of {count:,} documents", f"{times[1] - times[0]:.2f}", "", "", "<= 3 s"


def main() -> None:
    options = arguments(__doc__, ("cpu",))
    torch.set_num_threads(1)
    columns = ("workload", "tensormetrics s", "stickler s", "ratio", "wanted")
    notes = "Medians."
    table = Table(options, "Fields of JSON documents", columns, notes, ("stickler-eval", "rapidfuzz"))
    count, size, rounds = (50, 50, 1) if options.quick else (1000, 500, ROUNDS)

    def ragged(generator: random.Random) -> int:
        return generator.randrange(1, 12)

    table.add(against_stickler(f"{count} documents, lists of 1 to 11", count, ragged, False, rounds, "<= 0.25 s"))
    table.add(against_stickler("the same with two fuzzy fields", count, ragged, True, rounds, "<= 0.4 s"))
    table.add(against_stickler(f"{count} documents, lists of 6", count, lambda _: 6, False, rounds, ""))
    table.add(against_stickler(f"one pair of lists of {size}", 1, lambda _: size, False, 1, "<= 0.08 s"))
    table.add(against_stickler("the same with a fuzzy field", 1, lambda _: size, True, 1, "<= 0.3 s"))
    table.add(memory_of_batches(10_000 if options.quick else 100_000))
    table.add(with_intervals(1000 if options.quick else 10_000))
    table.finish()


if __name__ == "__main__":
    main()
