"""Full messages of errors of metrics, suites and readers."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from raising import raises

from tensormetrics.structured import (
    BoxMatch,
    CorefScores,
    EventScores,
    EventSet,
    Family,
    Mention,
    RankingScores,
    Relation,
    RelationScores,
    SequenceMatch,
    SetMatch,
    Smatch,
    SpanScores,
    derive,
    dsl,
    macro_average,
    metametric,
    micro_average,
    read_conll_coref,
    read_penman,
    read_triples,
    span_errors,
)
from tensormetrics.structured.extend import Path, Policy, Variable
from tensormetrics.structured.functional import normalize, set_overlap


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
GRAPH = "wanted PENMAN text, an AMR, Props or triples of three texts"
COLLECTION = "wanted a collection such as a list"


ZEROS = torch.zeros(2, 3)
MENTION = Mention(0, 1)
RELATION = Relation("a", MENTION, Mention(2, 3))


def read_lines(lines, **options):
    return list(read_conll_coref(lines, **options))


def labelled(metric, by):
    return Family(metric, micro_average(["f1"]), by=by)


TYPE_ERRORS = [
    (
        lambda: Doc.metric.score(Doc([GOOD.events[0], Event("a", None)]), GOOD),
        f"preds[0].events[1].args: got None of type NoneType, {COLLECTION}",
    ),
    (
        lambda: Doc.metric([GOOD, GOOD], [GOOD, Doc([Event("a", "text")])]),
        f"refs[1].events[0].args: got 'text' of type str, {COLLECTION}",
    ),
    (lambda: Doc.metric.score(GOOD, 3), "refs[0]: got 3 of type int, wanted Doc"),
    (lambda: Doc.metric.score(Doc([7]), GOOD), "preds[0].events[0]: got 7 of type int, wanted Event"),
    (
        lambda: derive(list[tuple[int, str]]).score([], [(1, "a"), (1, "a", 2)]),
        "refs[0][1]: got a tuple of 3, wanted one of 2",
    ),
    (
        lambda: derive(list[tuple[int, str]]).score([{1: "a"}], []),
        "preds[0][0]: got {1: 'a'} of type dict, wanted tuple",
    ),
    (lambda: derive(dict[str, list[int]]).score({"a": 1}, {}), f"preds[0][0].value: got 1 of type int, {COLLECTION}"),
    (lambda: derive(list[int | None]).score([1, "a"], []), "preds[0][1]: got 'a' of type str, wanted int | None"),
    (
        lambda: dsl.set_matching[list](dsl.discrete[list]).score([], ["a", ["b"]]),
        "refs[0][1]: got an unhashable list, wanted a hashable value; "
        "give its field a similarity function by Annotated[..., dsl.from_func(f)]",
    ),
    (
        lambda: derive(tuple[Fact, list[Fact]]).node(),
        "tuple[test_structured_errors.Fact, list[test_structured_errors.Fact]]: got variables both inside and outside "
        "of a collection; wrap the latter in a collection",
    ),
    (
        lambda: dsl.sequence_matching[Fact](...).score([], []),
        "inner: got items that hold variables; wanted latent_set_matching for them",
    ),
    (
        lambda: derive(list[tuple[Variable, int]]).score([("x", 1)], []),
        "preds[0][0][0]: got 'x' of type str, wanted Variable",
    ),
    (
        lambda: dsl.graph_matching[int](...).score(7, 7),
        "preds[0]: got 7 of type int, wanted a graph with nodes() and successors(node)",
    ),
    (
        lambda: dsl.tensor_func(min)[Named].score(Named("a"), Named("b")),
        "Named.name: got the type str, wanted numbers, or records of them, for tensor_func",
    ),
    (lambda: dsl.dataclass[int], "dataclass: got int, wanted a dataclass or another class with fields"),
    (lambda: dsl.union[int], "union: got int, wanted a union such as int | str"),
    (
        lambda: dsl.set_matching[int](int),
        "inner: got <class 'int'>, wanted a metric such as dsl.auto[...], or ... to derive it",
    ),
    (
        lambda: Family(Doc.metric, ["f1"]),
        "reduction '': got ['f1'], wanted micro_average([...]) or macro_average([...])",
    ),
    (
        lambda: Family(Doc, micro_average(["f1"])),
        "metric: got <class 'test_structured_errors.Doc'>, wanted the metric of a class, such as Document.metric",
    ),
    (lambda: micro_average("f1"), "normalizers: got 'f1', wanted a list such as ['f1']"),
    (
        lambda: Doc.metric.compute(GOOD, GOOD)[1].run_with_hooks({"events": 3}),
        "hooks['events']: got 3, wanted a function; hooks with on_match derive from "
        "tensormetrics.compat.metametric.Hook",
    ),
    (
        lambda: RelationScores().update_relations([[RELATION], [RELATION, 3]], [[], []]),
        "preds[1].relations[1]: got 3 of type int, wanted Relation",
    ),
    (
        lambda: CorefScores().update_clusters([[], None], [[], []]),
        "preds: document 1: got None, wanted a collection of clusters",
    ),
    (lambda: EventScores().update_events([[]], [3]), "refs[0]: got 3, wanted a collection of Events"),
    (
        lambda: EventScores().update_events([[]], [EventSet([RELATION])]),
        f"refs[0].events[0]: got {RELATION!r:.60} of type Relation, wanted Event",
    ),
    (lambda: SetMatch(scores="f1"), "scores: got 'f1', wanted a list such as ['f1']"),
    (
        lambda: SpanScores().update({1}, {1}),
        "pred_spans: got a set, wanted a tensor of rows (label, first, last), or lists of tags as both arguments",
    ),
    (
        lambda: CorefScores().update({1}, {1}),
        "pred_ids: got a set, wanted a tensor of the numbers of clusters, or lists of clusters as both arguments",
    ),
    (
        lambda: SpanScores().update_tags(["B-PER", "O"], ["B-PER", "O"]),
        "document 0: got the text 'B-PER', wanted a list of tags; write [tags]",
    ),
    (
        lambda: SpanScores().update_tags("O", "O"),
        "pred: got 'O', wanted a list of documents, lists of tags, or the path of a file",
    ),
    (lambda: SpanScores().update_tags([3], [["O"]]), "document 0: got 3, wanted a list of tags"),
    (lambda: read_penman(b"(a / b)"), "text: got bytes, wanted a str; write text.decode() for bytes"),
    (lambda: Smatch().update(b"(a)", [[]]), "preds: got a bytes, wanted a list of graphs; write [preds]"),
    (lambda: Smatch().update([b"(a)"], [[]]), "preds[0]: got bytes, wanted PENMAN text; write graph.decode()"),
    (lambda: read_lines("#begin document a"), "lines: got one str, wanted lines; write text.splitlines()"),
    (lambda: read_lines([b"#begin"]), "line 1: got b'#begin', wanted text; open files without 'b' in their mode"),
    (lambda: Smatch().update("(a / b)", ["(a / b)"]), "preds: got a str, wanted a list of graphs; write [preds]"),
    (lambda: Smatch().update([3], [[]]), f"preds[0]: got 3, {GRAPH}"),
    (lambda: Smatch().update([[("a", "b")]], [[]]), f"preds[0]: got ('a', 'b'), {GRAPH}"),
    (lambda: Smatch().update([["(a / b)"]], [[]]), f"preds[0]: got '(a / b)', {GRAPH}"),
    (lambda: read_triples([("a", "quant", 5)]), "triples: got the target 5, wanted a text such as '5'"),
    (lambda: read_triples([("a", None, "b")]), "triples: got ('a', None, 'b'), wanted a text as role"),
    *(
        (call, "preds: got a generator, wanted a list; write list(preds)")
        for call in (
            lambda: Smatch().update((x for x in []), []),
            lambda: CorefScores().update_clusters((x for x in []), []),
            lambda: Family(derive(list[int]), micro_average(["f1"])).update((x for x in []), []),
            lambda: derive(list[int])((x for x in []), []),
        )
    ),
]
VALUE_ERRORS = [
    (lambda: labelled(Doc.metric, "name"), "by: got 'name', which has no part 'name' that is compared"),
    (lambda: labelled(Doc.metric, "args"), "by: got 'args', which is no scalar that is compared by =="),
    (
        lambda: labelled(derive(Event), "kind"),
        "by: got a metric of another type, wanted the metric of one collection of items",
    ),
    (lambda: Smatch(top="root"), "top: got 'root', wanted one of True, False, 'concept'"),
    (lambda: derive(list[str]).score([], ["a", ["b"]]), "refs[0][1]: got ['b'], wanted str"),
    (lambda: derive(dict[str, int]).score({"a": True}, {"a": 1}), "preds[0][0].value: got True, wanted int"),
    (lambda: derive(list[float]).score([1.0], [2.0, math.nan]), "refs[0][1]: got nan, wanted float"),
    (lambda: derive(list[float]).score([1.0], [np.float32("nan")]), "refs[0][0]: got np.float32(nan), wanted float"),
    (
        lambda: derive(list[int]).score([1, torch.tensor(2)], [1]),
        "preds[0][1]: got tensor(2), wanted int; write .item(), or .tolist()",
    ),
    (lambda: Doc.metric([GOOD], []), "lengths differ: preds has 1, refs has 0"),
    (lambda: GOOD.metric.score_self(GOOD, "left"), "side: got 'left', wanted 'pred' or 'ref'"),
    (
        lambda: NAN.score([1], [2, 3]),
        "from_func: got nan for preds[0][0] and refs[0][0], wanted a number below infinity",
    ),
    (
        lambda: ODD.score([1], [2]),
        "from_func: got [1, 2] for preds[0][0] and refs[0][0], wanted a number below infinity",
    ),
    (
        lambda: WIDE.score([Span(0, 1)], [Span(0, 1), Span(1, 2)]),
        "tensor_func: got shape (2, 2) for 2 pairs, wanted a tensor of shape (2,)",
    ),
    (
        lambda: INF.score([Span(0, 1)], [Span(0, 1)]),
        "tensor_func: got nan for preds[0][0] and refs[0][0], wanted a number below infinity",
    ),
    (
        lambda: POLE.score([Span(2, 0), Span(1, 0)], [Span(0, 0), Span(3, 0), Span(1, 0)]),
        "tensor_func: got inf for preds[0][1] and refs[0][2], wanted a number below infinity",
    ),
    (
        lambda: POLE([[Span(2, 0), Span(1, 0)], []], [[Span(1, 0)], [Span(1, 0)]]),
        "tensor_func: got inf for preds[0][1] and refs[0][0], wanted a number below infinity",
    ),
    (lambda: WIDE.score([], [Span(0, None)]), "refs[0][0].right: got None, wanted a number"),
    (lambda: WIDE.score([Span(0, 1)], [Span(0, math.nan)]), "refs[0][0].right: got nan, wanted a number"),
    (
        lambda: dsl.dataclass[Event]({"kind": ..., "roles": ...}),
        "dataclass: got the field 'roles', wanted one of kind, args",
    ),
    (lambda: dsl.union[int | str]({int: ...}), "union: got the cases int, wanted int, str"),
    (
        lambda: Family(dsl.sequence_matching[int](...), macro_average(["f1"]), duplicates="set").update([[]], [[]]),
        "duplicates: got 'set' for a sequence, whose equal items have different positions; wanted 'multiset'; "
        "write a separate dataclass with @metametric(duplicates='multiset')",
    ),
    (
        lambda: SequenceMatch(duplicates="set"),
        "duplicates: got 'set' for similarities, which do not define equal items; wanted 'multiset'",
    ),
    (
        lambda: dsl.graph_matching[str](...).score(Graph({"a": ["b"]}), Graph({})),
        "preds[0]: got an edge from 'a' to 'b', which is not among its nodes()",
    ),
    (
        lambda: Path.parse("a.b[x]"),
        "path: got 'a.b[x]', which cannot be read at position 3; wanted a path such as a.b[1].c",
    ),
    (lambda: SpanScores(average="types"), "labels: got None with average='types', wanted the names of the labels"),
    (
        lambda: SpanScores("exact", labels=["a"]),
        "labels: got ['a'] with scheme='exact', which ignores labels; leave them out",
    ),
    (lambda: SpanScores().update_tags([["O"]], [["O", "O"]]), "document 0: lengths differ: pred has 1 tags, ref has 2"),
    (lambda: SpanScores().update_tags([["O"]], []), "lengths differ: pred has 1, ref has 0"),
    (
        lambda: SpanScores().update_tags(torch.zeros(1, 3).long(), torch.zeros(1, 3).long()),
        "vocabulary: got None for numbers of tags, wanted the tags that they stand for",
    ),
    (lambda: BoxMatch(50), "threshold: got 50, wanted a number in [0, 1], or several"),
    (
        lambda: BoxMatch().update(*[torch.tensor([[1.0, 1, 5, 5], [50, 60, 20, 20]])] * 2),
        "pred_boxes: got [50.0, 60.0, 20.0, 20.0], wanted x1, y1, x2, y2 with x1 <= x2 and y1 <= y2; "
        "this looks like x, y, width, height: write format='xywh'",
    ),
    (
        lambda: BoxMatch(format="xywh").update(torch.zeros(1, 4), torch.tensor([[0, 0, 1, -1]])),
        "ref_boxes: got [0, 0, 1, -1], wanted xywh with widths and heights >= 0",
    ),
    (lambda: BoxMatch((0.5, "x")), "threshold: got 'x', wanted a number in [0, 1], or several"),
    (
        lambda: BoxMatch().update(torch.zeros(1, 4), torch.zeros(1, 4), pred_labels=torch.zeros(1).long()),
        "pred_labels, ref_labels: got one of them, wanted both or neither",
    ),
    (
        lambda: SpanScores().update_tags(torch.zeros(3).long(), torch.zeros(3).long(), vocabulary=["O", "Q-b"]),
        "vocabulary[1]: got tag 'Q-b', wanted 'O', or a prefix of B, I, M, E, L, S, U, a dash and a label",
    ),
    (
        lambda: RankingScores(scores=("map",)),
        "scores: got 'map', wanted one of 'precision', 'recall', 'hit', 'ap', 'ndcg', 'r_precision', 'rr'",
    ),
    (lambda: EventScores("role"), "link: got 'role', wanted one of 'trigger', 'type'"),
    (
        lambda: RelationScores(labels=["in"]).update_relations([[Relation("of", MENTION, MENTION)]], [[]]),
        "labels: got relations of ['of'], wanted some of ('in',)",
    ),
    (
        lambda: set_overlap(ZEROS, constraint="~", return_pairs=True),
        "return_pairs: got '~', under which an item has many partners; compare similarity > 0 instead",
    ),
    (lambda: SetMatch("~").update(ZEROS), "pred_self, ref_self: got None under '~', wanted the self-overlaps"),
    (lambda: Policy.parse("strict"), "policy: got 'strict', wanted one of 'conventional', 'agree', 'metametric'"),
    (
        lambda: normalize(ZEROS, ZEROS, ZEROS, "p", "never"),
        "zero_division: got 'never', wanted a number, 'agree' or 'metametric'",
    ),
    (lambda: set_overlap(torch.zeros(3)), "similarity: got shape (3,), wanted (..., N, M)"),
    (
        lambda: set_overlap(ZEROS, constraint=["->"]),
        "constraint: got ['->'], wanted one of '<->', '->', '<-', '~', '1:1', '1:*', '*:1', '*:*'",
    ),
    (
        lambda: normalize(ZEROS, ZEROS, ZEROS, ["f1"]),
        "normalizer: got ['f1'], wanted one of 'none', 'precision', 'p', 'recall', 'r', 'jaccard', 'j', 'dice', "
        "'f', or 'f' and a positive number such as 'f0.5'",
    ),
    (lambda: span_errors([["O"]], [[("A", 0, 0)]]), "pred: got tags and ref spans, wanted the same form in both"),
    (
        lambda: span_errors([[], [("A", 0, 0), ("A", 3, 2)]], [[], []]),
        "pred: document 1, span 1: got ('A', 3, 2), wanted (label, first, last) with first <= last, such as "
        "('PER', 0, 1)",
    ),
    (
        lambda: span_errors([[]], [[(0, 0, 1)]]),
        "ref: document 0, span 0: got (0, 0, 1), wanted (label, first, last) with first <= last, such as ('PER', 0, 1)",
    ),
    (lambda: span_errors([[]], [[("A", 0, 1)], []]), "lengths differ: pred has 1, ref has 2"),
    (
        lambda: span_errors([[]], [[("A", 0, 1)]], mode="iob2"),
        "got mode='iob2' and suffix=False with spans, wanted tags, or neither of the two",
    ),
]


@pytest.mark.parametrize(
    ("kind", "call", "message"),
    [*((TypeError, *row) for row in TYPE_ERRORS), *((ValueError, *row) for row in VALUE_ERRORS)],
)
def test_errors_have_exact_messages(kind, call, message):
    with raises(kind, message):
        call()
