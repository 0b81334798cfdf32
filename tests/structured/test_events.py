"""Events, relations and their dataclasses: both entry points agree; errors."""

import random
from collections import Counter

import pytest
import torch

from tensormetrics.structured import (
    Argument,
    Event,
    EventScores,
    EventSet,
    Mention,
    MultisetMatch,
    Relation,
    RelationScores,
    RelationSet,
    Trigger,
    dsl,
)
from tensormetrics.structured.extend import Policy

FIRST, SECOND = Mention(0, 1), Mention(2, 3)


def some_events(draw: random.Random) -> EventSet:
    def mention() -> Mention:
        return Mention(draw.randrange(2), 2)

    return EventSet(
        [
            Event(
                Trigger(mention(), draw.choice("ab")),
                [Argument(mention(), draw.choice("xy")) for _ in range(draw.randrange(4))],
            )
            for _ in range(draw.randrange(5))
        ]
    )


@pytest.fixture
def documents() -> tuple[list[EventSet], list[EventSet]]:
    draw = random.Random(0)
    inputs = ([some_events(draw) for _ in range(40)] for _ in range(2))
    return tuple(inputs)


def sums(metric: EventScores, name: str) -> list[float]:
    """The summed overlaps that a metric holds of one of its parts."""
    metrics = ("trigger_identification", "trigger_classification", "argument_identification", "argument_classification")
    return metric.sums[:-1].view(4, 3)[metrics.index(name)].tolist()


@pytest.mark.parametrize("duplicates", ["multiset", "set", "set_cross"])
@pytest.mark.parametrize("empty", ["zero", "one"])
def test_dataclasses_give_the_same_overlaps(documents, empty, duplicates):
    policy = Policy(empty=empty, duplicates=duplicates)
    metric = EventScores(policy=policy)
    metric.update_events(*documents)
    argument = dsl.dataclass[Argument]({"mention": ...})
    event = dsl.dataclass[Event]({"trigger": ..., "args": dsl.set_matching[Argument](argument)})
    triggers = dsl.auto[list[Trigger]].contramap(lambda document: [event.trigger for event in document.events])
    spans = dsl.auto[list[Mention]].contramap(lambda document: [event.trigger.mention for event in document.events])
    for name, expected in (
        ("trigger_identification", spans),
        ("trigger_classification", triggers),
        ("argument_identification", dsl.dataclass[EventSet]({"events": dsl.set_matching[Event](event)})),
        ("argument_classification", EventSet.metric),
    ):
        overlap = expected.under(policy).overlap(*documents)
        assert sums(metric, name) == [float(part.sum()) for part in overlap[:3]], name


def test_arguments_linked_by_type_are_counted_over_the_document(documents):
    metric = EventScores(link="type")
    metric.update_events(*documents)
    for name, read in (
        ("argument_identification", lambda event, arg: (event.trigger.type, arg.mention)),
        ("argument_classification", lambda event, arg: (event.trigger.type, arg)),
    ):
        shared = pred = ref = 0
        for p, r in zip(*documents, strict=True):
            one, two = (Counter(read(e, a) for e in part.events for a in e.args) for part in (p, r))
            shared, pred, ref = shared + (one & two).total(), pred + one.total(), ref + two.total()
        assert sums(metric, name) == [shared, pred, ref]


@pytest.mark.parametrize("link", ["trigger", "type"])
def test_arguments_of_no_event_do_not_count(link, device):
    triggers = torch.tensor([[[0, 1, 1], [4, 6, 6]], [[3, 2, 2], [3, 6, 6]]])
    args = torch.tensor([[[-1, 0, 7, 7], [0, 0, 5, 5], [9, 0, 8, 8]], [[1, 0, 7, 7], [0, 0, 8, 8], [0, 1, 9, 9]]])
    triggers, args, one, two = (x.to(device) for x in (triggers, args, torch.tensor([1, 1]), torch.tensor([3, 2])))
    metric = EventScores(link=link).to(device)
    metric.update(triggers, triggers, args, args, one, one, two, two)
    assert sums(metric, "argument_identification") == sums(metric, "argument_classification") == [2, 2, 2]


def test_documents_without_triggers():
    empty = torch.zeros(2, 0, 3, dtype=torch.int64)
    args, none = torch.ones(2, 4, 4, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    for link in ("type", "trigger"):
        metric = EventScores(link)
        metric.update(empty, empty, args, args, n_pred_args=none, n_ref_args=none)
        assert not any(value for value in metric.compute().values())


def test_relation_scores_match_hand_computation():
    ours = [Relation("in", FIRST, SECOND), Relation("of", SECOND, FIRST), Relation("of", SECOND, FIRST)]
    theirs = [Relation("of", SECOND, FIRST), Relation("in", SECOND, FIRST)]
    metric = RelationScores(average="types", labels=("in", "of", "at"))
    metric.update_relations([RelationSet(ours), []], [theirs, theirs])
    assert {name: float(value) for name, value in metric.compute().items() if name.startswith("p")} == {
        "precision": 0.25,
        "precision[in]": 0,
        "precision[of]": 0.5,
        "precision[at]": 0,
    }
    baseline = RelationScores()
    baseline.update_relations([RelationSet(ours), []], [theirs, theirs])
    overlap = RelationSet.metric.overlap([RelationSet(ours), RelationSet([])], [RelationSet(theirs)] * 2)
    assert baseline.sums[:3].tolist() == [float(part.sum()) for part in overlap[:3]] == [1, 3, 4]


def test_relations_are_rows_that_are_equal(generator):
    inputs = [torch.randint(0, 2, (30, n, 5), generator=generator) for n in (6, 7)]
    lengths = [torch.randint(0, n + 1, (30,), generator=generator) for n in (6, 7)]
    ours, counted = RelationScores(), MultisetMatch(columns=True)
    for metric in (ours, counted):
        metric.update(*inputs, *lengths)
    assert ours.compute() == counted.compute()
