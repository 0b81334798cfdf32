"""Claim: corpora as they are cost what their documents cost. Named entities from lists of tags take a third of the time
of seqeval on sentences as in CoNLL-2003 and a tenth on 500 documents of 1,024 tokens; one document of 3,000 items among
3,000 short ones takes at most twice the sum of both alone; 2,000 documents and one of 2,000 mentions take a second.

Needs seqeval 1.2.2, scorch 0.2.0; events are compared with metametric 0.2 or later where it is installed. Equal values
are asserted before anything is timed. Rivals take turns in one process, times are medians; memory is the most that the
process holds more than before, in a process of its own for each row.
"""

import importlib.util
import multiprocessing
import os
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from _common import Table, arguments
from scorch import scores as scorch
from seqeval import metrics as seqeval

from tensormetrics.structured import (
    Argument,
    CorefScores,
    Event,
    EventScores,
    EventSet,
    Mention,
    Relation,
    RelationScores,
    SpanScores,
    Trigger,
    ner_report,
)

NEEDS = ("seqeval", "scorch")
ROUNDS = 5
Sides = tuple[list[Any], list[Any]]


class Case(NamedTuple):
    name: str
    sides: Sides
    ours: Callable[..., Any]
    rival: Callable[..., Any] | None  # of the same sides; None: the parts of the corpus alone
    same: Callable[[Any, Any], bool]
    wanted: str
    parts: tuple[Sides, ...] = ()


def tagged(draw: random.Random, tokens: int) -> list[str]:
    """BIO tags; a fifth of the tokens that are not inside one begin an entity."""
    tags: list[str] = []
    while len(tags) < tokens:
        if draw.random() < 0.2:
            label = draw.choice(("PER", "LOC", "ORG", "MISC"))
            tags += [f"B-{label}", *[f"I-{label}"] * draw.choice((0, 0, 0, 1, 1, 2))]
        else:
            tags.append("O")
    return tags[:tokens]


def sentences(draw: random.Random, count: int) -> list[int]:
    """Lengths as in CoNLL-2003's test set: 13 tokens on the average, 124 the most."""
    return [min(124, max(1, round(draw.lognormvariate(2.25, 0.75)))) for _ in range(count - 1)] + [124]


def entities(draw: random.Random, lengths: Sequence[int]) -> Sides:
    ref = [tagged(draw, tokens) for tokens in lengths]
    others = ("O", "B-PER", "I-LOC", "B-ORG")
    return [[tag if draw.random() < 0.93 else draw.choice(others) for tag in row] for row in ref], ref


def clustered(draw: random.Random, mentions: int, clusters: int) -> tuple[list[set[int]], list[set[int]]]:
    sides: list[dict[int, set[int]]] = [{}, {}]
    for mention in range(mentions):
        number = draw.randrange(clusters)
        for side, noise in zip(sides, (0.2, 0.0), strict=True):
            side.setdefault(draw.randrange(clusters) if draw.random() < noise else number, set()).add(mention)
    return tuple([*side.values()] for side in sides)


def events(draw: random.Random, count: int, args: int, places: int = 30) -> list[Event]:
    """Distinct triggers, each with `args` distinct arguments."""
    return [
        Event(
            Trigger(Mention(3 * place, 3 * place + 1), draw.choice(("Attack", "Meet"))),
            [
                Argument(Mention(word, word), draw.choice(("Agent", "Place")))
                for word in draw.sample(range(places), args)
            ],
        )
        for place in draw.sample(range(2 * count), count)
    ]


def scores(metric: Any, update: str, *sides: list[Any]) -> dict[str, float]:
    getattr(metric, update)(*sides)
    return {name: float(value) for name, value in metric.compute().items()}


def close(found: Any, wanted: Any) -> bool:
    return all(abs(found[name] - value) < 1e-9 for name, value in wanted.items())


def scorch_scores(preds: list[Any], refs: list[Any]) -> dict[str, float]:
    """Means over documents."""
    found = {}
    for name in ("muc", "b_cubed", "ceaf_e"):
        rows = [getattr(scorch, name)(ref, pred) for pred, ref in zip(preds, refs, strict=True)]
        found |= {
            f"{name}-{key}": statistics.mean(row[i] for row in rows) for i, key in ((1, "precision"), (0, "recall"))
        }
    return found


def their_events(preds: list[Any], refs: list[Any]) -> dict[str, float]:
    import metametric.dsl as dsl
    from metametric.metrics.event_extraction import argument_classification
    from metametric.structures import ie

    def turned(document: EventSet) -> Any:
        return ie.EventSet([
            ie.Event(
                ie.Trigger(ie.Mention(event.trigger.mention.left, event.trigger.mention.right), event.trigger.type),
                [ie.Argument(ie.Mention(a.mention.left, a.mention.right), a.role) for a in event.args],
            )
            for event in document.events
        ])  # fmt: skip

    scorer = dsl.family(argument_classification, dsl.micro_average(["precision", "recall", "f1"])).new()
    scorer.update_batch([*map(turned, preds)], [*map(turned, refs)])
    return {f"argument_classification-{name}": value for name, value in scorer.compute().items()}


def outlier(name: str, one: Callable[[int], tuple[Any, Any]], run: Callable[..., Any], short: int, long: int) -> Case:
    """Many documents of 3 items and one long one, against both alone."""
    many = tuple(map(list, zip(*(one(3) for _ in range(short)), strict=True)))
    single = tuple([side] for side in one(long))
    sides = tuple(a + b for a, b in zip(many, single, strict=True))
    return Case(f"{name}, {short:,} of 3 and one of {long:,}", sides, run, None, close, "<= 2x", (many, single))


def cases(quick: bool) -> Iterator[Callable[[], Case]]:
    part = 50 if quick else 1
    draw = random.Random(0)

    def report(preds: list[Any], refs: list[Any]) -> str:
        return seqeval.classification_report(refs, preds)

    def f1(preds: list[Any], refs: list[Any]) -> dict[str, float]:
        return {"f1": seqeval.f1_score(refs, preds)}

    def spans(*sides: list[Any], scheme: str = "strict") -> dict[str, float]:
        return scores(SpanScores(scheme), "update_tags", *sides)

    def same(a: Any, b: Any) -> bool:
        return a == b

    for shape, lengths in (
        ("3,453 sentences as in CoNLL-2003", lambda: sentences(draw, 3453 // part)),
        ("500 x 1,024 tokens", lambda: [1024] * (500 // part)),
    ):
        times = "3x" if "CoNLL" in shape else "10x"
        yield lambda s=shape, n=lengths, t=times: Case(
            f"entities, {s}, report, against seqeval", entities(draw, n()), ner_report, report, same, f">= {t}"
        )
        yield lambda s=shape, n=lengths, t=times: Case(
            f"entities, {s}, F1, against seqeval",
            entities(draw, n()),
            spans,
            f1,
            close,
            f">= {t}" if t == "3x" else "-",
        )

    def argued(*sides: list[Any]) -> dict[str, float]:
        return scores(EventScores(), "update_events", *sides)

    def coref(*sides: list[Any]) -> dict[str, float]:
        return scores(CorefScores(average="macro"), "update_clusters", *sides)

    def ontonotes() -> Case:  # 56 mentions in 13 clusters on the average, some documents with hundreds
        sizes = [max(4, round(draw.lognormvariate(3.6, 0.9))) for _ in range(348 // part)]
        sides = zip(*(clustered(draw, size, max(size // 4, 2)) for size in sizes), strict=True)
        name = f"coreference, {len(sizes)} documents as in OntoNotes, against scorch's MUC, B-cubed and CEAF-e"
        return Case(name, tuple(map(list, sides)), coref, scorch_scores, close, "-")

    yield ontonotes

    def ace() -> Case:  # 8 events on the average, 2 arguments each
        sizes = [1 + min(60, round(draw.expovariate(1 / 8))) for _ in range(100 // part)]
        sides = tuple([EventSet(events(draw, size, 2)) for size in sizes] for _ in range(2))
        return Case(f"events, {len(sizes)} documents as in ACE, all four metrics, against metametric's one",
                    sides, argued, their_events, close, "-")  # fmt: skip

    if importlib.util.find_spec("metametric"):
        yield ace

    def relations(size: int) -> list[Relation]:
        return [Relation(draw.choice("ab"), Mention(i, i), Mention(i + 1, i + 1)) for i in range(size)]

    short, long = 3000 // part, 3000 // part
    for scheme in ("strict", "partial"):
        yield lambda scheme=scheme: outlier(
            f"entities, {scheme}", lambda n: tuple(rows[0] for rows in entities(draw, [n])),
            lambda *sides: spans(*sides, scheme=scheme), short, long,
        )  # fmt: skip

    def related(*sides: list[Any]) -> dict[str, float]:
        return scores(RelationScores(), "update_relations", *sides)

    def micro(*sides: list[Any]) -> dict[str, float]:
        return scores(CorefScores(), "update_clusters", *sides)

    def of_arguments(size: int) -> tuple[list[Event], list[Event]]:
        return tuple(events(draw, 1, size, 2 * size) for _ in range(2))

    def of_mentions(size: int) -> tuple[list[set[int]], list[set[int]]]:
        return clustered(draw, size, max(size // 4, 1))

    yield lambda: outlier("relations", lambda n: (relations(n), relations(n)), related, short, long)
    yield lambda: outlier("events, arguments", of_arguments, argued, 500 // part, 2000 // part)
    yield lambda: outlier("coreference", of_mentions, micro, 2000 // part, 2000 // part)


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measured(number: int, quick: bool, answer: Any) -> None:
    """One row, in a process of its own."""
    torch.set_num_threads(1)
    case = list(cases(quick))[number]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = case.ours(*case.sides)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    if case.rival is None:
        rival = lambda: [case.ours(*part) for part in case.parts]  # noqa: E731
    else:
        rival = lambda: case.rival(*case.sides)  # noqa: E731
        assert case.same(found, rival()), case.name
    times = [(seconds(lambda: case.ours(*case.sides)), seconds(rival)) for _ in range(1 if quick else ROUNDS)]
    ours, theirs = map(statistics.median, zip(*times, strict=True))
    ratio = f"{theirs / ours:.2g}x" if case.rival else f"{ours / theirs:.2g}x of both alone"
    answer.put((case.name, f"{1e3 * ours:.3g}", f"{1e3 * theirs:.3g}", ratio, case.wanted, f"{memory:.0f}"))


def rows(quick: bool) -> Iterator[tuple[str, ...]]:
    context = multiprocessing.get_context("spawn")
    for number in range(len(list(cases(quick)))):
        answer = context.Queue()
        process = context.Process(target=measured, args=(number, quick, answer))
        process.start()
        process.join()
        if process.exitcode:
            raise RuntimeError(f"row {number}: exit status {process.exitcode}")
        yield answer.get()


def main() -> None:
    options = arguments(__doc__, ("cpu",))
    torch.set_num_threads(1)
    notes = "Medians in ms of one thread; MB is the most that our call held beyond what was there before."
    columns = ("corpus", "ours", "rival", "rival / ours", "wanted", "MB")
    table = Table(options, "Corpora of unequal documents", columns, notes, NEEDS)
    table.add(rows(options.quick))
    table.finish()


if __name__ == "__main__":
    main()
