"""Programs written for metametric, with the values of its documentation, of papers and of that package."""

import json
import pickle
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from documents import code_blocks, with_our_imports

from tensormetrics.compat.metametric import (
    AMR,
    Argument,
    Entity,
    EntitySet,
    Event,
    EventSet,
    FScore,
    Hook,
    MacroAverage,
    Match,
    Matching,
    MatchingConstraint,
    Mention,
    Metric,
    MetricFamily,
    MetricSuite,
    MicroAverage,
    MultipleReductions,
    Normalizer,
    Prop,
    Reduction,
    SetMatchingMetric,
    Trigger,
    Variable,
    b_cubed_precision,
    b_cubed_recall,
    ceaf_phi4,
    coref_suite,
    derive_metric,
    event_extraction_suite,
    metametric,
    muc,
    p_at_k,
    r_at_k,
    ranking_ap,
    s_match,
)
from tensormetrics.compat.metametric import Path as MatchPath
from tensormetrics.compat.metametric import dsl as mm

READERS_IMPORTS = """
from collections.abc import Collection
from dataclasses import dataclass
from metametric.core.decorator import metametric
"""
RETURNS = re.compile(r"^(.+) # returns ([\d.]*\d)", re.MULTILINE)


def test_document_programs_return_what_their_comments_say():
    blocks = [re.sub("^> ", "", block, flags=re.MULTILINE) for block in code_blocks("metametric_decorator.md")]
    assert len(blocks) == 6  # all run
    names, returned = {"__name__": __name__}, []
    exec(with_our_imports(READERS_IMPORTS, "metametric"), names)
    for block in blocks:
        exec(block, names)
        returned += [(eval(call, names), float(value)) for call, value in RETURNS.findall(block)]
    assert [value for _, value in returned] == [1, 0, 1, 0, 0.8]
    assert [score for score, _ in returned] == pytest.approx([1, 0, 1, 0, 0.8], abs=1e-12)


def entity_set(*entities: str) -> EntitySet:
    return EntitySet([Entity([Mention(2 * ord(letter), 2 * ord(letter) + 1) for letter in text]) for text in entities])


PAIR = entity_set("ab", "cd", "fghi"), entity_set("abc", "defg")  # aclanthology.org/P14-2006
COREF = {
    "muc-precision": 0.4,
    "muc-recall": 0.4,
    "muc-f1": 0.4,
    "b_cubed-precision": 0.5,
    "b_cubed-recall": 5 / 12,
    "b_cubed-f1": 5 / 11,
    "ceaf_phi4-precision": 1.3 / 3,
    "ceaf_phi4-recall": 0.65,
    "ceaf_phi4-f1": 0.52,
    "avg-f1": (0.4 + 5 / 11 + 0.52) / 3,
}


def test_coreference_names_match_hand_computation():
    assert b_cubed_precision.score(*PAIR) == 0.5 and b_cubed_recall.score(*PAIR) == pytest.approx(5 / 12)
    for metric, values in ((muc, (0.4, 0.4)), (ceaf_phi4, (1.3 / 3, 0.65))):
        for part, value in zip(("precision", "recall"), values, strict=True):
            assert mm.normalize[part](metric).score(*PAIR) == pytest.approx(value)
    scores = coref_suite.new()
    scores.update_single(*PAIR)
    assert scores.compute() == pytest.approx(COREF)
    scores.update_batch([PAIR[0]], [PAIR[0]])  # a mean over documents
    assert scores.compute()["muc-f1"] == pytest.approx(0.7)
    scores.reset()
    scores.update_single(*PAIR)
    assert json.loads(json.dumps(scores.compute())) == pytest.approx(COREF)


def test_event_names_match_hand_computation():
    died, fired = Trigger(Mention(25, 29), "die"), Trigger(Mention(52, 57), "attack")
    baghdad, cameraman, tank, hotel = (Mention(left, left + 9) for left in (4, 15, 38, 65))
    ref = EventSet(
        [
            Event(died, [Argument(baghdad, "place"), Argument(cameraman, "victim"), Argument(tank, "instrument")]),
            Event(
                fired,
                [
                    Argument(tank, "instrument"),
                    Argument(baghdad, "place"),
                    Argument(cameraman, "target"),
                    Argument(hotel, "target"),
                ],
            ),
        ]
    )
    pred = EventSet(
        [
            Event(died, [Argument(hotel, "place"), Argument(cameraman, "victim")]),
            Event(fired, [Argument(tank, "attacker"), Argument(baghdad, "place"), Argument(hotel, "target")]),
        ]
    )
    scores = event_extraction_suite.new()
    scores.update_single(pred, ref)
    triples = {"trigger_identification": (1, 1, 1), "trigger_classification": (1, 1, 1)}
    triples |= {"argument_identification": (4 / 5, 4 / 7, 8 / 12), "argument_classification": (3 / 5, 3 / 7, 6 / 12)}
    expected = {
        f"{name}-{score}": value
        for name, values in triples.items()
        for score, value in zip(("precision", "recall", "f1"), values, strict=True)
    }
    assert scores.compute() == pytest.approx(expected)


def test_smatch_and_hooks():
    a, b, c, x, y, z = map(Variable, "abcxyz")
    one = [Prop(a, "instance", "want"), Prop(b, "instance", "boy"), Prop(c, "instance", "go"), Prop(a, "ARG0", b)]
    one += [Prop(a, "ARG1", c), Prop(c, "ARG0", b)]
    two = [Prop(x, "instance", "want"), Prop(y, "instance", "boy"), Prop(z, "instance", "football")]
    two += [Prop(x, "ARG0", y), Prop(x, "ARG1", z)]
    score, matching = s_match.compute(AMR(one), AMR(two))
    assert score == pytest.approx(8 / 11)
    seen, roots = [], []

    class Listener(Hook[Prop]):
        def on_match(self, data_id, pred_path, pred, ref_path, ref, score):
            seen.append((data_id, pred, ref))

    expected = [(one[i], two[j]) for i, j in ((0, 0), (1, 1), (3, 3), (4, 4))]
    matching.run_with_hooks({"@.props[*]": Listener()}, data_id=3)
    assert seen == [(3, *pair) for pair in expected]
    seen.clear()
    family = MetricFamily(s_match, MicroAverage([FScore()]))
    hooks = {"props[*]": Listener(), "@": Hook.from_callable(lambda *match: roots.append(match[0]))}
    scores = mm.suite({"amr": family}).new(hooks)
    scores.update_batch([AMR(two), AMR(one)], [AMR([]), AMR(two)])
    assert seen == [(1, *pair) for pair in expected] and roots == [0, 1]


def test_ranking_names_match_hand_computation():
    pred, ref = [("b", 0.3), ("a", 0.4), ("d", 0.1), ("c", 0.2)], [(letter, 1.0) for letter in "cde"]
    deep = [2 / 4] * 7
    torch.testing.assert_close(p_at_k.score(pred, ref), torch.tensor([0, 0, 1 / 3, *deep]).double())
    torch.testing.assert_close(r_at_k.score(pred, ref), torch.tensor([0, 0, 1 / 3] + [2 / 3] * 7).double())
    assert p_at_k.score([], ref).tolist() == r_at_k.score(pred, []).tolist() == [0.0] * 10
    for case in json.loads((Path(__file__).parents[1] / "structured" / "golden.json").read_text())["ranking"]:
        expected = case["output"].get("ap_metametric")  # none for repeated predictions, which count once here
        pred = [(item, -rank) for rank, item in enumerate(case["input"]["pred"])]
        average = ranking_ap.score(pred, list(case["input"]["ref_gains"].items()))
        assert expected is None or average == pytest.approx(expected)


def test_rankings_compare_items_by_inner_metric():
    half = mm.ranking[3](mm.from_func(lambda x, y: max(1 - abs(x - y) / 2, 0)))
    assert half.score([1, 9], [2, 5]).tolist() == [0.5, 0.5, 0.5] and half.score_self([1, 9]).tolist() == [1, 2, 2]
    shifted = half.contramap(lambda x: x, lambda y: [item - 1 for item in y])
    assert shifted.score([1, 9], [2, 5]).tolist() == [1, 1, 1]
    backwards = mm.normalize_param["recall@k"](half.contramap(lambda items: items[::-1]))
    assert backwards.score([9, 1], [5, 2]).tolist() == [0.5, 0.25, 0.25]


@pytest.mark.parametrize(("pred", "ref", "overlap"), [([], [], 1), ([1, 2, 2], [2, 2], 1), ([], [1], 0)])
def test_collections_have_values_of_metametric(pred, ref, overlap):
    @metametric
    @dataclass
    class Bag:
        items: Collection[int]

    assert Bag.metric.score(Bag(pred), Bag(ref)) == overlap
    for metric in (
        mm.auto[list[int]],
        mm.set_matching[int](...),
        SetMatchingMetric(mm.discrete[int]),
        derive_metric(list[int], MatchingConstraint.ONE_TO_ONE),
        pickle.loads(pickle.dumps(mm.set_matching[int, "<->", None](mm.auto[int]))),
    ):
        assert metric.score(pred, ref) == overlap
    scores = mm.family(mm.dataclass[Bag]({"items": ...}), mm.macro_average(["none"])).new()
    scores.update_single(Bag(pred), Bag(ref))
    assert scores.compute() == {"": overlap}


@pytest.mark.parametrize(
    ("spellings", "overlap"),
    [
        (("<->", "1:1", MatchingConstraint.ONE_TO_ONE), 1),
        (("<-", "1:*", MatchingConstraint.ONE_TO_MANY), 3),  # each reference item takes the best predicted one
        (("->", "*:1", MatchingConstraint.MANY_TO_ONE), 2),
        (("~", "*:*", MatchingConstraint.MANY_TO_MANY), 6),
    ],
)
def test_constraints_are_read_as_by_the_code_of_metametric(spellings, overlap):
    for spelling in spellings:

        @metametric(constraint=spelling)
        @dataclass
        class Bag:
            items: Collection[int]

        for metric in (mm.set_matching[int, spelling](...), SetMatchingMetric(mm.discrete[int], spelling)):
            assert metric.score([7, 7], [7, 7, 7]) == Bag.metric.score(Bag([7, 7]), Bag([7, 7, 7])) == overlap


class OverSmaller(Normalizer[float, float]):
    name = "over-smaller"

    def normalize(self, score_xy, score_xx, score_yy):
        return score_xy / min(score_xx, score_yy) if score_xy > 0 else 0.0


def test_normalizers_normalize_numbers_and_metrics():
    names = {"p": 0.75, "recall": 0.5, "j": 3 / 7, "f": 0.6, "f2": 15 / 28}
    assert {name: Normalizer.from_str(name).normalize(3, 4, 6) for name in names} == pytest.approx(names)
    assert Normalizer.from_str("none") is None and Normalizer.from_str("f0.5").name == "f0.5"
    with pytest.raises(ValueError, match="normalizer: got 'kappa', wanted one of"):
        Normalizer.from_str("kappa")
    ints = mm.set_matching[int](...)
    assert mm.normalize[OverSmaller()](ints).score([1, 2, 3], [1, 2, 4, 5]) == pytest.approx(2 / 3)
    scores = MetricFamily(ints, MacroAverage([OverSmaller(), None])).new()
    scores.update_batch([[1, 2, 3], [1]], [[1, 2, 4, 5], [3]])
    assert scores.compute() == pytest.approx({"over-smaller": 1 / 3, "": 1})


def test_reductions_and_suites_take_extra_functions():
    def doubled(values):
        return {"double": 2 * values["f1"] if values["f1"] > 0 else 0.0}

    ints = mm.set_matching[int, "<->"](...)
    parts = {"micro": mm.micro_average(["f1"]).with_extra(doubled), "macro": mm.macro_average(["none"])}
    reduction = MultipleReductions({"all": MultipleReductions(parts)}).with_extra(lambda values: {"sum": len(values)})
    family = MetricFamily(ints, reduction)
    assert isinstance(reduction, Reduction) and isinstance(family, MetricSuite)
    suite = mm.suite({"ints": family})
    extended = suite.with_extra(lambda values: {"half": values["ints-all-micro-f1"] / 2})
    for described, extra in ((suite, {}), (extended, {"half": 0.4})):
        scores = described.new()
        scores.update_batch([[1, 2], [4]], [[1, 3], [4]])
        scores.reset()
        scores.update_batch([[1, 2]], [[1, 2, 3]])
        expected = {"ints-all-micro-f1": 0.8, "ints-all-micro-double": 1.6, "ints-all-macro": 2, "ints-sum": 3}
        assert scores.compute() == pytest.approx(expected | extra)


class Near(Metric[int]):
    def compute(self, x, y):
        score = max(1 - abs(x - y) / 4, 0)
        return score, Matching([Match(MatchPath(), x, MatchPath(), y, score)])


def test_metrics_of_users_are_inner_metrics():
    near = Near()
    assert near.score(1, 2) == 0.75 and near.score_self(3) == 1 and isinstance(mm.auto[int], Metric)
    assert [str(match) for match in near.compute(1, 2)[1]] == ["@ -> @ (0.75)"]
    assert near.gram_matrix([1], [1, 2]).tolist() == [[1, 0.75]] and near.contramap(abs).score(-1, 1) == 1
    assert mm.set_matching[int, "<->", "f1"](near).score([1, 9], [2]) == pytest.approx(2 * 0.75 / 3)
    assert mm.dataclass[Mention]({"left": near, "right": ...}).score(Mention(1, 5), Mention(2, 5)) == 0.75
    assert mm.max_pair(near).score([1, 9], [3, 8]) == 0.75
    scores = mm.family(near, {"mean": mm.macro_average(["none"])}).new()
    scores.update_batch([1, 2], [1, 4])
    assert scores.compute() == {"mean": 0.75}
