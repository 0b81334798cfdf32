"""Objects with variables and graphs of objects: golden values, enumeration, matches."""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from object_oracle import heaviest_relation

from tensormetrics.structured import derive, dsl, metametric
from tensormetrics.structured.extend import Policy, Variable
from tensormetrics.structured.functional import latent_overlap
from tensormetrics.structured.objects.nodes import latent

GOLDEN = json.loads((Path(__file__).parent / "golden_door.json").read_text())
CONSTRAINTS = ("<->", "->", "<-", "~")


@metametric
@dataclass(frozen=True)
class Fact:
    subject: Variable | str
    verb: str
    object: Variable | str


@metametric(normalizer="f1")
@dataclass
class Story:
    facts: list[Fact]


def facts(rows):
    return [Fact(*(Variable(entry[1]) if isinstance(entry, list) else entry for entry in row)) for row in rows]


@pytest.mark.parametrize("case", GOLDEN["latent"], ids=lambda case: case["id"])
def test_latent_metric_golden_cases_match(case):
    pred, ref = facts(case["input"]["pred"]), facts(case["input"]["ref"])
    for constraint, expected in case["output"].items():
        metric = derive(list[Fact], constraint=constraint)
        overlap = metric.overlap([pred], [ref])
        assert [part.item() for part in overlap[:3]] == [expected[k] for k in ("overlap", "pred_self", "ref_self")]
        assert overlap.exact.item() and overlap.bound.item() == expected["overlap"]
        score, matching = metric.compute(pred, ref)
        pairs = [match for match in matching if len(match.pred_path) == 1]
        assert score == expected["overlap"] == sum(match.score for match in pairs)
        check_mapping((v, w) for m in pairs for v, w in zip(variables(m.pred), variables(m.ref), strict=True))


def variables(fact):
    return [entry for entry in (fact.subject, fact.object) if isinstance(entry, Variable)]


def check_mapping(pairs):
    pairs = set(pairs)
    assert len(pairs) == len({v for v, _ in pairs}) == len({w for _, w in pairs})


def test_metric_attribute_name_is_configurable():
    assert "metric" not in vars(Fact)
    assert Fact.latent_metric.score(*facts([[["?", "a"], "r", "s"], [["?", "b"], "r", "s"]])) == 1.0
    assert Fact.latent_metric.score(*facts([[["?", "a"], "r", "s"], ["a", "r", "s"]])) == 0.0
    pred = facts([[["?", "a"], "r", ["?", "a"]], ["k", "r", "s"]])
    assert Story.metric.score(Story(pred), Story(facts([[["?", "x"], "r", ["?", "y"]], ["k", "r", "s"]]))) == 0.5


def test_variables_below_the_first_level_constrain_too():
    @dataclass
    class Outer:
        fact: Fact

    x, y = ([Outer(f) for f in facts([[["?", n], "r", "s"], [["?", n], "r", "t"]])] for n in "xy")
    y[1] = Outer(facts([[["?", "z"], "r", "t"]])[0])
    assert derive(list[Outer]).score(x, y) == 1.0


def test_collections_bind_apart():
    pred = [facts([[["?", "a"], "r", "s"]]), facts([[["?", "a"], "r", "t"]])]
    ref = [facts([[["?", "x"], "r", "s"]]), facts([[["?", "y"], "r", "t"]])]
    assert derive(list[list[Fact]]).score(pred, ref) == 2.0
    assert derive(list[Fact]).score(sum(pred, []), sum(ref, [])) == 1.0
    assert derive(tuple[list[Fact], list[Fact]]).score(tuple(pred), tuple(ref)) == 1.0
    assert derive(dict[str, Variable]).score({"a": Variable("x"), "b": Variable("x")}, {"a": Variable("y")}) == 1.0


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_equal_items_count_once(constraint):
    a, b, x = (["?", name] for name in "abx")
    once, twice = [[a, "r", "s"], [b, "r", "s"]], [[a, "r", "s"], [b, "r", "s"], [a, "r", "s"]]
    metric = derive(list[Fact], constraint=constraint, policy=Policy(duplicates="set"))
    other = facts([[x, "r", "s"], [x, "r", "s"], ["k", "r", "s"]])
    for one, shorter, two in ((facts(twice), facts(once), other), (other, other[1:], facts(twice))):
        fewer = metric.overlap([shorter], [two])
        assert metric.overlap([one], [two]) == fewer
        score, matching = metric.compute(one, two)
        assert score == fewer.cross == sum(match.score for match in matching if len(match.pred_path) == 1) == 1


@dataclass(frozen=True)
class Weighted:
    name: Variable
    other: Variable
    weight: float


def closeness(x, y):
    return 1 - 0.25 * abs(x - y)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_real_weights_against_all_mappings(constraint):
    metric = dsl.latent_set_matching[Weighted, constraint](
        dsl.dataclass[Weighted]({"name": ..., "other": ..., "weight": dsl.from_func(closeness)})
    )
    draw = np.random.default_rng(0)
    for _ in range(4):
        pred, ref = (
            [
                Weighted(*(Variable(role + "abc"[n]) for n in draw.integers(3, size=2)), int(draw.integers(5)))
                for _ in range(draw.integers(1, 5))
            ]
            for role in "pr"
        )
        expected = 0.0
        for image in itertools.permutations("abc"):
            mapping = {Variable("p" + one): Variable("r" + other) for one, other in zip("abc", image, strict=True)}
            table = [
                [
                    closeness(p.weight, r.weight) * ((mapping[p.name], mapping[p.other]) == (r.name, r.other))
                    for r in ref
                ]
                for p in pred
            ]
            expected = max(expected, heaviest_relation(np.array(table), constraint))
        overlap = metric.overlap([pred], [ref])
        assert overlap.cross.item() == pytest.approx(expected, abs=1e-9) and overlap.exact.item()
        score, matching = metric.compute(pred, ref)
        assert sum(m.score for m in matching if len(m.pred_path) == 1) == pytest.approx(score, abs=1e-9)


def test_value_and_bound_come_from_one_search(monkeypatch):
    solution = []

    def counted(pred, *rest, **options):
        solution.extend(range(len(pred)))
        return latent_overlap(pred, *rest, **options)

    monkeypatch.setattr(latent, "latent_overlap", counted)
    inputs = [[facts(case["input"][role]) for case in GOLDEN["latent"]] for role in ("pred", "ref")]
    derive(list[Fact]).overlap(*inputs)
    assert len(solution) == len(GOLDEN["latent"])


class Graph:
    def __init__(self, labels, edges):
        self.labels, self.edges = labels, edges

    def nodes(self):
        return list(enumerate(self.labels))

    def successors(self, node):
        return [(b, self.labels[b]) for a, b in self.edges if a == node[0]]


def label(node):
    return node[1]


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("case", GOLDEN["graph"], ids=lambda case: case["id"])
def test_graph_matching_golden_cases_match(case, constraint):
    inputs = case["input"]
    inner = dsl.discrete[str].contramap(label)
    pred, ref = (Graph(inputs[f"{part}_labels"], inputs[f"{part}_edges"]) for part in ("pred", "ref"))
    if "similarity" in inputs:
        table = inputs["similarity"]
        pred.labels, ref.labels = ([(part, n) for n in range(len(g.labels))] for part, g in enumerate((pred, ref)))
        inner = dsl.from_func(lambda x, y: table[x[1]][y[1]] if x[0] < y[0] else float(x == y)).contramap(label)
    metric = dsl.graph_matching[tuple, constraint](inner)
    overlap = metric.overlap([pred], [ref])
    assert overlap.cross.item() == pytest.approx(case["output"][constraint], abs=1e-9)
    assert overlap.exact.item() and overlap.pred.item() >= len(pred.labels)
    score, matching = metric.compute(pred, ref)
    assert sum(m.score for m in matching if len(m.pred_path) == 1) == pytest.approx(score, abs=1e-9)
