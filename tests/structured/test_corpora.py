"""Batches of documents of unequal size give the counts of single documents with little padding."""

import functools
import random
import re
from dataclasses import dataclass

import pytest
import torch
from cases.structured import METRICS
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tensormetrics.structured import (
    Argument,
    BoxMatch,
    ClusterMatchScores,
    CorefScores,
    Event,
    EventScores,
    Family,
    LatentMatch,
    Mention,
    MultisetMatch,
    RankingScores,
    Relation,
    RelationScores,
    Smatch,
    SpanScores,
    Trigger,
    derive,
    dsl,
    micro_average,
    span_errors,
)
from tensormetrics.structured.extend import Variable
from tensormetrics.structured.functional import graph_overlap, reachability
from tensormetrics.structured.suites.entities.span_errors import SpanErrors
from tensormetrics.structured.tensors import _lengths

RAGGED = ("SetMatch", "SequenceMatch", "MultisetMatch", "RankingScores", "BoxMatch", "SpanScores", "RelationScores")
RAGGED += ("EventScores", "CorefScores", "ClusterMatchScores")


def sizes_of(draw: random.Random, documents: int) -> list[int]:
    """A long tail."""
    return [draw.choice((0, 1, 2, 3, 3, 4, 7)) for _ in range(documents)] + [60]


def tags(draw: random.Random, size: int) -> list[str]:
    return draw.choices(("O", "B-A", "I-A", "B-B", "I-B"), k=size)


def relations(draw: random.Random, size: int) -> list[Relation]:
    return [Relation(draw.choice("ab"), *(Mention(draw.randrange(3), 3) for _ in range(2))) for _ in range(size)]


def events(draw: random.Random, size: int) -> list[Event]:
    return [
        Event(
            Trigger(Mention(draw.randrange(3), 3), draw.choice("ab")),
            [Argument(Mention(draw.randrange(3), 3), draw.choice("xy")) for _ in range(draw.randrange(4))],
        )
        for _ in range(size)
    ]


def clusters(draw: random.Random, size: int) -> list[list[int]]:
    result: dict[int, list[int]] = {}
    for mention in draw.sample(range(2 * size), size):
        result.setdefault(draw.randrange(size), []).append(mention)
    return list(result.values())


def ranked(draw: random.Random, size: int) -> list[int]:
    return draw.sample(range(2 * size + 1), size)


def amr(draw: random.Random, size: int) -> list[tuple[str, str, str]]:
    nodes = -(-size // 3)
    triples = [(f"v{n}", "instance", draw.choice("abcd")) for n in range(nodes)]
    return triples + [
        (f"v{draw.randrange(nodes)}", draw.choice("xy"), f"v{draw.randrange(nodes)}") for _ in range(size - nodes)
    ]


def ranking_update(metric: RankingScores, preds: list[list[int]], refs: list[list[int]]) -> None:
    metric.update_rankings(dsl.ranking[60](dsl.discrete[int]), preds, refs)


OBJECTS = {
    **{
        scheme: (lambda scheme=scheme: SpanScores(scheme), SpanScores.update_tags, tags)
        for scheme in ("strict", "exact", "partial", "type")
    },
    "types": (lambda: SpanScores("type", "types", ("A", "B")), SpanScores.update_tags, tags),
    "relations": (RelationScores, RelationScores.update_relations, relations),
    "relation types": (lambda: RelationScores("types", ("a", "b")), RelationScores.update_relations, relations),
    "events": (EventScores, EventScores.update_events, events),
    "events by type": (lambda: EventScores("type"), EventScores.update_events, events),
    "coreference": (CorefScores, CorefScores.update_clusters, clusters),
    "rankings": (RankingScores, ranking_update, ranked),
    "Smatch": (
        functools.partial(Smatch, solver="search", top=False),
        lambda metric, *pair: metric.update(*pair),
        amr,
    ),
}


@pytest.fixture(params=[None, 1, 40])
def cells(request, monkeypatch):
    """Chunks as they are; of one document; of a few."""
    if request.param is not None:
        monkeypatch.setattr(_lengths, "SMALL_CELLS", 0)
        monkeypatch.setattr(_lengths, "CELLS", request.param)


@pytest.mark.parametrize("kind", OBJECTS)
def test_objects_in_batches_equal_single_documents(kind, cells):
    make, update, one = OBJECTS[kind]
    draw = random.Random(0)
    sizes = sizes_of(draw, 40)
    inputs = [[one(draw, size) for size in sizes] for _ in range(2)]
    combined, single = make(), make()
    update(combined, *inputs)
    for pred, ref in zip(*inputs, strict=True):
        update(single, [pred], [ref])
    assert combined.update_count == 1
    assert {k: float(v) for k, v in combined.compute().items()} == pytest.approx(
        {k: float(v) for k, v in single.compute().items()}, rel=1e-12, nan_ok=True
    )


@pytest.mark.parametrize("name", RAGGED)
def test_tensors_in_batches_equal_single_documents(name, cells, generator):
    inputs = METRICS[f"{name}"].inputs(generator, 30)
    combined, single = METRICS[name].make(), METRICS[name].make()
    combined.update(*inputs)
    for document in zip(*(tensor.split(1) for tensor in inputs), strict=True):
        single.update(*document)
    for key, value in combined.compute().items():
        assert float(value) == pytest.approx(float(single.compute()[key]), rel=1e-12)


def test_graph_overlap_in_batches_equals_single_documents(cells, generator):
    lengths = [torch.randint(0, 6, (20,), generator=generator) for _ in range(2)]
    similarity = torch.rand(20, 5, 5, generator=generator, dtype=torch.float64)
    reachable = [reachability(torch.rand(20, 5, 5, generator=generator) < 0.2) for _ in range(2)]
    combined = graph_overlap(similarity, *reachable, *lengths)
    for d, (n, m) in enumerate(zip(*(length.tolist() for length in lengths), strict=True)):
        single = graph_overlap(similarity[d, :n, :m], reachable[0][d, :n, :n], reachable[1][d, :m, :m])
        assert combined.value[d] == pytest.approx(float(single.value), rel=1e-12)


class Cells(TorchDispatchMode):
    """Dispatch mode that counts the cells of all tensors that are made, and of the largest."""

    def __init__(self) -> None:
        super().__init__()
        self.made = self.largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        returns = function._schema.returns
        if returns and returns[0].alias_info is None:  # neither views nor in-place operations
            for made in tree_leaves(result):
                if isinstance(made, Tensor):
                    self.made += made.numel()
                    self.largest = max(self.largest, made.numel())
        return result


def counted(run, *inputs) -> tuple[dict[str, float], Cells]:
    with Cells() as cells:
        metric = run(*inputs)
    return {key: float(value) for key, value in metric.compute().items()}, cells


def updated(make, update):
    def run(*inputs):
        metric = make()
        update(metric, *inputs)
        return metric

    return run


class Chain(list):
    """A graph: each node leads to the next."""

    def nodes(self) -> list[int]:
        return [*range(len(self))]

    def successors(self, node: int) -> list[int]:
        return [node + 1] if node + 1 < len(self) else []


@dataclass(frozen=True)
class Bound:
    source: Variable
    name: str


def numbers_of(draw: random.Random, size: int) -> list[int]:
    return [draw.randrange(9) for _ in range(size)]


def close(x: Tensor, y: Tensor) -> Tensor:
    return 1 - (x - y)[:, 0].abs() / 9


def family(metric) -> object:
    return updated(lambda: Family(metric, micro_average(["precision", "f1"])), Family.update)


LONG = {
    **{name: (updated(*OBJECTS[name][:2]), OBJECTS[name][2], 900) for name in ("strict", "partial", "type", "types")},
    "relations": (updated(*OBJECTS["relations"][:2]), relations, 2000),
    "events": (updated(*OBJECTS["events"][:2]), events, 400),
    "events by type": (updated(*OBJECTS["events by type"][:2]), events, 400),
    "coreference": (updated(*OBJECTS["coreference"][:2]), clusters, 900),
    "rankings": (updated(*OBJECTS["rankings"][:2]), ranked, 2000),
    "span errors": (lambda *pair: Errors(span_errors(*pair, "partial")), tags, 900),
    "Smatch": (updated(*OBJECTS["Smatch"][:2]), amr, 120),
    "sets by equality": (family(derive(list[int])), numbers_of, 2000),
    "sets of nested sets": (family(derive(list[Event])), events, 400),
    "sets without a key": (family(dsl.set_matching[int](dsl.tensor_func(close)[int])), numbers_of, 400),
    "sequences": (family(dsl.sequence_matching[int](...)), numbers_of, 400),
    "graphs": (family(dsl.graph_matching[int](...)), lambda draw, size: Chain([0] * size), 30),
    "latent sets": (
        family(dsl.latent_set_matching[Bound](...)),
        lambda draw, size: [Bound(Variable(f"v{n}"), draw.choice("abc")) for n in range(size)],
        60,
    ),
}


class Errors:
    def __init__(self, result: SpanErrors) -> None:
        self.result = result

    def compute(self) -> dict[str, int]:
        return {name: len(rows) for name, rows in self.result._asdict().items()}


@pytest.mark.parametrize("kind", LONG)
def test_long_document_in_a_batch_has_bounded_cost(kind):
    """The cost, in numbers written, is at most twice the sum of the separate costs."""
    run, one, size = LONG[kind]
    draw = random.Random(0)
    short = [[one(draw, 3) for _ in range(300)] for _ in range(2)]
    long = [[one(draw, size)] for _ in range(2)]
    combined, cells = counted(run, *(a + b for a, b in zip(short, long, strict=True)))
    single = [counted(run, *part)[1] for part in (short, long)]
    assert cells.made <= 2 * sum(part.made for part in single)
    assert cells.largest <= 2 * max(part.largest for part in single) + _lengths.SMALL_CELLS
    assert combined


def padded(rows: int, width: int, *tail: int) -> Tensor:
    """Random numbers of `rows` documents of 3 items and one of `width`; -1 in the padding."""
    draw = torch.Generator().manual_seed(0)
    table = torch.randint(0, 9, (rows + 1, width, *tail), generator=draw)
    table[:rows, 3:] = -1
    return table


PADDED = {
    "CorefScores": (CorefScores, 2, (), 1000),
    "ClusterMatchScores": (ClusterMatchScores, 2, (), 1000),
    "SpanScores": (lambda: SpanScores("partial"), 2, (3,), 500),
    "RelationScores": (RelationScores, 2, (3,), 1000),
    "RankingScores": (RankingScores, 2, (), 1000),
    "MultisetMatch": (MultisetMatch, 2, (), 1000),
    "BoxMatch": (lambda: BoxMatch(format="xywh"), 2, (4,), 300),
    "EventScores": (EventScores, 4, (3,), 200),
    "LatentMatch": (lambda: LatentMatch(solver="search"), 2, (2,), 60),
}


@pytest.mark.parametrize("name", PADDED)
def test_one_long_document_in_padded_tensors(name):
    """What is read over and over is trimmed; the padding itself is passed over a few times."""
    make, both, tail, width = PADDED[name]
    tables = [padded(1000, width, *tail) for _ in range(both)]
    if name == "EventScores":
        tables[2:] = [torch.cat([table, table[..., :1]], -1) for table in tables[2:]]
    if name == "LatentMatch":
        indices = torch.arange(width)[:, None] * torch.tensor([1, 0]) + tables[0].clamp(min=0) * torch.tensor([0, 1])
        tables = [indices, torch.tensor([True, False]).expand_as(indices)] * 2
    lengths = [] if name in ("CorefScores", "ClusterMatchScores") else [torch.tensor([3] * 1000 + [width])] * both

    def run(index: slice, stop: int) -> tuple[dict[str, float], Cells]:
        inputs = [table[index, :stop] for table in tables] + [length[index] for length in lengths]
        return counted(updated(make, lambda metric, *both: metric.update(*both)), *inputs)

    combined, single = run(slice(None), width)[1], [run(slice(1000), 3)[1], run(slice(1000, None), width)[1]]
    assert combined.made <= 2 * sum(part.made for part in single) + 6 * sum(table.numel() for table in tables)
    assert combined.largest <= 2 * max(*(part.largest for part in single), *(table.numel() for table in tables))


ranking = functools.partial(RankingScores, (1,))
AT = Mention(0, 0)


@pytest.mark.parametrize(
    ("make", "update", "inputs", "start"),
    [
        (SpanScores, "update_tags", ([["O"], ["O", "X-A"]], [["O"], ["O", "O"]]), "document 1, position 1: "),
        (CorefScores, "update_clusters", ([[], []], [[], [[[]]]]), "refs: document 1: "),
        (RelationScores, "update_relations", ([[], []], [[], [Relation("a", AT, None)]]), "refs[1].relations[0]: "),
        (RelationScores, "update_relations", ([[], [Relation([], AT, AT)]], [[], []]), "preds[1].relations[0]: "),
        (EventScores, "update_events", ([[], []], [[], [Event(Trigger(AT, "a"), [3])]]), "refs[1].events[0]: "),
        (
            EventScores,
            "update_events",
            ([[], [Event(Trigger(Mention(0, "x"), "a"), [])]], [[], []]),
            "preds[1].events[0]: ",
        ),
        (EventScores, "update_events", ([[], [Event(None, [])]], [[], []]), "preds[1].events[0]: "),
        (Smatch, "update", (["(a / b)", "(a / b)"], ["(a / b)", "(a /"]), "refs[1]: "),
        (ranking, "update_rankings", (dsl.ranking[9](dsl.discrete[int]), [[1], [[]]], [[1], [1]]), "preds[1][0]: "),
        (ranking, "update_rankings", (dsl.ranking[9](dsl.discrete[int]), [[1], [1]], [[1], 3]), "refs[1]: "),
    ],
)
def test_update_with_failing_document_names_it_and_counts_nothing(make, update, inputs, start):
    metric = make()
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(start)}"):
        getattr(metric, update)(*inputs)
    assert metric.update_count == 0 and not metric.sums.any()
