"""Categories of entities against values by hand and counts of nervaluate 1.2.1."""

import random
from collections import Counter

import numpy as np
import pytest
from test_tags import spans_of

from tensormetrics.structured import SpanScores, read_tags, span_errors


def test_span_errors_match_hand_computation():
    ref = [["O"], ["B-A", "I-A", "O", "B-B", "O", "B-C", "B-A"]]
    pred = [["B-A"], ["B-A", "O", "O", "B-C", "O", "B-C", "O"]]
    # Document 1: [0, 0] vs. [0, 1], label C vs. B, [5, 5] correct, [6, 6] only in the reference.
    for scheme, expected in (
        ("strict", ([[1, 2, 2]], [[1, 0, 0], [1, 1, 1]], [])),
        ("exact", ([[1, 1, 1], [1, 2, 2]], [[1, 0, 0]], [])),
        ("partial", ([[1, 1, 1], [1, 2, 2]], [], [[1, 0, 0]])),
        ("type", ([[1, 0, 0], [1, 2, 2]], [[1, 1, 1]], [])),
    ):
        errors = span_errors(pred, ref, scheme)
        assert tuple(rows.tolist() for rows in errors[:3]) == expected
        assert errors.missed.tolist() == [[1, -1, 3]] and errors.spurious.tolist() == [[0, 0, -1]]


def test_no_documents_and_no_spans():
    for documents in ([], [["O"]], [[], []]):
        errors = span_errors(documents, documents)
        assert [rows.shape for rows in errors[:5]] == [(0, 3)] * 5
        assert errors.labels == () and errors.counts.tolist() == [[[0]]] * 5
        assert errors.table().rows == ("all",) and errors.confusions().rows == ("spurious",)


def chunked(draw: random.Random, width: int) -> list[str]:
    tags: list[str] = []
    while len(tags) < width:
        size = draw.randint(1, 3)
        label = draw.choice(("PER", "LOC"))
        tags += ["O"] * size if draw.random() < 0.5 else [f"B-{label}", *[f"I-{label}"] * (size - 1)]
    return tags[:width]


def corpus() -> tuple[list[list[str]], list[list[str]]]:
    draw = random.Random(0)
    ref = [chunked(draw, 12) for _ in range(400)]
    pred = [chunked(draw, 12) for _ in range(400)]
    return [r if draw.random() < 0.4 else p for r, p in zip(ref, pred, strict=True)], ref


@pytest.mark.parametrize(
    ("scheme", "counts"),
    [("strict", (587, 345, 0, 353, 346)), ("exact", (631, 301, 0, 353, 346)), ("partial", (631, 0, 301, 353, 346))],
)
def test_span_errors_match_nervaluate_counts(scheme, counts):
    """Under "type" it finds 755 correct ones, because it takes the first that overlap."""
    assert tuple(len(rows) for rows in span_errors(*corpus(), scheme)[:5]) == counts
    assert len(span_errors(*corpus(), "type").correct) >= 755


@pytest.mark.parametrize("scheme", ["strict", "exact", "partial", "type"])
def test_span_errors_add_up_to_the_scores(scheme):
    pred, ref = corpus()
    errors, metric = span_errors(pred, ref, scheme), SpanScores(scheme)
    metric.update_tags(pred, ref)
    correct, incorrect, partial, missed, spurious = map(len, errors[:5])
    score = correct + partial / 2
    precision, recall = (score / (correct + incorrect + partial + single) for single in (spurious, missed))
    scores = metric.compute()
    assert [float(scores["precision"]), float(scores["recall"])] == pytest.approx([precision, recall])


def test_span_errors_indices_refer_to_read_tags():
    pred, ref = corpus()
    spans = [read_tags(part).spans for part in (pred, ref)]
    errors = span_errors(pred, ref)
    document, p, r = errors.correct.unbind(-1)
    assert spans[0][document, p].equal(spans[1][document, r])
    document, p, r = errors.incorrect.unbind(-1)
    assert (spans[0][document, p] != spans[1][document, r]).any(-1).all()
    for rows in errors[:5]:
        assert rows.tolist() == sorted(rows.tolist(), key=lambda row: (row[0], row[1], row[2]))


@pytest.mark.parametrize("scheme", ["strict", "exact", "partial", "type"])
def test_span_lists_give_the_errors_of_their_tags(scheme):
    pred, ref = corpus()
    errors, reference = span_errors(spans_of(pred), spans_of(ref), scheme), span_errors(pred, ref, scheme)
    assert errors.labels == reference.labels == ("LOC", "PER")
    for rows, expected in zip((*errors[:5], errors.counts), (*reference[:5], reference.counts), strict=True):
        assert rows.equal(expected)


@pytest.mark.parametrize("scheme", ["strict", "exact", "partial", "type"])
def test_tables_count_the_labels_of_the_rows(scheme):
    pred, ref = (spans_of(part) for part in corpus())
    errors = span_errors(pred, ref, scheme)
    table, became = Counter(), Counter()
    for category, rows in zip(errors._fields, errors[:5], strict=False):
        for document, i, j in rows.tolist():
            predicted = pred[document][i][0] if i >= 0 else "missed"
            expected = ref[document][j][0] if j >= 0 else "spurious"
            table[predicted if category == "spurious" else expected, category] += 1
            table["all", category] += 1
            became[expected, predicted] += 1
    for row in ("LOC", "PER", "all"):
        for category in errors._fields[:5]:
            assert errors.table()[row, category] == table[row, category]
    for row in ("LOC", "PER", "spurious"):
        for column in ("LOC", "PER", "missed"):
            assert (errors.confusions()[row, column] or 0) == became[row, column]


def test_span_errors_nested_spans_are_paired_with_equal_spans():
    ref = [[("ORG", 0, 5), ("LOC", 3, 5), ("LOC", 5, 5)]]
    pred = [[("LOC", 5, 5), ("ORG", 0, 5), ("PER", 3, 5), ("PER", 8, 9)]]
    errors = span_errors(pred, ref)
    assert errors.correct.tolist() == [[0, 0, 2], [0, 1, 0]] and errors.incorrect.tolist() == [[0, 2, 1]]
    assert errors.spurious.tolist() == [[0, 3, -1]] and len(errors.missed) == 0
    assert errors.confusions()["LOC"] == {"LOC": 1, "ORG": 0, "PER": 1, "missed": 0}
    assert errors.table()["PER"] == dict(zip(errors._fields[:5], (0, 0, 0, 0, 1), strict=True))
    same = span_errors([[("A", 0, 1), ("A", 0, 1)]], [[("A", np.int64(0), np.int64(1))]])
    assert same.correct.tolist() == [[0, 0, 0]] and same.spurious.tolist() == [[0, 1, -1]]


def test_span_errors_label_named_like_a_row_renames_the_row():
    errors = span_errors([[("all", 0, 0)]], [[("missed", 0, 0), ("spurious", 4, 4)]])
    assert errors.table().rows == ("all", "missed", "spurious", "(all)")
    assert list(errors.confusions().columns) == ["all", "missed", "spurious", "(missed)"]
