"""Full error messages of metrics of objects."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from tensormetrics.structured import (
    Family,
    Path,
    SequenceMatch,
    Suite,
    Variable,
    derive,
    dsl,
    macro_average,
    metametric,
    micro_average,
)


@dataclass
class Event:
    kind: str
    args: list[str]


@metametric(normalizer="f1")
@dataclass
class Doc:
    events: list[Event]


@dataclass
class Span:
    left: int
    right: float


@dataclass
class Fact:
    subject: Variable | str
    verb: str


@dataclass
class Named:
    name: str


class Graph(dict):
    nodes, successors = dict.keys, dict.get


GOOD = Doc([Event("a", ["x"])])
ODD = dsl.set_matching[int](dsl.from_func(lambda x, y: [x, y]))
NAN = dsl.set_matching[int](dsl.from_func(lambda x, y: math.nan))
WIDE = dsl.set_matching[Span](dsl.tensor_func(lambda x, y: x)[Span])
INF = dsl.set_matching[Span](dsl.tensor_func(lambda x, y: x[:, 0] / 0)[Span])
POLE = dsl.set_matching[Span](dsl.tensor_func(lambda x, y: (1 / (x - y).abs())[:, 0])[Span])
COLLECTION = "wanted a collection such as a list"


@pytest.mark.parametrize(
    ("kind", "call", "message"),
    [
        (
            TypeError,
            lambda: Doc.metric.score(Doc([GOOD.events[0], Event("a", None)]), GOOD),
            f"preds[0].events[1].args: got None of type NoneType, {COLLECTION}",
        ),
        (
            TypeError,
            lambda: Doc.metric([GOOD, GOOD], [GOOD, Doc([Event("a", "text")])]),
            f"refs[1].events[0].args: got 'text' of type str, {COLLECTION}",
        ),
        (TypeError, lambda: Doc.metric.score(GOOD, 3), "refs[0]: got 3 of type int, wanted Doc"),
        (
            TypeError,
            lambda: Doc.metric.score(Doc([7]), GOOD),
            "preds[0].events[0]: got 7 of type int, wanted Event",
        ),
        (
            TypeError,
            lambda: derive(list[tuple[int, str]]).score([], [(1, "a"), (1, "a", 2)]),
            "refs[0][1]: got a tuple of 3, wanted one of 2",
        ),
        (
            TypeError,
            lambda: derive(list[tuple[int, str]]).score([{1: "a"}], []),
            "preds[0][0]: got {1: 'a'} of type dict, wanted tuple",
        ),
        (
            TypeError,
            lambda: derive(dict[str, list[int]]).score({"a": 1}, {}),
            f"preds[0][0].value: got 1 of type int, {COLLECTION}",
        ),
        (
            TypeError,
            lambda: derive(list[int | None]).score([1, "a"], []),
            "preds[0][1]: got 'a' of type str, wanted int | None",
        ),
        (
            TypeError,
            lambda: dsl.set_matching[list](dsl.discrete[list]).score([], ["a", ["b"]]),
            "refs[0][1]: got an unhashable list, wanted a hashable value; "
            "give its field a similarity function by Annotated[..., dsl.from_func(f)]",
        ),
        (
            ValueError,
            lambda: derive(list[str]).score([], ["a", ["b"]]),
            "refs[0][1]: got ['b'], wanted str",
        ),
        (
            ValueError,
            lambda: derive(dict[str, int]).score({"a": True}, {"a": 1}),
            "preds[0][0].value: got True, wanted int",
        ),
        (
            ValueError,
            lambda: derive(list[float]).score([1.0], [2.0, math.nan]),
            "refs[0][1]: got nan, wanted float",
        ),
        (
            ValueError,
            lambda: derive(list[float]).score([1.0], [np.float32("nan")]),
            "refs[0][0]: got np.float32(nan), wanted float",
        ),
        (
            ValueError,
            lambda: derive(list[int]).score([1, torch.tensor(2)], [1]),
            "preds[0][1]: got tensor(2), wanted int; write .item(), or .tolist()",
        ),
        (ValueError, lambda: Doc.metric([GOOD], []), "lengths differ: preds has 1, refs has 0"),
        (ValueError, lambda: GOOD.metric.score_self(GOOD, "left"), "side: got 'left', wanted 'pred' or 'ref'"),
        (
            ValueError,
            lambda: NAN.score([1], [2, 3]),
            "from_func: got nan for preds[0][0] and refs[0][0], wanted a number below infinity",
        ),
        (
            ValueError,
            lambda: ODD.score([1], [2]),
            "from_func: got [1, 2] for preds[0][0] and refs[0][0], wanted a number below infinity",
        ),
        (
            ValueError,
            lambda: WIDE.score([Span(0, 1)], [Span(0, 1), Span(1, 2)]),
            "tensor_func: got shape (2, 2) for 2 pairs, wanted a tensor of shape (2,)",
        ),
        (
            ValueError,
            lambda: INF.score([Span(0, 1)], [Span(0, 1)]),
            "tensor_func: got nan for preds[0][0] and refs[0][0], wanted a number below infinity",
        ),
        (
            ValueError,
            lambda: INF.score([Span(0, 1), Span(1, 1)], [Span(0, 1)] * 3),
            "tensor_func: got nan for preds[0][0] and refs[0][0], wanted a number below infinity",
        ),
        (
            ValueError,
            lambda: POLE.score([Span(2, 0), Span(1, 0)], [Span(0, 0), Span(3, 0), Span(1, 0)]),
            "tensor_func: got inf for preds[0][1] and refs[0][2], wanted a number below infinity",
        ),
        (
            ValueError,
            lambda: POLE([[Span(2, 0), Span(1, 0)], []], [[Span(1, 0)], [Span(1, 0)]]),
            "tensor_func: got inf for preds[0][1] and refs[0][0], wanted a number below infinity",
        ),
        (
            ValueError,
            lambda: WIDE.score([], [Span(0, None)]),
            "refs[0][0].right: got None, wanted a number",
        ),
        (
            ValueError,
            lambda: WIDE.score([Span(0, 1)], [Span(0, math.nan)]),
            "refs[0][0].right: got nan, wanted a number",
        ),
        (
            TypeError,
            lambda: derive(tuple[Fact, list[Fact]]).node(),
            "tuple[test_object_errors.Fact, list[test_object_errors.Fact]]: got variables both inside and outside of "
            "a collection; wrap the latter in a collection",
        ),
        (
            TypeError,
            lambda: dsl.sequence_matching[Fact](...).score([], []),
            "inner: got items that hold variables; wanted latent_set_matching for them",
        ),
        (
            TypeError,
            lambda: derive(list[tuple[Variable, int]]).score([("x", 1)], []),
            "preds[0][0][0]: got 'x' of type str, wanted Variable",
        ),
        (
            TypeError,
            lambda: dsl.graph_matching[int](...).score(7, 7),
            "preds[0]: got 7 of type int, wanted a graph with nodes() and successors(node)",
        ),
        (
            TypeError,
            lambda: dsl.tensor_func(min)[Named].score(Named("a"), Named("b")),
            "Named.name: got the type str, wanted numbers, or records of them, for tensor_func",
        ),
        (
            ValueError,
            lambda: dsl.dataclass[Event]({"kind": ..., "roles": ...}),
            "dataclass: got the field 'roles', wanted one of kind, args",
        ),
        (TypeError, lambda: dsl.dataclass[int], "dataclass: got int, wanted a dataclass or another class with fields"),
        (ValueError, lambda: dsl.union[int | str]({int: ...}), "union: got the cases int, wanted int, str"),
        (TypeError, lambda: dsl.union[int], "union: got int, wanted a union such as int | str"),
        (
            TypeError,
            lambda: dsl.set_matching[int](int),
            "inner: got <class 'int'>, wanted a metric such as dsl.auto[...], or ... to derive it",
        ),
        (
            ValueError,
            lambda: dsl.set_matching[int, "<=>"](...),
            "constraint: got '<=>', wanted one of '<->', '->', '<-', '~', '1:1', '1:*', '*:1', '*:*'",
        ),
        (
            ValueError,
            lambda: metametric(normalizer="F1"),
            "normalizer: got 'F1', wanted one of 'none', 'precision', 'p', 'recall', 'r', 'jaccard', 'j', 'dice', 'f', "
            "or 'f' and a positive number such as 'f0.5'",
        ),
        (
            ValueError,
            lambda: Family(dsl.sequence_matching[int](...), macro_average(["f1"]), duplicates="set").update([[]], [[]]),
            "duplicates: got 'set' for a sequence, whose equal items have different positions; wanted 'multiset'; "
            "write a separate dataclass with @metametric(duplicates='multiset')",
        ),
        (
            ValueError,
            lambda: Family(dsl.graph_matching[int](...), macro_average(["f1"]), duplicates="set").update([], []),
            "duplicates: got 'set' for a graph, whose equal items have different positions; wanted 'multiset'; "
            "write a separate dataclass with @metametric(duplicates='multiset')",
        ),
        (
            ValueError,
            lambda: SequenceMatch(duplicates="set"),
            "duplicates: got 'set' for similarities, which do not define equal items; wanted 'multiset'",
        ),
        (
            ValueError,
            lambda: metametric(policy="strict"),
            "policy: got 'strict', wanted one of 'conventional', 'agree', 'metametric'",
        ),
        (
            TypeError,
            lambda: Family(Doc.metric, ["f1"]),
            "reduction '': got ['f1'], wanted micro_average([...]) or macro_average([...])",
        ),
        (
            TypeError,
            lambda: Family(Doc, micro_average(["f1"])),
            "metric: got <class 'test_object_errors.Doc'>, wanted the metric of a class, such as Document.metric",
        ),
        (TypeError, lambda: micro_average("f1"), "normalizers: got 'f1', wanted a list such as ['f1']"),
        (
            TypeError,
            lambda: Suite({"a": Doc.metric}),
            "member 'a': got a StructuredMetric, wanted a Family or a Suite",
        ),
        (
            ValueError,
            lambda: dsl.graph_matching[str](...).score(Graph({"a": ["b"]}), Graph({})),
            "preds[0]: got an edge from 'a' to 'b', which is not among its nodes()",
        ),
        (
            ValueError,
            lambda: Family(Doc.metric, macro_average(["f1"])).update([GOOD], []),
            "lengths differ: preds has 1, refs has 0",
        ),
        (
            ValueError,
            lambda: Suite({"a": Family(Doc.metric, micro_average(["f1"]))}).update([], [GOOD]),
            "lengths differ: preds has 0, refs has 1",
        ),
        (
            TypeError,
            lambda: Doc.metric.compute(GOOD, GOOD)[1].run_with_hooks({"events": 3}),
            "hooks['events']: got 3, wanted a function; hooks with on_match derive from "
            "tensormetrics.compat.metametric.Hook",
        ),
        (
            ValueError,
            lambda: Path.parse("a.b[x]"),
            "path: got 'a.b[x]', which cannot be read at position 3; wanted a path such as a.b[1].c",
        ),
        (
            ValueError,
            lambda: Path.parse(""),
            "path: got '', which cannot be read at position 0; wanted a path such as a.b[1].c",
        ),
        (
            ValueError,
            lambda: Path.parse("a..b"),
            "path: got 'a..b', which cannot be read at position 1; wanted a path such as a.b[1].c",
        ),
    ],
)
def test_object_errors_have_exact_messages(kind, call, message):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message


def test_errors_keep_the_state_unchanged():
    family = Family(Doc.metric, micro_average(["f1"]))
    family.update([GOOD], [GOOD])
    with pytest.raises(TypeError):
        family.update([GOOD, 3], [GOOD, GOOD])
    assert family.documents == 1 and torch.equal(family.compute()["f1"], torch.tensor(1.0, dtype=torch.float64))
