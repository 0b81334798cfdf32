"""Documents of unequal size: whatever stands together, each counts as it does alone, and little is padded."""

import random

import pytest
import torch
from cases.structured import METRICS
from torch import Tensor

from tensormetrics.structured import (
    Argument,
    CorefScores,
    Event,
    EventScores,
    Mention,
    RankingScores,
    Relation,
    RelationScores,
    SpanScores,
    Trigger,
    dsl,
    graph_overlap,
    reachability,
)
from tensormetrics.structured.tensors import _lengths

RAGGED = ("SetMatch", "SequenceMatch", "MultisetMatch", "RankingScores", "BoxMatch", "SpanScores", "RelationScores")
RAGGED += ("EventScores", "CorefScores", "ClusterAccuracy")


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
    found: dict[int, list[int]] = {}
    for mention in draw.sample(range(2 * size), size):
        found.setdefault(draw.randrange(size), []).append(mention)
    return list(found.values())


def ranked(draw: random.Random, size: int) -> list[int]:
    return draw.sample(range(2 * size + 1), size)


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
}


@pytest.fixture(params=[None, 1, 40])
def cells(request, monkeypatch):
    """Chunks as they are; of one document; of a few."""
    if request.param is not None:
        monkeypatch.setattr(_lengths, "FEW_CELLS", 0)
        monkeypatch.setattr(_lengths, "CELLS", request.param)


@pytest.mark.parametrize("kind", OBJECTS)
def test_objects_count_as_they_do_alone(kind, cells):
    make, update, one = OBJECTS[kind]
    draw = random.Random(0)
    sizes = sizes_of(draw, 40)
    sides = [[one(draw, size) for size in sizes] for _ in range(2)]
    together, alone = make(), make()
    update(together, *sides)
    for pred, ref in zip(*sides, strict=True):
        update(alone, [pred], [ref])
    assert together.update_count == 1
    assert {k: float(v) for k, v in together.compute().items()} == pytest.approx(
        {k: float(v) for k, v in alone.compute().items()}, rel=1e-12, nan_ok=True
    )


@pytest.mark.parametrize("name", RAGGED)
def test_tensors_count_as_they_do_alone(name, cells, generator):
    inputs = METRICS[f"{name}"].inputs(generator, 30)
    together, alone = METRICS[name].make(), METRICS[name].make()
    together.update(*inputs)
    for document in zip(*(tensor.split(1) for tensor in inputs), strict=True):
        alone.update(*document)
    for key, value in together.compute().items():
        assert float(value) == pytest.approx(float(alone.compute()[key]), rel=1e-12)


def test_graphs_count_as_they_do_alone(cells, generator):
    lengths = [torch.randint(0, 6, (20,), generator=generator) for _ in range(2)]
    similarity = torch.rand(20, 5, 5, generator=generator, dtype=torch.float64)
    reach = [reachability(torch.rand(20, 5, 5, generator=generator) < 0.2) for _ in range(2)]
    together = graph_overlap(similarity, *reach, *lengths)
    for d, (n, m) in enumerate(zip(*(length.tolist() for length in lengths), strict=True)):
        alone = graph_overlap(similarity[d, :n, :m], reach[0][d, :n, :n], reach[1][d, :m, :m])
        assert together.value[d] == pytest.approx(float(alone.value), rel=1e-12)


def test_values_return_to_the_order_of_the_documents(monkeypatch):
    monkeypatch.setattr(_lengths, "FEW_CELLS", 0)
    lengths = torch.tensor([3, 900, 0, 1, 2, 3, 60, 900, 5])
    flat = torch.arange(int(lengths.sum()))
    sums = _lengths.in_chunks(lambda x, y, n, m: (x * (torch.arange(x.shape[1]) < n[:, None])).sum(-1, keepdim=True),
                             (flat, flat), (lengths, lengths), flat=True)  # fmt: skip
    assert sums[:, 0].tolist() == [int(part.sum()) for part in flat.split(lengths.tolist())]


def test_padding_is_bounded():
    lengths = torch.cat([torch.randint(0, 9, (3000,)), torch.tensor([3000, 2000, 70])])
    seen, padded = [], 0
    for place, (n, m) in _lengths.cuts((lengths, lengths.flip(0)), (3000, 3000)):
        chunk = torch.arange(len(lengths))[place]
        assert n == lengths[chunk].max() and m == lengths.flip(0)[chunk].max()
        assert len(chunk) == 1 or len(chunk) * n * m <= _lengths.CELLS
        padded += len(chunk) * n * m
        seen += chunk.tolist()
    assert sorted(seen) == [*range(len(lengths))]
    assert padded < 10 * int((lengths * lengths.flip(0)).sum()) + _lengths.FEW_CELLS


LONG = {
    "strict": (tags, 3000),
    "partial": (tags, 3000),
    "relations": (relations, 3000),
    "events": (events, 700),
    "coreference": (clusters, 2000),
}


@pytest.mark.parametrize("kind", LONG)
def test_one_long_document_among_many_short_ones(kind, monkeypatch):
    """Padded to the longest, these would be tables of 10^9 cells and more."""
    make, update, _ = OBJECTS[kind]
    one, size = LONG[kind]
    draw = random.Random(0)
    sides = [[one(draw, 3) for _ in range(3000)] + [one(draw, size)] for _ in range(2)]
    largest = 0
    taken = _lengths._taken

    def watched(*arguments: object) -> Tensor:
        nonlocal largest
        table = taken(*arguments)
        largest = max(largest, table.numel())
        return table

    monkeypatch.setattr(_lengths, "_taken", watched)
    metric = make()
    update(metric, *sides)
    parts = [make(), make()]
    update(parts[0], *(side[:-1] for side in sides))
    update(parts[1], *(side[-1:] for side in sides))
    parts[0].merge_state(parts[1])
    assert largest < 200_000
    assert {k: float(v) for k, v in metric.compute().items()} == pytest.approx(
        {k: float(v) for k, v in parts[0].compute().items()}, rel=1e-9
    )


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda: SpanScores(), ("update_tags", [["O"], ["O", "X-A"]], [["O"], ["O", "O"]], "document 1, position 1: ")),
        (lambda: CorefScores(), ("update_clusters", [[], [["a"], ["a"]]], [[], []], "preds: document 1: ")),
        (lambda: RelationScores(), ("update_relations", [[], [3]], [[], []], "preds[1].relations[0]: ")),
        (lambda: EventScores(), ("update_events", [[], []], [[], [3]], "refs[1].events[0]: ")),
    ],
)
def test_a_document_that_fails_is_named_and_nothing_is_counted(call, where):
    metric, (name, preds, refs, start) = call(), where
    update = getattr(metric, name)
    with pytest.raises((ValueError, TypeError)) as error:
        update(preds, refs)
    assert str(error.value).startswith(start)
    assert metric.update_count == 0 and not metric.sums.any()
