"""Tags: their schemes, tags that do not fit them, and values that were misread in the past."""

import pytest
import torch
from raising import raises
from torchmetrics import MetricCollection

from tensormetrics.structured import (
    CorefScores,
    Event,
    EventScores,
    Mention,
    Relation,
    RelationScores,
    RelationSet,
    SpanScores,
    Trigger,
    ner_report,
    read_tags,
)
from tensormetrics.uncertainty import as_scalars

PRED = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
REF = [["B-PER", "I-PER", "O", "B-ORG"], ["B-LOC", "O"]]


def spans_of(tags: list[list[str]], mode: str = "lenient", **options: bool) -> list[list[tuple[str, int, int]]]:
    read = read_tags(tags, mode, **options)
    rows = zip(read.spans.tolist(), read.lengths.tolist(), strict=True)
    return [[(read.labels[label], a, b) for label, a, b in row[:n]] for row, n in rows]


# Spans of seqeval 1.2.2; see tests/peers/test_seqeval.py for random tags.
SCHEMES = [
    ("iob1", "I-X I-X B-X I-X O I-Y I-X", [("X", 0, 1), ("X", 2, 3), ("Y", 5, 5), ("X", 6, 6)]),
    ("ioe1", "I-X E-X I-X O I-Y I-Y", [("X", 0, 1), ("X", 2, 2), ("Y", 4, 5)]),
    ("ioe2", "I-X E-X E-Y O I-X E-X", [("X", 0, 1), ("Y", 2, 2), ("X", 4, 5)]),
    ("iob2", "B-X I-X B-X O B-Y I-Y", [("X", 0, 1), ("X", 2, 2), ("Y", 4, 5)]),
    ("bilou", "B-X L-X U-Y O B-X I-X L-X", [("X", 0, 1), ("Y", 2, 2), ("X", 4, 6)]),
    ("iobes", "B-X E-X S-Y O B-X I-X E-X", [("X", 0, 1), ("Y", 2, 2), ("X", 4, 6)]),
]


@pytest.mark.parametrize(("mode", "tags", "spans"), SCHEMES)
def test_read_tags_schemes_give_spans(mode, tags, spans):
    assert spans_of([tags.split()], mode) == [spans]
    turned = ["-".join(reversed(tag.split("-"))) for tag in tags.split()]
    assert spans_of([turned], mode, suffix=True) == [spans]


def test_read_tags_bare_prefix_has_seqeval_label():
    assert spans_of([["B", "I", "O", "B"]], "iob2") == [[("_", 0, 1), ("_", 3, 3)]]


PREFIXES = "B, I, M, E, L, S, U"


@pytest.mark.parametrize(
    ("tag", "suffix", "expected"),
    [
        *((tag, False, f"a prefix of {PREFIXES}, a dash and a label") for tag in ("Q-X", "B-", "-A", "O-A", "A", "")),
        ("-B", True, f"a label, a dash and a prefix of {PREFIXES}"),
        ("A-B", False, f"a prefix of {PREFIXES}, a dash and a label; this looks like a tag with the option suffix"),
    ],
)
def test_invalid_tags_raise_with_position(tag, suffix, expected):
    with raises(ValueError, f"document 1, position 1: got tag {tag!r}, wanted 'O', or {expected}"):
        read_tags([["O"], ["O", tag]], suffix=suffix)


@pytest.mark.parametrize("tag", [None, 3, ["B-PER"], torch.tensor(1)])
def test_values_other_than_tags_raise(tag):
    with pytest.raises(TypeError) as error:
        SpanScores().update_tags([["O"], [tag]], [["O"], ["O"]])
    assert str(error.value).startswith(f"document 1, position 0: got {tag!r:.60}, wanted a tag such as 'B-PER'")


def test_generators_are_documents():
    metric = SpanScores()
    metric.update_tags((iter(row) for row in PRED), (iter(row) for row in REF))
    assert float(metric.compute()["f1"]) == pytest.approx(2 / 3)


def test_read_tags_separate_calls_agree():
    """Labels have the same numbers, though they come in another order, and padding does not count."""
    pred, ref = read_tags(PRED), read_tags(REF)
    for lengths in ((pred.lengths, ref.lengths), ()):
        metric = SpanScores()
        metric.update(pred.spans, ref.spans, *lengths)
        assert float(metric.compute()["f1"]) == pytest.approx(2 / 3)


def test_read_tags_labels_are_numbered_by_index():
    labels = ("ORG", "PER", "LOC")
    metric = SpanScores(labels=labels)
    metric.update(read_tags(PRED, labels=labels).spans, read_tags(REF, labels=labels).spans)
    scores = {name: float(value) for name, value in metric.compute().items()}
    assert scores["recall[PER]"] == scores["recall[LOC]"] == 1 and scores["recall[ORG]"] == 0
    with raises(ValueError, "labels: got tags of ['PER'], wanted some of ('LOC',)"):
        read_tags(PRED, labels=("LOC",))


def test_label_numbers_out_of_range_raise():
    for metric, rows in ((SpanScores(labels=("A", "B")), 3), (RelationScores(labels=("A", "B")), 5)):
        table = torch.zeros(2, 2, rows, dtype=torch.int64)
        table[1, 1, 0] = 2
        with pytest.raises(ValueError, match="document 1: got label 2 in row 1, wanted a number below 2"):
            metric.update(table, table)
        metric.update(table, table, torch.tensor([2, 1]), torch.tensor([2, 1]))
        table[1, 1, 0] = -1  # padding
        metric.update(table, table)
        assert metric.compute()["f1"] == 1 and metric.sums.tolist() == [6.0, 0.0] * 3 + [4.0]


def test_update_takes_lists_too():
    def related(start, end):
        return RelationSet([Relation("r", Mention(start, end), Mention(start, end))])

    trigger = Event(Trigger(Mention(0, 1), "t"), [])
    for make, name, inputs in (
        (SpanScores, "update_tags", (PRED, REF)),
        (CorefScores, "update_clusters", ([[["a", "b"]]], [[["a"], ["b"]]])),
        (RelationScores, "update_relations", ([related(0, 1)], [related(0, 1)])),
        (EventScores, "update_events", ([[trigger]], [[trigger]])),
    ):
        metric, single = make(), make()
        getattr(single, name)(*inputs)
        collection = MetricCollection({"a": make(), "b": make()})
        collection.update(*inputs)
        collection(*inputs)
        metric.update(*inputs)
        batch = metric(*inputs)
        assert metric.update_count == collection["b"].update_count == 2 and single.update_count == 1
        assert torch.equal(metric.sums, 2 * single.sums) and torch.equal(collection["b"].sums, metric.sums)
        torch.testing.assert_close(batch, single.compute(), equal_nan=True)


@pytest.mark.parametrize(
    ("pred", "ref", "mode", "text"),
    [
        (
            ["B-A", "I-A", "O"],
            ["B-A", "I-A", "O"],
            "iobes",
            ["pred: tags do not fit mode='iobes': 2 of 2 tags other than O are left out"]
            + ["ref: tags do not fit mode='iobes': 2 of 2 tags other than O are left out"],
        ),
        (
            ["S-A", "B-A", "B-A"],
            ["B-A", "B-A", "B-A"],
            "iob2",
            [
                "pred: tags do not fit mode='iob2': 1 of 3 tags other than O are left out, some whose prefix is none "
                "of B, I"
            ],
        ),
        (["B-A", "O", "I-A"], ["B-A", "O", "B-A"], "iob2", []),  # a model may err
        (
            ["B-A", "O", "B-A"],
            ["B-A", "O", "I-A"],
            "iob2",
            ["ref: tags do not fit mode='iob2': 1 of 2 tags other than O are left out"],
        ),
        (["E-A", "I-B", "I-A"], ["L-A", "U-B", "I-A"], "lenient", []),
    ],
)
def test_tags_outside_the_scheme_warn(pred, ref, mode, text, recwarn):
    SpanScores().update_tags([pred], [ref], mode)
    assert [str(warning.message) for warning in recwarn] == text
    assert all(warning.filename == __file__ for warning in recwarn)


def test_ner_report_matches_hand_computation():
    """By hand: PER 1 of 1, ORG 0 of 1 reference spans and none predicted, LOC 1 of 2 predicted."""
    expected = """
              precision    recall  f1-score   support

         LOC      0.500     1.000     0.667         1
         ORG      0.000     0.000     0.000         1
         PER      1.000     1.000     1.000         1

   micro avg      0.667     0.667     0.667         3
   macro avg      0.500     0.667     0.556         3
weighted avg      0.500     0.667     0.556         3
"""
    assert "\n" + ner_report(PRED, REF, digits=3) == expected
    metric = SpanScores(labels=("PER", "MISC"), replicates=0)  # one that never occurs has no row
    metric.update_tags([["B-PER"]], [["B-PER"]])
    assert "MISC" not in metric.report() and "PER" in metric.report()


def test_ner_report_accepts_argument_names_of_seqeval():
    expected = ner_report(PRED, REF)
    assert ner_report(y_true=REF, y_pred=PRED) == ner_report(pred=PRED, y_true=REF) == expected
    with pytest.raises(TypeError, match="^got pred and y_pred of pred, y_pred, wanted one of them$"):
        ner_report(PRED, y_pred=PRED)
    with pytest.raises(TypeError, match="^got neither of ref, y_true, wanted one of them$"):
        ner_report(PRED)
    for options in ({"mode": "strict"}, {"scheme": "IOB2"}, {"scheme": type("IOB2", (), {})}):
        with pytest.raises(ValueError, match="which are seqeval's; write mode='iob2' for its strict IOB2"):
            ner_report(PRED, REF, **options)
    with pytest.raises(ValueError, match="^scheme: got 'exact', which ignores the labels of a report; wanted 'strict'"):
        ner_report(PRED, REF, scheme="exact")


def test_ner_report_swapped_arguments_warn():
    """A model leaves out a B here and there; a corpus does not."""
    corpus = [["B-PER", "I-PER", "O", "B-LOC"]] * 8
    answers = [["I-PER", "I-PER", "O", "B-LOC"], *corpus[1:]]
    with pytest.warns(UserWarning, match=r"^ref: 1 of 16 spans begin by I, .* write ner_report\(y_true=") as caught:
        swapped = ner_report(corpus, answers)
    assert [warning.filename for warning in caught] == [__file__]
    assert ner_report(y_true=answers, y_pred=corpus) == swapped  # named arguments are not checked for a swap
    ner_report(answers, corpus)
    ner_report(corpus[:3], answers[:3])  # few spans say nothing
    in_iob1 = [["I-PER", "I-PER", "O", "I-LOC"]] * 8
    ner_report(corpus, in_iob1)  # a scheme, not errors


def test_report_rounds_the_ratio_of_counts():
    """F1 = 10 / 16 = 0.625: to even 0.62, where seqeval has 0.63 by rounded precision and recall."""
    pred = [["B-A"] * 5 + ["B-B", "B-B", "O", "O"]]
    ref = [["B-A"] * 5 + ["O", "O", "B-B", "B-B"] + ["B-B"] * 2]
    pred[0] += ["O", "O"]
    line = next(line for line in ner_report(pred, ref).splitlines() if "micro avg" in line)
    assert line.split()[2:] == ["0.71", "0.56", "0.62", "9"]


def test_ner_report_without_spans_is_empty():
    expected = """
              precision    recall  f1-score   support

   micro avg       0.00      0.00      0.00         0
"""
    assert "\n" + ner_report([["O"]], [["O"]]) == "\n" + ner_report([], []) == expected


def test_report_with_intervals():
    metric = SpanScores(labels=("LOC", "ORG", "PER"), replicates=50)
    for _ in range(20):
        metric.update_tags(PRED, REF)
    scores = as_scalars(metric.interval())
    interval = "{f1:.4f} [{f1/low:.4f}, {f1/high:.4f}]".format(**scores)
    line = next(line for line in metric.report(digits=4).splitlines() if "micro avg" in line)
    assert line.endswith(f"{interval}        60")
    low, high = scores["recall[LOC]/low"], scores["recall[LOC]/high"]
    assert f"{scores['recall[LOC]']:.4f} [{low:.4f}, {high:.4f}]" in metric.report(digits=4)
    table = metric.report_table()
    assert [*map(float, table["LOC", "recall"])] == [scores["recall[LOC]"], low, high]
    lines = [line for line in metric.report(digits=3).splitlines() if line]
    assert [line.split()[-1] for line in lines[1:]] == [str(table[row, "support"]) for row in table.rows]
    assert all(str(table["micro avg", score]) in lines[-3] for score in ("precision", "recall", "f1-score"))


def test_report_needs_counts():
    metric = SpanScores(average="macro")
    with pytest.raises(ValueError, match="^average: got 'macro', the mean over documents"):
        metric.report()


FILES_OF_TAGS = {
    "plain.conll": "EU B-ORG\nrejects O\n\n-DOCSTART- O\nPeter B-PER\nBlack I-PER\n",
    "columns.conll": "EU NNP B-ORG\nrejects V O\n\nPeter NNP B-PER\nBlack NNP I-PER\n",
    "bmes.bmes": "EU S-ORG\nrejects O\n\nPeter B-PER\nBlack E-PER\n",
    "words.conllu": (
        "# sent_id = 1\n1-2\tEU rejects\t_\t_\n1\tEU\tN\tB-ORG\n2\trejects\tV\tO\n\n"
        "1\tPeter\tN\tB-PER\n1.1\tM\tN\tI-PER\n2\tBlack\tN\tI-PER\n"
    ),
}


@pytest.mark.parametrize("name", FILES_OF_TAGS)
def test_files_of_tags_are_documents(name, tmp_path):
    for file, text in FILES_OF_TAGS.items():
        (tmp_path / file).write_text(text)
    path, plain = tmp_path / name, str(tmp_path / "plain.conll")
    spans = read_tags(path, labels=["ORG", "PER"])
    assert spans.spans.tolist() == [[[0, 0, 0]], [[1, 0, 1]]]
    scores = SpanScores()
    scores.update_tags(path, plain)
    assert float(scores.compute()["f1"]) == 1
    assert ner_report(path, plain) == ner_report(plain, plain)
    other = tmp_path / "other.conll"
    other.write_text(FILES_OF_TAGS["plain.conll"].replace("Black", "White"))
    with pytest.raises(ValueError, match=r"line 6: got 'White', but .*, line \d+ has 'Black'$"):
        scores.update_tags(other, path)
