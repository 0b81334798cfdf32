"""Claim: realistic corpora take the time of their documents. Named entities from lists of tags take a third of the time
of seqeval on sentences as in CoNLL-2003 and a tenth on 500 documents of 1,024 tokens; one document of 3,000 items among
3,000 short ones takes at most twice the sum of both alone; 2,000 documents and one of 2,000 mentions take a second.

Sets of 1,500 x 1,500 numbers take 0.2 s, and a similarity in Python no longer than with metametric.

Needs seqeval 1.2.2, scorch 0.2.0; events and functions are compared with metametric 0.3.0a0 where it is installed.
Equal values are asserted before anything is timed. Rivals take turns in one process, times are medians; memory is the
increase of the peak of the process, in a separate process for each row.
"""

import functools
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

import networkx
import numpy
import torch
from _common import Table, arguments
from scipy.optimize import linear_sum_assignment
from scorch import scores as scorch
from seqeval import metrics as seqeval
from torch.nn.utils.rnn import pad_sequence

from tensormetrics.structured import (
    Argument,
    BoxMatch,
    CorefScores,
    Event,
    EventScores,
    EventSet,
    Family,
    Mention,
    RankingScores,
    Relation,
    RelationScores,
    Smatch,
    SpanScores,
    Trigger,
    derive,
    dsl,
    micro_average,
    ner_report,
)

NEEDS = ("seqeval", "scorch", "scipy", "networkx")
ROUNDS = 5
Documents = tuple[list[Any], list[Any]]


class Case(NamedTuple):
    name: str
    documents: Documents
    ours: Callable[..., Any]
    rival: Callable[..., Any] | None  # on the same documents; None: our metric on the parts of the corpus
    same: Callable[[Any, Any], bool]
    target: str
    parts: tuple[Documents, ...] = ()


def tagged(draw: random.Random, tokens: int) -> list[str]:
    """Return BIO tags; a fifth of the tokens outside of entities begin an entity."""
    tags: list[str] = []
    while len(tags) < tokens:
        if draw.random() < 0.2:
            label = draw.choice(("PER", "LOC", "ORG", "MISC"))
            tags += [f"B-{label}", *[f"I-{label}"] * draw.choice((0, 0, 0, 1, 1, 2))]
        else:
            tags.append("O")
    return tags[:tokens]


def sentences(draw: random.Random, count: int) -> list[int]:
    """Return lengths as in CoNLL-2003's test set: 13 tokens on average, at most 124."""
    return [min(124, max(1, round(draw.lognormvariate(2.25, 0.75)))) for _ in range(count - 1)] + [124]


def entities(draw: random.Random, lengths: Sequence[int]) -> Documents:
    ref = [tagged(draw, tokens) for tokens in lengths]
    others = ("O", "B-PER", "I-LOC", "B-ORG")
    return [[tag if draw.random() < 0.93 else draw.choice(others) for tag in row] for row in ref], ref


def clustered(draw: random.Random, mentions: int, clusters: int) -> tuple[list[set[int]], list[set[int]]]:
    clusterings: list[dict[int, set[int]]] = [{}, {}]
    for mention in range(mentions):
        cluster = draw.randrange(clusters)
        for clustering, noise in zip(clusterings, (0.2, 0.0), strict=True):
            clustering.setdefault(draw.randrange(clusters) if draw.random() < noise else cluster, set()).add(mention)
    return tuple([*clustering.values()] for clustering in clusterings)


def events(draw: random.Random, count: int, args: int, num_tokens: int = 30) -> list[Event]:
    """Return events of distinct triggers with `args` distinct arguments each."""
    return [
        Event(
            Trigger(Mention(3 * position, 3 * position + 1), draw.choice(("Attack", "Meet"))),
            [
                Argument(Mention(token, token), draw.choice(("Agent", "Place")))
                for token in draw.sample(range(num_tokens), args)
            ],
        )
        for position in draw.sample(range(2 * count), count)
    ]


def scores(metric: Any, update: str, *documents: list[Any]) -> dict[str, float]:
    getattr(metric, update)(*documents)
    return {name: float(value) for name, value in metric.compute().items()}


def close(result: Any, expected: Any) -> bool:
    return all(abs(result[name] - value) < 1e-9 for name, value in expected.items())


def scorch_scores(preds: list[Any], refs: list[Any]) -> dict[str, float]:
    """Compute the means of scorch's scores over documents."""
    means = {}
    for name in ("muc", "b_cubed", "ceaf_e"):
        rows = [getattr(scorch, name)(ref, pred) for pred, ref in zip(preds, refs, strict=True)]
        means |= {
            f"{name}-{key}": statistics.mean(row[i] for row in rows) for i, key in ((1, "precision"), (0, "recall"))
        }
    return means


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
    """Return the case of many documents of 3 items and one long document, against the times of both parts."""
    batch = tuple(map(list, zip(*(one(3) for _ in range(short)), strict=True)))
    single = tuple([document] for document in one(long))
    documents = tuple(a + b for a, b in zip(batch, single, strict=True))
    target = "-" if "padded" in name else "<= 2x"  # padding is part of the time
    return Case(f"{name}, {short:,} of 3 and one of {long:,}", documents, run, None, close, target, (batch, single))


def entity_cases(draw: random.Random, part: int) -> Iterator[Callable[[], Case]]:
    def report(preds: list[Any], refs: list[Any]) -> str:
        return seqeval.classification_report(refs, preds)

    def f1(preds: list[Any], refs: list[Any]) -> dict[str, float]:
        return {"f1": seqeval.f1_score(refs, preds)}

    def same(a: Any, b: Any) -> bool:
        return a == b

    def case(shape: str, lengths: Sequence[int], name: str, ours: Any, rival: Any, equal: Any, target: str) -> Case:
        title = f"entities, {shape}, {name}, against seqeval"
        return Case(title, entities(draw, lengths), ours, rival, equal, target)

    for shape, lengths, target in (
        ("3,453 sentences as in CoNLL-2003", lambda: sentences(draw, 3453 // part), (">= 3x", ">= 3x")),
        ("500 x 1,024 tokens", lambda: [1024] * (500 // part), (">= 10x", "-")),
    ):
        yield lambda s=shape, n=lengths, w=target[0]: case(s, n(), "report", ner_report, report, same, w)
        yield lambda s=shape, n=lengths, w=target[1]: case(s, n(), "F1", spans, f1, close, w)


def spans(*documents: list[Any], scheme: str = "strict") -> dict[str, float]:
    return scores(SpanScores(scheme), "update_tags", *documents)


def argued(*documents: list[Any]) -> dict[str, float]:
    return scores(EventScores(), "update_events", *documents)


def coref(*documents: list[Any], average: str = "micro") -> dict[str, float]:
    return scores(CorefScores(average=average), "update_clusters", *documents)


def document_cases(draw: random.Random, part: int) -> Iterator[Callable[[], Case]]:
    def ontonotes() -> Case:  # 56 mentions in 13 clusters on the average, some documents with hundreds
        sizes = [max(4, round(draw.lognormvariate(3.6, 0.9))) for _ in range(348 // part)]
        documents = zip(*(clustered(draw, size, max(size // 4, 2)) for size in sizes), strict=True)
        name = f"coreference, {len(sizes)} documents as in OntoNotes, against scorch's MUC, B-cubed and CEAF-e"
        ours = functools.partial(coref, average="macro")
        return Case(name, tuple(map(list, documents)), ours, scorch_scores, close, "-")

    def ace() -> Case:  # 8 events on the average, 2 arguments each
        sizes = [1 + min(60, round(draw.expovariate(1 / 8))) for _ in range(100 // part)]
        documents = tuple([EventSet(events(draw, size, 2)) for size in sizes] for _ in range(2))
        return Case(f"events, {len(sizes)} documents as in ACE, all four metrics, against metametric's one",
                    documents, argued, their_events, close, "-")  # fmt: skip

    yield ontonotes
    if importlib.util.find_spec("metametric"):
        yield ace


def function_cases(draw: random.Random, part: int) -> Iterator[Callable[[], Case]]:
    """Yield cases of sets of numbers whose similarity decreases with distance: one document, no key."""

    def floats(size: int) -> Documents:
        return tuple([[draw.random() for _ in range(size)]] for _ in range(2))

    def near(a: float, b: float) -> float:
        return 1 - abs(a - b)

    def nears(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (1 - (a - b).abs())[:, 0]

    keyless = dsl.set_matching[float](dsl.tensor_func(nears)[float])

    def scored(preds: list[Any], refs: list[Any]) -> dict[str, float]:
        return {"": keyless.score(preds[0], refs[0])}

    def by_scipy(preds: list[Any], refs: list[Any]) -> dict[str, float]:
        table = 1 - abs(numpy.array(preds[0])[:, None] - numpy.array(refs[0]))
        return {"": table[linear_sum_assignment(table, maximize=True)].sum()}

    wide = 1500 // part
    yield lambda: Case(f"keyless sets of {wide:,} x {wide:,}, against numpy and scipy", floats(wide), scored, by_scipy,
                       close, "<= 200 ms")  # fmt: skip
    if not importlib.util.find_spec("metametric"):
        return
    import metametric.dsl as peer

    def scorer(kind: Any, normalizer: str) -> Callable[..., dict[str, float]]:
        metric = kind.set_matching[float, "<->", normalizer](kind.from_func(near))
        return lambda preds, refs: {"": float(metric.score(preds[0], refs[0]))}

    def case(size: int, normalizer: str) -> Case:
        title = f"from_func, {size} x {size}, {normalizer}, against metametric"
        rivals = (scorer(kind, normalizer) for kind in (dsl, peer))
        return Case(title, floats(size), *rivals, close, ">= 1x")

    for size in (200 // part, 3):
        for normalizer in ("none", "f1"):
            yield functools.partial(case, size, normalizer)


def outlier_cases(draw: random.Random, part: int) -> Iterator[Callable[[], Case]]:
    short, long = 3000 // part, 3000 // part

    def pair(one: Callable[[int], Any]) -> Callable[[int], tuple[Any, Any]]:
        return lambda size: (one(size), one(size))

    def integers(size: int) -> list[int]:
        return [draw.randrange(50) for _ in range(size)]

    def relations(size: int) -> list[Relation]:
        return [Relation(draw.choice("ab"), Mention(i, i), Mention(i + 1, i + 1)) for i in range(size)]

    def triples(size: int) -> list[tuple[str, str, str]]:
        nodes = -(-size // 3)
        edges = [(f"v{draw.randrange(nodes)}", "arg", f"v{draw.randrange(nodes)}") for _ in range(size - nodes)]
        return [(f"v{n}", "instance", draw.choice("abcdefgh")) for n in range(nodes)] + edges

    def graph(size: int) -> networkx.DiGraph:
        return networkx.DiGraph([(draw.randrange(n), n) for n in range(1, size)])

    def family(metric: Any) -> Callable[..., Any]:
        return lambda *documents: scores(Family(metric, micro_average(["f1"])), "update", *documents)

    def boxed(preds: list[list[int]], refs: list[list[int]]) -> dict[str, float]:
        tables = [pad_sequence(list(map(torch.tensor, rows)), True).double() for rows in (preds, refs)]
        corners = [torch.stack([t, t, t + 2, t + 3], -1) for t in tables]
        return scores(BoxMatch(), "update", *corners, *(torch.tensor(list(map(len, rows))) for rows in (preds, refs)))

    def ranked(preds: list[Any], refs: list[Any]) -> dict[str, float]:
        return scores(RankingScores(), "update_rankings", dsl.ranking[long](dsl.discrete[int]), preds, refs)

    def of_tags(size: int) -> tuple[list[str], list[str]]:
        return tuple(rows[0] for rows in entities(draw, [size]))

    def of_arguments(size: int) -> tuple[list[Event], list[Event]]:
        return tuple(events(draw, 1, size, 2 * size) for _ in range(2))

    def smatch(*documents: list[Any]) -> dict[str, float]:
        return scores(Smatch(top=False, solver="search"), "update", *documents)

    def related(*documents: list[Any]) -> dict[str, float]:
        return scores(RelationScores(), "update_relations", *documents)

    partial = functools.partial(spans, scheme="partial")
    distance = dsl.tensor_func(lambda a, b: (1 - (a - b).abs() / 50)[:, 0])[int]
    for name, one, run, num_short, num_long in (
        ("entities, strict", of_tags, spans, short, long),
        ("entities, partial", of_tags, partial, short, long),
        ("relations", pair(relations), related, short, long),
        ("events, arguments", of_arguments, argued, 500 // part, 2000 // part),
        ("coreference", lambda n: clustered(draw, n, max(n // 4, 1)), coref, 2000 // part, 2000 // part),
        ("rankings", pair(lambda n: draw.sample(range(2 * n), n)), ranked, short, long),
        ("sets by equality", pair(integers), family(derive(list[int])), short, long),
        ("sets without a key", pair(integers), family(dsl.set_matching[int](distance)), short, 1000 // part),
        ("sequences", pair(integers), family(dsl.sequence_matching[int](...)), short, long),
        ("boxes, padded", pair(integers), boxed, short, 500 // part),
        ("Smatch, search", pair(triples), smatch, short, 150 // part),
        ("graphs", pair(graph), family(dsl.graph_matching[int](...)), 300 // part, 40 // part),
    ):
        yield lambda name=name, one=one, run=run, num_short=num_short, num_long=num_long: outlier(
            name, one, run, num_short, max(num_long, 4)
        )


def cases(quick: bool) -> list[Callable[[], Case]]:
    part = 50 if quick else 1
    draw = random.Random(0)
    return [*entity_cases(draw, part), *document_cases(draw, part), *function_cases(draw, part),
            *outlier_cases(draw, part)]  # fmt: skip


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measured(index: int, quick: bool, answer: Any) -> None:
    """Measure one row in a separate process."""
    torch.set_num_threads(1)
    case = cases(quick)[index]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = case.ours(*case.documents)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    if case.rival is None:
        rival = lambda: [case.ours(*part) for part in case.parts]  # noqa: E731
    else:
        rival = lambda: case.rival(*case.documents)  # noqa: E731
        assert case.same(result, rival()), case.name
    times = [(seconds(lambda: case.ours(*case.documents)), seconds(rival)) for _ in range(1 if quick else ROUNDS)]
    ours, theirs = map(statistics.median, zip(*times, strict=True))
    ratio = f"{theirs / ours:.2g}x" if case.rival else f"{ours / theirs:.2g}x of both alone"
    answer.put((case.name, f"{1e3 * ours:.3g}", f"{1e3 * theirs:.3g}", ratio, case.target, f"{memory:.0f}"))


def rows(quick: bool) -> Iterator[tuple[str, ...]]:
    context = multiprocessing.get_context("spawn")
    for index in range(len(cases(quick))):
        answer = context.Queue()
        process = context.Process(target=measured, args=(index, quick, answer))
        process.start()
        process.join()
        if process.exitcode:
            raise RuntimeError(f"row {index}: exit status {process.exitcode}")
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
