"""Claim: triggers, relations and events (four metrics against its one) take a hundredth of metametric's time from
Python objects, triggers from id tensors a thousandth; all coreference metrics of 300 documents of 50 clusters take an
eighth of a second; sequences of 64 take a hundredth of a double loop in Python.

Needs metametric 0.3.0a0 and scorch 0.2.0. Equal values are asserted before anything is timed; times are medians, rivals
are timed on a part of the documents and scaled up. Repeated and empty collections are left out, because metametric
counts them in another way.
"""

import os
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import metametric.dsl as their_dsl
import metametric.structures.ie as theirs
import torch
from _common import Table, arguments
from metametric.core.decorator import metametric as their_metametric
from metametric.metrics import coref as their_coref
from metametric.metrics import event_extraction as their_events
from scorch import scores as scorch

from tensormetrics import structured as ours
from tensormetrics.structured import (
    CorefScores,
    EventScores,
    Family,
    MultisetMatch,
    RelationScores,
    macro_average,
    micro_average,
)
from tensormetrics.structured.functional import sequence_overlap

NEEDS = ("metametric", "jaxtyping", "scorch")
SCORES = ("precision", "recall", "f1")


@ours.metametric
@dataclass
class Triggers:
    triggers: list[ours.Trigger]


@their_metametric()
@dataclass(eq=True, frozen=True)
class TheirTrigger:
    mention: theirs.Mention
    type: str


@their_metametric()
@dataclass
class TheirTriggers:
    triggers: Collection[TheirTrigger]


def median_ms(run: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def cells(name: str, ours: float, rival: float, target: str) -> tuple[str, ...]:
    return name, str(torch.get_num_threads()), f"{ours:.3g}", f"{rival:.3g}", f"{rival / ours:.3g}", target


def their_scores(metric: object, preds: Sequence[object], refs: Sequence[object], reduction: str) -> dict[str, float]:
    average = {"micro": their_dsl.micro_average, "macro": their_dsl.macro_average}[reduction]
    scorer = their_dsl.family(metric, average(list(SCORES))).new()
    scorer.update_batch(preds, refs)
    return scorer.compute()


def equal(result: dict[str, torch.Tensor], expected: dict[str, float], prefix: str = "") -> None:
    for name in SCORES:
        assert abs(float(result[prefix + name]) - float(expected[name])) < 1e-9, (prefix + name, result, expected)


def fed(metric: object, update: str, *arguments: object) -> dict[str, torch.Tensor]:
    getattr(metric, update)(*arguments)
    return metric.compute()


def random_rows(*sizes: int, distinct: int, highs: Sequence[int]) -> torch.Tensor:
    """Return rows of random integers that are distinct in column `distinct` along the last of `sizes`."""
    rows = torch.stack([torch.randint(0, high, sizes) for high in highs], -1)
    rows[..., distinct] += 7 * torch.arange(sizes[-1])
    return rows


def triggers(documents: int = 1000, part: int = 10) -> Iterator[tuple[str, ...]]:
    pred, ref = (random_rows(documents, 30, distinct=1, highs=(4, 4, 4)) for _ in range(2))
    mine, other = (
        [
            [container([item(mention(a, b), str(kind)) for kind, a, b in row]) for row in column.tolist()]
            for column in (pred, ref)
        ]
        for container, item, mention in (
            (Triggers, ours.Trigger, ours.Mention),
            (TheirTriggers, TheirTrigger, theirs.Mention),
        )
    )
    subset = [column[:part] for column in other]

    def rival() -> dict[str, float]:
        return their_scores(TheirTriggers.metric, *subset, "micro")

    def family() -> Family:
        return Family(Triggers.metric, {"micro": micro_average(SCORES), "macro": macro_average(SCORES)})

    equal(fed(MultisetMatch(columns=True), "update", pred[:part], ref[:part]), rival())
    equal(fed(family(), "update", *(column[:part] for column in mine)), rival(), "micro-")
    cost = median_ms(rival, 3) * documents / part
    spent = median_ms(lambda: fed(MultisetMatch(columns=True), "update", pred, ref), 9)
    yield cells(f"triggers, {documents:,} documents x 30x30, ids", spent, cost, ">= 500x, <= 22 ms")
    spent = median_ms(lambda: fed(family(), "update", *mine), 5)
    yield cells("the same from objects, micro and macro", spent, cost, ">= 50x, <= 220 ms")


def relations(documents: int = 1000, part: int = 20) -> Iterator[tuple[str, ...]]:
    pred, ref = (random_rows(documents, 20, distinct=1, highs=(3, 3, 3, 3, 3)) for _ in range(2))
    mine, other = (
        [
            [
                kind.RelationSet([kind.Relation(str(t), kind.Mention(a, b), kind.Mention(c, d)) for t, a, b, c, d in r])
                for r in column.tolist()
            ]
            for column in (pred, ref)
        ]
        for kind in (ours, theirs)
    )
    subset = [column[:part] for column in other]

    def rival() -> dict[str, float]:
        return their_scores(theirs.RelationSet.metric, *subset, "micro")

    equal(fed(RelationScores(), "update", pred[:part], ref[:part]), rival())
    equal(fed(RelationScores(), "update_relations", *(column[:part] for column in mine)), rival())
    cost = median_ms(rival, 3) * documents / part
    spent = median_ms(lambda: fed(RelationScores(), "update", pred, ref), 9)
    yield cells(f"relations, {documents:,} documents x 20x20, ids", spent, cost, "-")
    spent = median_ms(lambda: fed(RelationScores(), "update_relations", *mine), 5)
    yield cells("the same from objects", spent, cost, ">= 50x")


def events(documents: int = 1000, part: int = 5) -> Iterator[tuple[str, ...]]:
    heads = [random_rows(documents, 12, distinct=1, highs=(2, 2, 2)) for _ in range(2)]
    arguments = [random_rows(documents, 12, 4, distinct=1, highs=(2, 2, 2)) for _ in range(2)]
    mine, other = (
        [
            [
                kind.EventSet(
                    [
                        kind.Event(
                            kind.Trigger(kind.Mention(a, b), str(t)),
                            [kind.Argument(kind.Mention(c, d), str(role)) for role, c, d in args],
                        )
                        for (t, a, b), args in zip(*document, strict=True)
                    ]
                )
                for document in zip(head.tolist(), args.tolist(), strict=True)
            ]
            for head, args in zip(heads, arguments, strict=True)
        ]
        for kind in (ours, theirs)
    )
    subset = [column[:part] for column in other]
    index = torch.arange(12)[:, None, None].expand(documents, 12, 4, 1)
    rows = [torch.cat([index, column], -1).flatten(1, 2) for column in arguments]

    def rival() -> dict[str, float]:
        return their_scores(their_events.argument_classification, *subset, "micro")

    result = fed(EventScores(), "update_events", *(column[:part] for column in mine))
    equal(result, rival(), "argument_classification-")
    assert fed(EventScores(), "update", *(column[:part] for column in (*heads, *rows))) == result
    cost = median_ms(rival, 3) * documents / part
    spent = median_ms(lambda: fed(EventScores(), "update", *heads, *rows), 5)
    yield cells(
        f"events, {documents:,} documents x 12x12 of 4 arguments, ids, all four metrics against one", spent, cost, "-"
    )
    spent = median_ms(lambda: fed(EventScores(), "update_events", *mine), 3)
    yield cells("the same from objects", spent, cost, ">= 50x")


def lea(clusters: list[set[int]], others: list[set[int]]) -> float:
    """Compute the fraction of the links of each cluster that the others hold, averaged over the mentions."""
    resolved = 0.0
    for c in clusters:
        if len(c) == 1:
            resolved += c in others
        else:
            resolved += sum(len(c & o) * (len(c & o) - 1) for o in others) / (len(c) - 1)
    return resolved / sum(map(len, clusters))


def coreference(documents: int = 300, part: int = 10, fewer: int = 2) -> Iterator[tuple[str, ...]]:
    pred, ref = (torch.randint(0, 50, (documents, 157)) for _ in range(2))
    pred = pred.where(torch.rand(documents, 157) < 0.3, ref)
    lists = [
        [[{m for m, c in enumerate(row) if c == k} for k in sorted({*row})] for row in column.tolist()]
        for column in (pred, ref)
    ]
    mine, other = (
        [
            [kind.EntitySet([kind.Entity([kind.Mention(m, m) for m in c]) for c in document]) for document in column]
            for column in lists
        ]
        for kind in (ours, theirs)
    )

    def rivals(count: int) -> dict[str, list[tuple[float, float, float]]]:
        pairs = list(zip(*(column[:count] for column in lists), strict=True))
        names = ("muc", "b_cubed", "ceaf_m", "ceaf_e", "blanc")
        return {name: [getattr(scorch, name)(r, p) for p, r in pairs] for name in names}

    def metametric_scores() -> list[dict[str, float]]:
        subset = [column[:fewer] for column in other]
        return [their_scores(metric, *subset, "macro") for metric in (their_coref.muc, their_coref.ceaf_phi4)]

    result = fed(CorefScores(average="macro"), "update", pred[:part], ref[:part])
    for name, values in rivals(part).items():
        recall, precision, f1 = map(statistics.mean, zip(*values, strict=True))
        equal(result, {"precision": precision, "recall": recall, "f1": f1}, f"{name}-")
    for key, columns in (("precision", (0, 1)), ("recall", (1, 0))):
        expected = statistics.mean(lea(*(lists[column][i] for column in columns)) for i in range(part))
        assert abs(float(result[f"lea-{key}"]) - expected) < 1e-9
    subset = fed(CorefScores(average="macro"), "update_clusters", *(column[:fewer] for column in mine))
    for name, expected in zip(("muc", "ceaf_e"), metametric_scores(), strict=True):
        equal(subset, expected, f"{name}-")
    from_ids = fed(CorefScores(), "update", pred, ref)
    for columns in (lists, mine):
        assert all(torch.allclose(v, from_ids[k]) for k, v in fed(CorefScores(), "update_clusters", *columns).items())

    cost = median_ms(lambda: rivals(part), 3) * documents / part
    spent = median_ms(lambda: fed(CorefScores(), "update", pred, ref), 5)
    yield cells(f"coreference, all metrics, {documents} documents x 50 clusters, ids, against scorch", spent, cost, "-")
    spent = median_ms(lambda: fed(CorefScores(), "update_clusters", *lists), 5)
    yield cells("the same from lists of clusters", spent, cost, "< 1 s")
    cost = median_ms(metametric_scores, 1) * documents / fewer
    spent = median_ms(lambda: fed(CorefScores(), "update_clusters", *mine), 5)
    yield cells("the same from entities, against MUC and CEAF-e of metametric", spent, cost, ">= 100x, < 1 s")


def chain(similarity: list[list[float]]) -> float:
    best = [0.0] * (len(similarity[0]) + 1)
    for row in similarity:
        before, best = best, [0.0]
        for j, value in enumerate(row):
            best.append(max(best[j], before[j + 1], before[j] + value))
    return best[-1]


def sequences(documents: int = 1000, part: int = 20) -> Iterator[tuple[str, ...]]:
    similarity = torch.rand(documents, 64, 64)
    rows = similarity[:part].double().tolist()
    expected = torch.tensor([chain(row) for row in rows], dtype=torch.float64)
    assert torch.allclose(sequence_overlap(similarity)[:part], expected)
    cost = median_ms(lambda: [chain(row) for row in rows], 5) * documents / part
    spent = median_ms(lambda: sequence_overlap(similarity), 9)
    yield cells(f"sequences, {documents:,} x 64x64, against a double loop in Python", spent, cost, ">= 100x")


def main() -> None:
    options = arguments(__doc__, ("cpu",))
    torch.manual_seed(0)
    notes = (
        "Medians in ms. Equality was asserted before; the rivals, which are metametric unless a row says otherwise, "
        "are scaled up from a part."
    )
    columns = ("workload", "threads", "ours", "rival", "rival / ours", "wanted")
    packages = ("metametric", "scorch")
    table = Table(options, "Structured scores against metametric and scorch", columns, notes, packages)
    sizes = {"documents": 20} if options.quick else {}
    for threads in (1,) if options.quick else (1, 2):
        torch.set_num_threads(threads)
        for part in (triggers, relations, events, coreference, sequences):
            table.add(part(**sizes))
    table.finish()


if __name__ == "__main__":
    main()
