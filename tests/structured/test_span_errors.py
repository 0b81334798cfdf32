"""Categories of entities, by hand and against what nervaluate 1.2.1 counts."""

import random

import pytest

from tensormetrics.structured import SpanScores, read_tags, span_errors


def test_by_hand():
    ref = [["O"], ["B-A", "I-A", "O", "B-B", "O", "B-C", "B-A"]]
    pred = [["B-A"], ["B-A", "O", "O", "B-C", "O", "B-C", "O"]]
    # Document 1: [0, 0] beside [0, 1], label C beside B, [5, 5] right, [6, 6] of the reference alone.
    for scheme, wanted in (
        ("strict", ([[1, 2, 2]], [[1, 0, 0], [1, 1, 1]], [])),
        ("exact", ([[1, 1, 1], [1, 2, 2]], [[1, 0, 0]], [])),
        ("partial", ([[1, 1, 1], [1, 2, 2]], [], [[1, 0, 0]])),
        ("type", ([[1, 0, 0], [1, 2, 2]], [[1, 1, 1]], [])),
    ):
        found = span_errors(pred, ref, scheme)
        assert tuple(rows.tolist() for rows in found[:3]) == wanted
        assert found.missed.tolist() == [[1, -1, 3]] and found.spurious.tolist() == [[0, 0, -1]]


def test_no_documents_and_no_spans():
    assert [rows.shape for rows in span_errors([], [])] == [(0, 3)] * 5
    assert [rows.shape for rows in span_errors([["O"]], [["O"]])] == [(0, 3)] * 5


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
def test_what_nervaluate_counts(scheme, counts):
    """Under "type" it finds 755 correct ones, because it takes the first that overlap."""
    assert tuple(len(rows) for rows in span_errors(*corpus(), scheme)) == counts
    assert len(span_errors(*corpus(), "type").correct) >= 755


@pytest.mark.parametrize("scheme", ["strict", "exact", "partial", "type"])
def test_they_add_up_to_the_scores(scheme):
    pred, ref = corpus()
    errors, metric = span_errors(pred, ref, scheme), SpanScores(scheme)
    metric.update_tags(pred, ref)
    correct, incorrect, partial, missed, spurious = map(len, errors)
    worth = correct + partial / 2
    precision, recall = (worth / (correct + incorrect + partial + alone) for alone in (spurious, missed))
    scores = metric.compute()
    assert [float(scores["precision"]), float(scores["recall"])] == pytest.approx([precision, recall])


def test_places_are_those_of_read_tags():
    pred, ref = corpus()
    spans = [read_tags(side).spans for side in (pred, ref)]
    errors = span_errors(pred, ref)
    document, p, r = errors.correct.unbind(-1)
    assert spans[0][document, p].equal(spans[1][document, r])
    document, p, r = errors.incorrect.unbind(-1)
    assert (spans[0][document, p] != spans[1][document, r]).any(-1).all()
    for rows in errors:
        assert rows.tolist() == sorted(rows.tolist(), key=lambda row: (row[0], row[1], row[2]))
