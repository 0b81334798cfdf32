"""Readers invert writing."""

import random

import pytest
from raising import raises
from test_tags import spans_of

from tensormetrics.structured import SpanScores, read_conll_coref


def written_tags(spans: list[tuple[str, int, int]], width: int, scheme: str) -> list[str]:
    tags = ["O"] * width
    for label, first, last in spans:
        tags[first : last + 1] = [f"I-{label}"] * (last + 1 - first)
        tags[first] = f"B-{label}"
        if scheme == "iobes":
            tags[last] = f"{'S' if first == last else 'E'}-{label}"
    return tags


def disjoint_spans(draw: random.Random, width: int) -> list[tuple[str, int, int]]:
    cuts = sorted(draw.sample(range(width + 1), draw.randrange(2, 8)))
    chunks = [(draw.choice("XYZ"), a, b - 1) for a, b in zip(cuts, cuts[1:], strict=False)]
    return [chunk for chunk in chunks if draw.random() < 0.7]


@pytest.mark.parametrize(
    ("mode", "scheme"), [("lenient", "iob2"), ("lenient", "iobes"), ("iob2", "iob2"), ("iobes",) * 2]
)
def test_read_tags_inverts_writing(mode, scheme):
    draw = random.Random(0)
    documents = [disjoint_spans(draw, 12) for _ in range(50)] + [[]]
    tags = [written_tags(spans, 12, scheme) for spans in documents]
    assert spans_of(tags, mode) == documents
    metric = SpanScores()
    metric.update_tags(tags, tags, mode)
    assert metric.compute()["f1"] == 1


def bracketed(name: str, clusters: list[list[tuple[int, int]]], width: int) -> list[str]:
    lines = [f"#begin document {name}"]
    for token in range(width):
        marks = []
        for index, cluster in enumerate(clusters):
            for first, last in sorted(cluster):
                if first == token:
                    marks.append(f"({index})" if last == token else f"({index}")
                elif last == token:
                    marks.append(f"{index})")
        lines.append(f"doc 0 {token} word {'|'.join(marks) or '-'}")
    return [*lines, "", "#end document"]


def nested_clusters(draw: random.Random, width: int) -> list[list[tuple[int, int]]]:
    """Mentions of one cluster do not overlap, so that each bracket has one partner."""
    clusters = []
    for _ in range(4):
        cuts = sorted(draw.sample(range(width + 1), draw.randrange(2, 7)))
        mentions = [(a, b - 1) for a, b in zip(cuts, cuts[1:], strict=False)]
        clusters.append(draw.sample(mentions, draw.randrange(1, len(mentions) + 1)))
    return clusters


def test_read_conll_inverts_writing():
    draw = random.Random(0)
    documents = {f"({n}); part 000": nested_clusters(draw, 15) for n in range(30)}
    lines = [line for name, clusters in documents.items() for line in bracketed(name, clusters, 15)]
    result = dict(read_conll_coref(lines))
    assert result.keys() == documents.keys()
    for name, clusters in documents.items():
        assert sorted(map(sorted, result[name])) == sorted(map(sorted, clusters))


def test_read_conll_coref_fields_without_brackets_are_none():
    assert list(read_conll_coref(["#begin document x", "a _", "b *", "#end document"])) == [("x", [])]


def lines_of(line):
    return ["#begin document x", line, "#end document"]


BRACKETS = "wanted '-' or brackets such as (3|4)"
WORD = "\tAnn\tAnn\tPROPN\tNNP\t_\t2\tnsubj\t_\tEntity=(e1-person-1-)"
CONLL_U = (
    "got CoNLL-U, the format of CorefUD, wanted CoNLL-2012: brackets in one column, between #begin document and "
    "#end document"
)
MALFORMED = [
    (lines_of("w (7"), "line 2: bracket (7 is never closed"),
    (lines_of("w 7)"), "line 2: bracket 7) was never opened"),
    (lines_of("w (7)x("), f"line 2: got '(7)x(', {BRACKETS}"),
    (lines_of("w (7)|"), f"line 2: got '(7)|', {BRACKETS}"),
    (lines_of("w 7"), f"line 2: got '7', {BRACKETS}"),
    (lines_of("#begin document y"), "line 1: the document 'x' has no end, wanted #end document"),
    (lines_of("#end document"), "line 3: got '#end document' outside of a document, wanted #begin document"),
    (["#begin document x", "w -"], "line 1: the document 'x' has no end, wanted #end document"),
    (["# a comment", "", "w -"], "line 3: got 'w -' outside of a document, wanted #begin document"),
    (["# newdoc id = a", "# global.Entity = eid-etype-head", "# sent_id = 1", f"1{WORD}", ""], f"line 2: {CONLL_U}"),
    (["# newdoc id = a", f"1-2{WORD}", ""], f"line 2: {CONLL_U}"),
    (["# newdoc id = a", f"1.1{WORD}", ""], f"line 2: {CONLL_U}"),
]


@pytest.mark.parametrize(("lines", "message"), MALFORMED)
def test_read_conll_malformed_files_raise(lines, message):
    with raises(ValueError, message):
        list(read_conll_coref(lines))


def test_read_conll_column_is_selected():
    lines = bracketed("a", [[(0, 1)]], 3)
    for column in (99, -6):
        with raises(ValueError, f"line 2: got 5 columns, wanted column={column} among them"):
            list(read_conll_coref(lines, column=column))
    lines[0] = "\ufeff" + lines[0]
    assert list(read_conll_coref(iter(lines), column=4)) == [("a", [[(0, 1)]])]
