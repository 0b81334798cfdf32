"""Agreement with seqeval on random tag sequences."""

import random

import pytest

from tensormetrics.structured import SpanScores, ner_report, read_tags

seqeval = pytest.importorskip("seqeval.metrics")
schemes = pytest.importorskip("seqeval.scheme")
TAGS = ("O", *(f"{prefix}-{label}" for prefix in "BIES" for label in ("PER", "LOC")))
LETTERS = {"iob1": "BI", "iob2": "BI", "ioe1": "IE", "ioe2": "IE", "iobes": "BIES", "bilou": "BILU", "lenient": "BIES"}
pytestmark = pytest.mark.filterwarnings("ignore:((pred|ref). )?tags do not fit")


def drawn(generator: random.Random, letters: str, documents: int, suffix: bool = False) -> list[list[str]]:
    """Random tags, half of whose spans fit no scheme."""
    tags = [
        "O",
        *(f"{label}-{letter}" if suffix else f"{letter}-{label}" for letter in letters for label in ("A", "B-C")),
    ]
    return [generator.choices(tags, k=generator.randint(1, 12)) for _ in range(documents)]


def noisy(generator: random.Random, rows: list[list[str]]) -> list[list[str]]:
    distinct = sorted({tag for row in rows for tag in row})
    return [[tag if generator.random() < 0.7 else generator.choice(distinct) for tag in row] for row in rows]


@pytest.mark.parametrize("average", ["micro", "types", "weighted"])
def test_tags_equal_seqeval(average):
    generator = random.Random(0)
    pred, ref = [], []
    for _ in range(10_000):
        length = generator.randint(1, 12)
        ref.append(generator.choices(TAGS, k=length))
        pred.append([tag if generator.random() < 0.7 else generator.choice(TAGS) for tag in ref[-1]])
    metric = SpanScores(average=average, labels=None if average == "micro" else ("PER", "LOC"))
    metric.update_tags(pred, ref)
    theirs = {"micro": "micro", "types": "macro", "weighted": "weighted"}[average]
    wanted = [getattr(seqeval, f"{score}_score")(ref, pred, average=theirs) for score in ("precision", "recall", "f1")]
    assert [float(metric.compute()[name]) for name in ("precision", "recall", "f1")] == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("suffix", [False, True])
@pytest.mark.parametrize("mode", LETTERS)
def test_spans_of_every_scheme(mode, suffix):
    tags = drawn(random.Random(1), LETTERS[mode], 2000, suffix)
    read = read_tags(tags, mode, suffix=suffix)
    rows = zip(read.spans.tolist(), read.lengths.tolist(), strict=True)
    found = [[(read.labels[label], first, last) for label, first, last in row[:n]] for row, n in rows]
    if mode == "lenient":
        wanted = [seqeval.sequence_labeling.get_entities(row, suffix) for row in tags]
    else:
        entities = schemes.Entities(tags, getattr(schemes, mode.upper()), suffix).entities
        wanted = [[(entity.tag, entity.start, entity.end - 1) for entity in row] for row in entities]
    assert found == wanted


@pytest.mark.parametrize("mode", LETTERS)
def test_report_is_theirs(mode):
    generator = random.Random(2)
    ref = drawn(generator, LETTERS[mode], 300)
    pred = noisy(generator, ref)
    strict = {} if mode == "lenient" else {"mode": "strict", "scheme": getattr(schemes, mode.upper())}
    assert ner_report(pred, ref, mode) == seqeval.classification_report(ref, pred, zero_division=0, **strict)
