"""Names of metametric with the values of papers and of that package."""

import pytest
import torch

from tensormetrics.structured import (
    AMR,
    Argument,
    Entity,
    EntitySet,
    Event,
    EventSet,
    Hook,
    Mention,
    Path,
    Prop,
    Trigger,
    Variable,
    dsl,
    macro_average,
)
from tensormetrics.structured import metametric_names as names


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
    assert names.b_cubed_precision.score(*PAIR) == 0.5 and names.b_cubed_recall.score(*PAIR) == pytest.approx(5 / 12)
    for metric, values in ((names.muc, (0.4, 0.4)), (names.ceaf_phi4, (1.3 / 3, 0.65))):
        for part, value in zip(("precision", "recall"), values, strict=True):
            assert dsl.normalize[part](metric).score(*PAIR) == pytest.approx(value)
    suite = names.coref_suite.new()
    suite.update_single(*PAIR)
    assert {key: float(value) for key, value in suite.compute().items()} == pytest.approx(COREF)
    suite.update_batch([PAIR[0]], [PAIR[0]])  # a mean over documents
    assert float(suite.compute()["muc-f1"]) == pytest.approx(0.7)


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
    suite = names.event_extraction_suite.new()
    suite.update_single(pred, ref)
    triples = {"trigger_identification": (1, 1, 1), "trigger_classification": (1, 1, 1)}
    triples |= {"argument_identification": (4 / 5, 4 / 7, 8 / 12), "argument_classification": (3 / 5, 3 / 7, 6 / 12)}
    expected = {
        f"{name}-{score}": value
        for name, values in triples.items()
        for score, value in zip(("precision", "recall", "f1"), values, strict=True)
    }
    assert {key: float(value) for key, value in suite.compute().items()} == pytest.approx(expected)


def test_smatch_and_hooks():
    a, b, c, x, y, z = map(Variable, "abcxyz")
    one = [Prop(a, "instance", "want"), Prop(b, "instance", "boy"), Prop(c, "instance", "go"), Prop(a, "ARG0", b)]
    one += [Prop(a, "ARG1", c), Prop(c, "ARG0", b)]
    two = [Prop(x, "instance", "want"), Prop(y, "instance", "boy"), Prop(z, "instance", "football")]
    two += [Prop(x, "ARG0", y), Prop(x, "ARG1", z)]
    score, matching = names.s_match.compute(AMR(one), AMR(two))
    assert score == pytest.approx(8 / 11)
    seen = []

    class Listener(Hook):
        def on_match(self, data_id, pred_path, pred, ref_path, ref, score):
            seen.append((data_id, pred, ref))

    matching.run_with_hooks({"@.props[*]": Listener()}, data_id=3)
    assert seen == [(3, one[i], two[j]) for i, j in ((0, 0), (1, 1), (3, 3), (4, 4))]


def test_ranking_names_match_hand_computation():
    pred, ref = [("b", 0.3), ("a", 0.4), ("d", 0.1), ("c", 0.2)], [(letter, 1.0) for letter in "cde"]
    deep = [2 / 4] * 7
    torch.testing.assert_close(names.p_at_k.score(pred, ref), torch.tensor([0, 0, 1 / 3, *deep]).double())
    torch.testing.assert_close(names.r_at_k.score(pred, ref), torch.tensor([0, 0, 1 / 3] + [2 / 3] * 7).double())
    assert float(names.ranking_ap.score(pred, ref)) == pytest.approx(1 / 3 * 1 / 3 + 1 / 2 * 1 / 3)
    assert names.p_at_k.score([], ref).tolist() == names.r_at_k.score(pred, []).tolist() == [0.0] * 10


@pytest.mark.parametrize(
    ("text", "components"),
    [
        ("@", ()),
        ("@.a", ("a",)),
        ("@.a.b", ("a", "b")),
        ("a.b[1].c", ("a", "b", 1, "c")),
        ("@[1][2]", (1, 2)),
        (".*", ("*",)),
        ("@.*", ("*",)),
        ("[*].*", (-1, "*")),
        (".*[*]", ("*", -1)),
    ],
)
def test_path_parse_gives_components(text, components):
    path = Path.parse(text)
    assert path.components == components and path.is_root() == (not components)
    assert Path.parse(str(path)) == path


def test_path_parse_malformed_text_raises():
    for text in ("@a", "@@", "@.", "a.", "@.a@"):
        with pytest.raises(ValueError, match="cannot be read at position"):
            Path.parse(text)


def test_class_names_are_aliases():
    family = names.MetricFamily(dsl.set_matching[int, "->"](...), macro_average(["none"])).new()
    assert isinstance(family.metric, names.Metric) and isinstance(names.coref_suite, names.MetricSuite)
    family.update_batch([[1, 2, 2], [1]], [[2], [1]])
    assert {key: float(value) for key, value in family.compute().items()} == {"overlap": 1.5}
    assert names.MatchingConstraint.parse("<->") is names.MatchingConstraint.ONE_TO_ONE
