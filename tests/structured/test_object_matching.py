"""Matches: their order, depth and paths, hooks, and that they are built only when read."""

from dataclasses import dataclass

import pytest

from tensormetrics.structured import Family, derive, dsl, metametric, micro_average
from tensormetrics.structured.extend import Matching, Path


@dataclass
class Argument:
    role: str
    fillers: list[str]


@dataclass
class Event:
    kind: str
    args: list[Argument]


@metametric(normalizer="f1")
@dataclass
class Story:
    events: list[Event]


PRED = Story([Event("m", []), Event("k", [Argument("s", ["c"]), Argument("r", ["a", "b"])])])
REF = Story([Event("k", [Argument("r", ["b", "d", "a"]), Argument("s", ["e", "c"])])])
EXPECTED = [
    ("@", "@", 2 * 3 / (3 + 5)),
    ("events", "events", 3),
    ("events[1]", "events[0]", 3),
    ("events[1].kind", "events[0].kind", 1),
    ("events[1].args", "events[0].args", 3),
    ("events[1].args[0]", "events[0].args[1]", 1),
    ("events[1].args[0].role", "events[0].args[1].role", 1),
    ("events[1].args[0].fillers", "events[0].args[1].fillers", 1),
    ("events[1].args[0].fillers[0]", "events[0].args[1].fillers[1]", 1),
    ("events[1].args[1]", "events[0].args[0]", 2),
    ("events[1].args[1].role", "events[0].args[0].role", 1),
    ("events[1].args[1].fillers", "events[0].args[0].fillers", 2),
    ("events[1].args[1].fillers[0]", "events[0].args[0].fillers[2]", 1),
    ("events[1].args[1].fillers[1]", "events[0].args[0].fillers[0]", 1),
]


def as_rows(matching):
    return [(str(match.pred_path), str(match.ref_path), match.score) for match in matching]


def test_order_and_depth():
    score, matching = Story.metric.compute(PRED, REF)
    assert score == 0.75 and as_rows(matching) == EXPECTED and len(matching) == len(EXPECTED)
    assert as_rows(matching) == EXPECTED  # a second time
    match = matching.matches[5]
    assert match.pred is PRED.events[1].args[0] and match.ref is REF.events[0].args[1]
    assert str(match) == "events[1].args[0] -> events[0].args[1] (1)"


@pytest.mark.parametrize("depth", range(8))
def test_matching_max_depth_limits_paths(depth):
    _, matching = Story.metric.compute(PRED, REF, max_depth=depth)
    assert as_rows(matching) == [row for row in EXPECTED if len(Path.parse(row[0])) <= depth]


def test_matching_root_of_score_zero_is_included():
    metric = derive(tuple[str, list[int]])
    _, matching = metric.compute(("a", [1]), ("b", [1]))
    assert as_rows(matching) == [("@", "@", 0), ("[1]", "[1]", 1), ("[1][0]", "[1][0]", 1)]


def test_unions_mappings_and_images():
    metric = derive(dict[str, list[int] | None])
    _, matching = metric.compute({"a": None, "b": [1, 2]}, {"b": [2]})
    assert as_rows(matching) == [
        ("@", "@", 1),
        ("[1]", "[0]", 1),
        ("[1].key", "[0].key", 1),
        ("[1].value", "[0].value", 1),
        ("[1].value[1]", "[0].value[0]", 1),
    ]
    _, matching = dsl.preprocess[str.split](dsl.auto[list[str]]).compute("a b", "b c")
    assert as_rows(matching) == [("@", "@", 1), ("[1]", "[0]", 1)]


@pytest.mark.parametrize("constraint", ["<->", "->", "<-", "~"])
def test_equal_items_in_nested_lists(constraint):
    """A list of lists is matched by assignment, and takes the first largest where partners may be used again."""
    _, matching = derive(list[list[int]], constraint=constraint).compute([[1], [1, 2]], [[1, 2], [2], [1]])
    pairs = [(m.pred_path[0], m.ref_path[0]) for m in matching if len(m.pred_path) == 1]
    expected = {
        "<->": [(0, 2), (1, 0)],
        "->": [(0, 0), (1, 0)],
        "<-": [(0, 2), (1, 0), (1, 1)],
        "~": [(0, 0), (0, 2), (1, 0), (1, 1), (1, 2)],
    }
    assert pairs == expected[constraint]


def test_family_hooks_receive_selected_matches():
    calls = []
    family = Family(
        Story.metric,
        micro_average(["f1"]),
        hooks={
            "events[*].args[*].role": lambda *match: calls.append(match),
            Path.parse("events[1].args[*].fillers[*]"): lambda *match: calls.append(match),
            "events[7]": lambda *match: calls.append(match),
        },
    )
    family.update([PRED, PRED], [Story([]), REF])
    assert calls == [
        (1, "events[1].args[0].role", "s", "events[0].args[1].role", "s", 1.0),
        (1, "events[1].args[0].fillers[0]", "c", "events[0].args[1].fillers[1]", "c", 1.0),
        (1, "events[1].args[1].role", "r", "events[0].args[0].role", "r", 1.0),
        (1, "events[1].args[1].fillers[0]", "a", "events[0].args[0].fillers[2]", "a", 1.0),
        (1, "events[1].args[1].fillers[1]", "b", "events[0].args[0].fillers[0]", "b", 1.0),
    ]
    family.update([PRED], [REF])
    assert [call[0] for call in calls[5:]] == [2] * 5


def test_no_match_is_built_without_need(monkeypatch):
    built = []
    monkeypatch.setattr(Matching, "__init__", lambda self, find: built.append(find))
    family = Family(Story.metric, micro_average(["f1"]))
    family.update([PRED], [REF])
    family([PRED], [REF])
    Story.metric.score(PRED, REF)
    assert built == []


def test_matches_are_computed_when_read():
    result = []

    def find():
        result.append(1)
        yield from ()

    matching = Matching(find)
    assert result == []
    assert list(matching) == list(matching) == [] and result == [1]


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


def test_path_operations_match_expectation():
    path = Path(("a", "b", 1, "c"))
    assert hash(path) == hash(Path.parse("a.b[1].c"))
    assert str(path.append(2)) == "a.b[1].c[2]" and str(path.prepend("z", 0)) == "z[0].a.b[1].c"
    assert str(path[:2]) == "a.b" and path[2] == 1 and len(path) == 4 and repr(path) == "Path('a.b[1].c')"
    assert str(Path()) == "@" and str(Path.parse("[*].*")) == "[*].*"
    assert Path.parse("*.b[*].c").selects(path) and not path.selects(Path.parse("*.b[*].c"))
    assert not Path.parse("a.b.*.c").selects(path) and not Path.parse("a[*]").selects(Path.parse("a.b"))
