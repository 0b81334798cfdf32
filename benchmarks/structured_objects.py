"""Claim: 1,000 documents of dataclasses take 50 times less than with metametric: 30x30 triggers, 20x20 relations,
12x12 events with 4 arguments each; one score takes 0.5 ms (2x3 triggers) and 1 ms (30x30).

    python benchmarks/structured_objects.py [table.md]

Equal values are asserted before anything is timed; times are medians in one process, of one thread; metametric is timed
on a part of the documents and scaled up. Needs metametric 0.3.0a0.
"""

import datetime
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import metametric.core.decorator
import torch

from tensormetrics import structured

DOCUMENTS, PART, ROUNDS = 1000, 10, 7
ROWS: list[str] = []


def classes(metametric: Callable[..., Any]) -> dict[str, type]:
    """The same dataclasses under either package."""

    @metametric()
    @dataclass(eq=True, frozen=True)
    class Mention:
        left: int
        right: int

    @metametric()
    @dataclass(eq=True, frozen=True)
    class Trigger:
        mention: Mention
        type: str

    @metametric(normalizer="f1")
    @dataclass
    class Triggers:
        items: Collection[Trigger]

    @metametric()
    @dataclass(eq=True, frozen=True)
    class Relation:
        type: str
        subj: Mention
        obj: Mention

    @metametric(normalizer="f1")
    @dataclass
    class Relations:
        items: Collection[Relation]

    @metametric()
    @dataclass(eq=True, frozen=True)
    class Argument:
        mention: Mention
        role: str

    @metametric()
    @dataclass
    class Event:
        trigger: Trigger
        arguments: Collection[Argument]

    @metametric(normalizer="f1")
    @dataclass
    class Events:
        items: Collection[Event]

    return {cls.__name__: cls for cls in (Mention, Trigger, Triggers, Relation, Relations, Argument, Event, Events)}


def corpus(kind: str, size: int, documents: int, use: dict[str, type]) -> list[Any]:
    """Documents without repeated items, which metametric counts in another way."""
    draw = random.Random(f"{kind} {size}")

    def mention(place: int) -> Any:
        return use["Mention"](10 * place + draw.randrange(2), 10 * place + 5)

    def item(place: int) -> Any:
        if kind == "Relations":
            return use["Relation"](draw.choice("ab"), mention(place), mention(place))
        trigger = use["Trigger"](mention(place), draw.choice("ab"))
        if kind == "Triggers":
            return trigger
        return use["Event"](trigger, [use["Argument"](mention(n), draw.choice("ab")) for n in range(4)])

    return [use[kind]([item(place) for place in range(size)]) for _ in range(documents)]


def median_ms(run: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def record(name: str, ours: float, theirs: float, target: str) -> None:
    ROWS.append(f"| {name} | {ours:.3g} | {theirs:.3g} | {theirs / ours:.3g} | {target} |")
    print(ROWS[-1])


def documents(kind: str, size: int) -> None:
    ours, theirs = OURS[kind].metric, THEIRS[kind].metric
    sides = [corpus(kind, size, 2 * DOCUMENTS, OURS)[n::2] for n in range(2)]
    part = [corpus(kind, size, 2 * PART, THEIRS)[n::2] for n in range(2)]
    expected = [float(theirs.score(p, r)) for p, r in zip(*part, strict=True)]
    torch.testing.assert_close(ours(*(side[:PART] for side in sides)), torch.tensor(expected, dtype=torch.float64))
    family = structured.Family(ours, {a: getattr(structured, f"{a}_average")(SCORES) for a in ("micro", "macro")})

    def run() -> dict[str, torch.Tensor]:
        fresh = family.new()
        fresh.update(*sides)
        return fresh.compute()

    scaled = DOCUMENTS / PART * median_ms(lambda: [theirs.score(p, r) for p, r in zip(*part, strict=True)], 3)
    limit = ">= 50x" + (", <= 220 ms" if kind == "Triggers" else "")
    record(f"{DOCUMENTS} documents of {size}x{size} {kind.lower()}", median_ms(run, ROUNDS), scaled, limit)


def single(n: int, m: int, target: str) -> None:
    pairs = []
    for use in (OURS, THEIRS):
        pred, ref = corpus("Triggers", max(n, m), 2, use)
        pairs.append((use["Triggers"].metric, use["Triggers"](pred.items[:n]), use["Triggers"](ref.items[:m])))
    (ours, *mine), (theirs, *other) = pairs
    assert abs(ours.score(*mine) - float(theirs.score(*other))) < 1e-12
    times = (median_ms(lambda: ours.score(*mine), 100), median_ms(lambda: theirs.score(*other), 20))
    record(f"one score, {n}x{m} triggers", *times, target)


SCORES = ("precision", "recall", "f1")
OURS, THEIRS = classes(structured.metametric), classes(metametric.core.decorator.metametric)

if __name__ == "__main__":
    torch.set_num_threads(1)
    documents("Triggers", 30)
    documents("Relations", 20)
    documents("Events", 12)
    single(2, 3, "<= 0.5 ms")
    single(30, 30, "<= 1 ms")
    if len(sys.argv) > 1:
        versions = f"Python {platform.python_version()}, torch {torch.__version__}"
        machine = f"{platform.processor() or platform.machine()}, {versions}"
        head = [
            f"# Metrics of objects, {datetime.date.today()}",
            "",
            f"{machine}, one thread; medians, in milliseconds",
            "",
        ]
        head += ["| workload | tensormetrics | metametric | ratio | target |", "|---|---|---|---|---|"]
        Path(sys.argv[1]).write_text("\n".join([*head, *ROWS, ""]))
