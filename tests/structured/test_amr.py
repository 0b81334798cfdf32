"""Smatch against golden values, and readers of triples."""

import json
import sys
from pathlib import Path

import pytest
from fake_device import DEVICE, Device
from raising import raises

from tensormetrics.structured import AMR, Prop, Smatch, read_penman, read_triples
from tensormetrics.structured.extend import Variable

GOLDEN = json.loads((Path(__file__).parent / "latent_golden.json").read_text())
TOPS = {"constant": True, "concept": "concept", "off": False}
penman = pytest.importorskip("penman")


def props(*triples: str) -> list[Prop]:
    """Props of "subj pred obj"; single letters are variables."""
    entries = ([Variable(e) if len(e) == 1 and e.isalpha() else e for e in t.split()] for t in triples)
    return [Prop(*triple) for triple in entries]


@pytest.mark.parametrize("top", TOPS)
@pytest.mark.parametrize("case", GOLDEN["amr"][:-1], ids=[case["id"] for case in GOLDEN["amr"][:-1]])
def test_smatch_golden_cases_match(case, top, device):
    expected = case["output"][top]
    for solver in ("auto", "exact", "search"):
        metric = Smatch(TOPS[top], solver).to(device)
        metric.update([case["input"]["pred"]], [case["input"]["ref"]])
        scores = {name: float(score) for name, score in metric.compute().items()}
        assert scores["f1"] == pytest.approx(expected["f1"], abs=1e-9)
        assert scores["precision"] == pytest.approx(expected["precision"], abs=1e-9)
        assert scores["recall"] == pytest.approx(expected["recall"], abs=1e-9)
        assert scores["exact"] == 1 and scores["bound-f1"] == scores["f1"]


def test_golden_micro_and_macro(device):
    pairs, expected = GOLDEN["amr"][-1]["input"]["pairs"], GOLDEN["amr"][-1]["output"]["micro"]
    micro, macro = Smatch().to(device), Smatch(average="macro").to(device)
    for metric in (micro, macro):
        metric.update(*zip(*pairs, strict=True))
    scores = micro.compute()
    for name in ("precision", "recall", "f1"):
        assert float(scores[name]) == pytest.approx(expected[name], abs=1e-9)
        values = [case["output"]["constant"][name] for case in GOLDEN["amr"][:-1]]
        assert float(macro.compute()[name]) == pytest.approx(sum(values) / len(values), abs=1e-9)


@pytest.mark.parametrize(
    ("text", "triples"),
    [
        ('(a / Cat :Name "Tom" :quant 3)', ["a instance cat", "a name tom", "a quant 3"]),
        ("(a / cat :ARG0-of (b / run-02))", ["a instance cat", "b arg0 a", "b instance run-02"]),
        ("(a / ring :consist-of (b / gold))", ["a instance ring", "a consist-of b", "b instance gold"]),
        ("(a / ring :consist-of-of (b / gold))", ["a instance ring", "b consist-of a", "b instance gold"]),
        ("(a / cat :mod (b / big))", ["a instance cat", "b domain a", "b instance big"]),
        ("(a / cat :mod big)", ["a instance cat", "a mod big"]),
        ("(a / cat :domain-of (b / big))", ["a instance cat", "b domain a", "b instance big"]),
        ("(a / cat :ARG0 a)", ["a instance cat", "a arg0 a"]),
        ("(a :polarity -)", ["a polarity -"]),
    ],
)
def test_read_penman_text_gives_triples(text, triples):
    assert sorted(map(str, read_penman(text, top=False))) == sorted(map(str, props(*triples)))


def test_read_penman_top_option_adds_triple():
    text = "(b / Big :domain (a / cat))"
    without_top = read_penman(text, top=False)
    assert read_penman(text)[len(without_top) :] == props("b top top")
    assert read_penman(text, "concept")[len(without_top) :] == props("b top big")
    assert read_penman("(a :ARG0 (b / cat))", "concept")[-1] == Prop(Variable("b"), "instance", "cat")
    assert read_triples([]) == []


def test_kinds_of_input_agree(device):
    pairs = GOLDEN["amr"][-1]["input"]["pairs"]
    metrics = [Smatch().to(device) for _ in range(4)]
    for pred, ref in pairs:
        kinds = [
            (pred, ref),
            (AMR(read_penman(pred)), AMR(read_penman(ref))),
            (read_penman(pred), read_penman(ref)),
            (penman.decode(pred).triples, penman.decode(ref).triples),
        ]
        for metric, (one, other) in zip(metrics, kinds, strict=True):
            metric.update([one], [other])
    assert len({tuple(map(float, metric.compute().values())) for metric in metrics}) == 1


def test_dataclasses_have_the_metric():
    for pred, ref in GOLDEN["amr"][-1]["input"]["pairs"]:
        one, other = AMR(read_penman(pred)), AMR(read_penman(ref))
        smatch = Smatch()
        smatch.update([pred], [ref])
        overlap = AMR.metric.overlap([one], [other])
        assert overlap.exact and 2 * overlap.cross / (overlap.pred + overlap.ref) == smatch.compute()["f1"]
    assert Prop.latent_metric.score(*props("a arg0 b", "x arg0 y")) == 1


def test_smatch_empty_graphs_score_zero(device):
    metric = Smatch().to(device)
    metric.update([[], []], [[], "(a / cat)"])
    assert {name: float(score) for name, score in metric.compute().items()} == {
        "precision": 0.0, "recall": 0.0, "f1": 0.0, "exact": 1.0, "bound-f1": 0.0,
    }  # fmt: skip


def test_read_penman_needs_penman(monkeypatch):
    monkeypatch.setitem(sys.modules, "penman", None)
    with raises(ImportError, "text: PENMAN notation is read by penman; write pip install penman"):
        read_penman("(a / cat)")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(a / b))", "is no graph in PENMAN notation: there is more text after the graph"),
        ("(a / b) :ARG0 x", "is no graph in PENMAN notation: there is more text after the graph"),
        ("(end / end) x", "is no graph in PENMAN notation: there is more text after the graph"),
        ('(a / b) "', "is no graph in PENMAN notation: there is more text after the graph"),
        ("(a / b)\n(c / d)", "holds 2 graphs in PENMAN notation, wanted one"),
        ("", "holds 0 graphs in PENMAN notation, wanted one"),
        (")", "holds 0 graphs in PENMAN notation, wanted one"),
        ("(a / b", "is no graph in PENMAN notation: Unexpected end of input"),
        ("(a / b :ARG0 (a / c))", "defines the variable a twice; wanted other names, or the name alone"),
        ("(a / b :ARG0 (a))", "defines the variable a twice; wanted other names, or the name alone"),
        (
            "(a" + "".join(f" :ARG0 (x{index}" for index in range(5000)) + ")" * 5001,
            "nests its nodes deeper than penman reads them; wanted some hundreds",
        ),
    ],
)
def test_read_penman_lossy_graphs_raise(text, reason):
    with raises(ValueError, f"text: {text[:60]!r} {reason}"):
        read_penman(text)


def test_read_penman_lossless_graphs_are_read():
    expected = props("a instance cat", "a top top")
    for text in ("\ufeff(a / cat)", "# ::id 1\n(a / cat)  # and so on", " (a / cat)\n\n", "(a / cat)\n# (c / d)"):
        assert read_penman(text) == expected
    assert read_penman("(end / end)") == [Prop(Variable("end"), "instance", "end"), Prop(Variable("end"), "top", "top")]
    deep = "(a" + "".join(f" :ARG0 (x{index}" for index in range(100)) + ")" * 101
    assert len(read_penman(deep)) == 101


@pytest.mark.full
def test_update_of_lists_waits_for_no_device():
    pair = [props("a instance want", "b instance boy", "a arg0 b")], [props("c instance boy", "d instance want")]
    expected = Smatch()
    expected.update(*pair)
    with Device() as fake:
        metric = Smatch().to(DEVICE)
        fake.waits.clear()
        metric.update(*pair)
        assert fake.waits == []
        assert float(metric.compute()["f1"].cpu()) == float(expected.compute()["f1"]) == 0.8
