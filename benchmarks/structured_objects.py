"""Claim: 1,000 documents of dataclasses take 50 times less than with metametric: 30x30 triggers, 20x20 relations,
12x12 events with 4 arguments each; one score takes 0.5 ms (2x3 triggers) and 1 ms (30x30).

Equal values are asserted before anything is timed; times are medians in one process, of one thread; metametric is timed
on a part of the documents and scaled up. Needs metametric 0.3.0a0.
"""

import copy
import random
import statistics
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import metametric.core.decorator
import torch
from _common import Table, arguments

from tensormetrics import structured

NEEDS = ("metametric", "jaxtyping")
DOCUMENTS, PART, ROUNDS = 1000, 10, 7


def classes(metametric: Callable[..., Any]) -> dict[str, type]:
    """Return the same dataclasses under either package."""

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
    """Return documents without repeated items, which metametric counts in another way."""
    draw = random.Random(f"{kind} {size}")

    def mention(position: int) -> Any:
        return use["Mention"](10 * position + draw.randrange(2), 10 * position + 5)

    def item(position: int) -> Any:
        if kind == "Relations":
            return use["Relation"](draw.choice("ab"), mention(position), mention(position))
        trigger = use["Trigger"](mention(position), draw.choice("ab"))
        if kind == "Triggers":
            return trigger
        return use["Event"](trigger, [use["Argument"](mention(n), draw.choice("ab")) for n in range(4)])

    return [use[kind]([item(position) for position in range(size)]) for _ in range(documents)]


def median_ms(run: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def cells(name: str, ours: float, theirs: float, target: str) -> tuple[str, ...]:
    return name, f"{ours:.3g}", f"{theirs:.3g}", f"{theirs / ours:.3g}", target


def documents(kind: str, size: int, count: int) -> Iterator[tuple[str, ...]]:
    ours, theirs = OURS[kind].metric, THEIRS[kind].metric
    columns = [corpus(kind, size, 2 * count, OURS)[n::2] for n in range(2)]
    part = [corpus(kind, size, 2 * PART, THEIRS)[n::2] for n in range(2)]
    expected = [float(theirs.score(p, r)) for p, r in zip(*part, strict=True)]
    torch.testing.assert_close(
        ours(*(column[:PART] for column in columns)), torch.tensor(expected, dtype=torch.float64)
    )
    family = structured.Family(ours, {a: getattr(structured, f"{a}_average")(SCORES) for a in ("micro", "macro")})

    def run() -> dict[str, torch.Tensor]:
        fresh = copy.deepcopy(family)
        fresh.update(*columns)
        return fresh.compute()

    scaled = count / PART * median_ms(lambda: [theirs.score(p, r) for p, r in zip(*part, strict=True)], 3)
    limit = ">= 50x" + (", <= 220 ms" if kind == "Triggers" else "")
    yield cells(f"{count} documents of {size}x{size} {kind.lower()}", median_ms(run, ROUNDS), scaled, limit)


def single(n: int, m: int, target: str) -> Iterator[tuple[str, ...]]:
    pairs = []
    for use in (OURS, THEIRS):
        pred, ref = corpus("Triggers", max(n, m), 2, use)
        pairs.append((use["Triggers"].metric, use["Triggers"](pred.items[:n]), use["Triggers"](ref.items[:m])))
    (ours, *mine), (theirs, *other) = pairs
    assert abs(ours.score(*mine) - float(theirs.score(*other))) < 1e-12
    times = (median_ms(lambda: ours.score(*mine), 100), median_ms(lambda: theirs.score(*other), 20))
    yield cells(f"one score, {n}x{m} triggers", *times, target)


SCORES = ("precision", "recall", "f1")
OURS, THEIRS = classes(structured.metametric), classes(metametric.core.decorator.metametric)


def main() -> None:
    options = arguments(__doc__, ("cpu",))
    torch.set_num_threads(1)
    columns = ("workload", "tensormetrics", "metametric", "ratio", "wanted")
    table = Table(options, "Metrics of objects", columns, "Medians, in milliseconds.", ("metametric",))
    count = PART if options.quick else DOCUMENTS
    for kind, size in (("Triggers", 30), ("Relations", 20), ("Events", 12)):
        table.add(documents(kind, size, count))
    table.add(single(2, 3, "<= 0.5 ms"))
    table.add(single(30, 30, "<= 1 ms"))
    table.finish()


if __name__ == "__main__":
    main()
