"""Readers invert writing."""

import random

import pytest
import torch

from tensormetrics.structured import (
    CorefScores,
    Family,
    SpanScores,
    derive,
    micro_average,
    read_conll_coref,
    read_tags,
)


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
    read = read_tags([written_tags(spans, 12, scheme) for spans in documents], mode)
    rows = zip(read.spans.tolist(), read.lengths.tolist(), strict=True)
    assert [[(read.labels[label], a, b) for label, a, b in row[:n]] for row, n in rows] == documents
    metric = SpanScores()
    metric.update_tags(*[[written_tags(spans, 12, scheme) for spans in documents]] * 2, mode)
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


def test_read_clusters_are_scored():
    lines = bracketed("a", [[(0, 1), (3, 3)], [(4, 5)]], 6)
    (_, clusters), metric = next(read_conll_coref(lines)), CorefScores()
    metric.update_clusters([clusters], [clusters])
    assert torch.stack(list(metric.compute().values())).eq(1).all()


def test_read_conll_malformed_files_raise():
    lines = bracketed("a", [[(0, 1)]], 3)
    for kind, inputs, message in (
        (TypeError, "\n".join(lines), "lines: got one str, wanted lines; write text.splitlines()"),
        (TypeError, b"", "lines: got one bytes, wanted lines; write text.splitlines()"),
        (TypeError, [b"#begin"], "line 1: got b'#begin', wanted text; open files without 'b' in their mode"),
        (ValueError, ["", "word -"], "line 2: got 'word -' outside of a document, wanted #begin document"),
    ):
        with pytest.raises(kind) as error:
            list(read_conll_coref(inputs))
        assert str(error.value) == message
    for column in (99, -6):
        with pytest.raises(ValueError) as error:
            list(read_conll_coref(lines, column=column))
        assert str(error.value) == f"line 2: got 5 columns, wanted column={column} among them"
    lines[0] = "\ufeff" + lines[0]
    assert list(read_conll_coref(iter(lines), column=4)) == [("a", [[(0, 1)]])]


def test_generators_of_documents():
    for update in (
        lambda: CorefScores().update_clusters((x for x in []), []),
        lambda: Family(derive(list[int]), micro_average(["f1"])).update((x for x in []), []),
        lambda: derive(list[int])((x for x in []), []),
    ):
        with pytest.raises(TypeError) as error:
            update()
        assert str(error.value) == "preds: got a generator, wanted a list; write list(preds)"
