"""Numbers of predicted structures."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from tensormetrics import structured

from ..latent import GRAPHS, items_with_variables
from .quantity import Number, Way, fed

Tags = tuple[list[list[str]], list[list[str]]]
SEEDED = {"replicates": 200, "seed": 3}


@dataclass(frozen=True)
class Span:
    label: str
    first: int
    last: int


@structured.metametric(normalizer="f1")
@dataclass
class Document:
    spans: list[Span]


def tags(items: int, kinds: str = "AB") -> Callable[[Generator], Tags]:
    names = ["O", *(f"B-{kind}" for kind in kinds)]

    def side(generator: Generator) -> list[list[str]]:
        numbers = torch.randint(len(names), (items, 6), generator=generator)
        return [[names[n] for n in row] for row in numbers.tolist()]

    return lambda generator: (side(generator), side(generator))


SENTENCES = {
    "ordinary": tags(9),
    "one sentence": tags(1),
    "one label": tags(9, "A"),
    "no spans": lambda _: ([["O", "O"]], [["O", "O"]]),
    "nothing predicted": lambda _: ([["O", "O"], ["O"]], [["B-A", "I-A"], ["B-B"]]),
    "nothing to find": lambda _: ([["B-A", "I-A"]], [["O", "O"]]),
    "all right": lambda _: ([["B-A", "I-A"], ["B-B"]], [["B-A", "I-A"], ["B-B"]]),
    "an empty sentence": lambda _: ([["B-A"], []], [["B-B"], []]),
    "other numbers of sentences": lambda _: ([["O"]], [["O"], ["O"]]),
    "other lengths of a sentence": lambda _: ([["O", "O"]], [["O"]]),
    "no tag": lambda _: ([["X-A"]], [["O"]]),
}
NO_SENTENCES = {
    **dict.fromkeys(("other lengths of a sentence",), "spans do not tell how long their sentence is"),
}
NO_SPANS = {"no spans": "F1 of nothing is not a number"}
NO_BOUND = dict.fromkeys(("one sentence", "no spans", "nothing to find"), "its scores have no known upper bound")


def spans_of(pred: list[list[str]], ref: list[list[str]]) -> tuple[Tensor, ...]:
    sides = [structured.read_tags(side, labels=["A", "B"]) for side in (pred, ref)]
    return *(side.spans for side in sides), *(side.lengths for side in sides)


def keys_of(pred: list[list[str]], ref: list[list[str]]) -> tuple[Tensor, ...]:
    """A number for each span."""
    *spans, n_pred, n_ref = spans_of(pred, ref)
    return *((side * torch.tensor([100, 10, 1])).sum(-1) for side in spans), n_pred, n_ref


def similarity_of(pred: list[list[str]], ref: list[list[str]]) -> tuple[Tensor, ...]:
    pred_keys, ref_keys, *lengths = keys_of(pred, ref)
    return (pred_keys[:, :, None] == ref_keys[:, None]).double(), *lengths


def documents_of(*sides: list[list[str]]) -> tuple[list[Document], ...]:
    def document(spans: Tensor, length: int) -> Document:
        return Document([Span("AB"[label], first, last) for label, first, last in spans[:length].tolist()])

    read = [structured.read_tags(side, labels=["A", "B"]) for side in sides]
    return tuple([document(*row) for row in zip(side.spans, side.lengths.tolist(), strict=True)] for side in read)


def reported(pred: list[list[str]], ref: list[list[str]]) -> float:
    text = structured.ner_report(pred, ref, digits=15)
    rows = [line.split() for line in text.splitlines()]
    return next((float(row[4]) for row in rows if row[:2] == ["micro", "avg"]), 0.0)


def overlaps(*data: Tensor) -> Tensor:
    """Of all documents together."""
    found = structured.multiset_overlap(*keys_of(*data))
    return structured.normalize(*(part.sum() for part in found), "f1")


def counted_errors(pred: list[list[str]], ref: list[list[str]]) -> float:
    correct, incorrect, _, missed, spurious = map(len, structured.span_errors(pred, ref)[:5])
    items = 2 * correct + 2 * incorrect + missed + spurious
    return 2 * correct / items if items else 0.0


def relations(generator: Generator) -> tuple[Tensor, ...]:
    sides = (torch.randint(0, 2, (8, n, 5), generator=generator) for n in (6, 7))
    return *sides, *(torch.randint(0, n + 1, (8,), generator=generator) for n in (6, 7))


def mapped(*data: Tensor) -> Tensor:
    found = structured.latent_overlap(*data)
    return structured.normalize(found.value.sum(), *(length.sum().double() for length in data[-2:]), "f1")


def overlap_of_graphs(*graphs: str) -> Tensor:
    pred, ref = ([structured.AMR(structured.read_penman(graph))] for graph in graphs)
    found = structured.metric_of(structured.AMR).overlap(pred, ref)
    return structured.normalize(found.cross, found.pred, found.ref, "f1")


def family(**options: Any) -> structured.Family:
    return structured.Family(structured.metric_of(Document), structured.micro_average(["f1"]), **options)


def updated_tags(pred: Any, ref: Any, **options: Any) -> structured.SpanScores:
    metric = structured.SpanScores(**options)
    metric.update_tags(pred, ref)
    return metric


def fields_of(*sides: list[list[str]]) -> tuple[list[dict[str, Any]], ...]:
    """Documents as JSON."""
    return tuple(
        [{"spans": [vars(span) for span in document.spans]} for document in side] for side in documents_of(*sides)
    )


def field_scores(*sides: list[list[str]], **options: Any) -> structured.FieldScores:
    metric = structured.FieldScores(Document, match=1.0, **options)
    metric.update(*fields_of(*sides))
    return metric


def report(*sides: list[list[str]]) -> structured.FieldReport:
    return structured.evaluate(*fields_of(*sides), Document, match=1.0, replicates=0)


ENTITIES: dict[str, Way] = {
    "structured.SpanScores, update_tags": lambda *data: updated_tags(*data).compute()["f1"],
    "structured.SpanScores": lambda *data: fed(structured.SpanScores(), *spans_of(*data)).compute()["f1"],
    "structured.SpanScores, forward": lambda *data: structured.SpanScores()(*spans_of(*data))["f1"],
    "structured.SpanScores, with labels": lambda *data: updated_tags(*data, labels=["A", "B"]).compute()["f1"],
    "structured.ner_report": reported,
    "structured.MultisetMatch": lambda *data: fed(structured.MultisetMatch(), *keys_of(*data)).compute()["f1"],
    "structured.multiset_overlap": overlaps,
    "structured.span_errors": counted_errors,
    "structured.SetMatch": lambda *data: fed(structured.SetMatch(), *similarity_of(*data)).compute()["f1"],
    "structured.FieldScores": lambda *data: field_scores(*data).compute()["f1[spans[]]"].nan_to_num(),
    "structured.evaluate": lambda *data: torch.tensor(report(*data)["spans[]"].f1, dtype=torch.float64).nan_to_num(),
    "structured.Family": lambda *data: fed(family(), *documents_of(*data)).compute()["f1"],
    "structured.Suite": lambda *data: fed(structured.Suite({"all": family()}), *documents_of(*data)).compute()[
        "all-f1"
    ],
}
BY_SPANS = [
    way
    for way in ENTITIES
    if way not in ("structured.SpanScores, update_tags", "structured.ner_report", "structured.span_errors")
]
BY_SPANS.remove("structured.SpanScores, with labels")
UNBOUNDED = "structured.SetMatch, interval", "structured.Family, interval"
ENTITY_INTERVALS: dict[str, Way] = {
    "structured.SpanScores, update_tags": lambda *data: updated_tags(*data, **SEEDED).interval()["f1"],
    "structured.SpanScores, interval": lambda *data: fed(structured.SpanScores(**SEEDED), *spans_of(*data)).interval()[
        "f1"
    ],
    "structured.MultisetMatch, interval": lambda *data: fed(
        structured.MultisetMatch(**SEEDED), *keys_of(*data)
    ).interval()["f1"],
    "structured.SetMatch, interval": lambda *data: fed(structured.SetMatch(**SEEDED), *similarity_of(*data)).interval()[
        "f1"
    ],
    "structured.FieldScores, interval": lambda *data: field_scores(*data, **SEEDED).interval()["f1[spans[]]"],
    "structured.Family, interval": lambda *data: fed(family(**SEEDED), *documents_of(*data)).interval()["f1"],
}


def eighths(batch: int, n: int, m: int) -> Callable[[Generator], tuple[Tensor, ...]]:
    return lambda generator: (torch.randint(-2, 9, (batch, n, m), generator=generator).double() / 8,)


def lengths(generator: Generator) -> tuple[Tensor, ...]:
    (similarity,) = eighths(5, 4, 6)(generator)
    return similarity, *(torch.randint(0, n + 1, (5,), generator=generator) for n in (4, 6))


SIMILARITIES = {
    "ordinary": eighths(5, 4, 6),
    "lengths": lengths,
    "ties": lambda _: (torch.ones(2, 3, 3),),
    "one of each": eighths(3, 1, 1),
    "no predictions": eighths(3, 0, 4),
    "nothing at all": eighths(3, 0, 0),
    "half": lambda generator: (eighths(5, 4, 6)(generator)[0].half(),),
    "not a number": lambda generator: (eighths(2, 3, 3)(generator)[0] / 0,),
    "integers": lambda generator: (torch.ones(2, 3, 3).long(),),
}


def of_overlap(name: str, function: str) -> Number:
    def summed(similarity: Tensor, *lengths: Tensor) -> Tensor:
        cross = getattr(structured, function)(similarity, *lengths)
        n, m = lengths or (torch.full(similarity.shape[:1], size) for size in similarity.shape[1:])
        return structured.normalize(cross.sum(), n.sum().double(), m.sum().double(), "f1")

    kind = getattr(structured, name)
    ways: dict[str, Way] = {
        f"structured.{name}": lambda *data: fed(kind(), *data).compute()["f1"],
        f"structured.{name}, forward": lambda *data: kind()(*data)["f1"],
        f"structured.{function}": summed,
        "structured.normalize": summed,
    }
    return Number(SIMILARITIES, ways)


def of_boxes(pred: Tensor, ref: Tensor) -> Tensor:
    overlap = structured.set_overlap((structured.box_iou(pred, ref) >= 0.5).double())
    n, m = (torch.tensor(float(side.shape[:2].numel())) for side in (pred, ref))
    return structured.normalize(overlap.sum(), n, m, "f1")


def boxes(generator: Generator) -> tuple[Tensor, Tensor]:
    start = 10 * torch.rand(4, 5, 2, generator=generator)
    ref = torch.cat([start, start + 2 + 4 * torch.rand(4, 5, 2, generator=generator)], -1)
    return ref[:, [1, 0, 4]] + torch.randn(4, 3, 4, generator=generator) / 2, ref


NUMBERS = {
    "entity F1": Number(
        SENTENCES,
        ENTITIES,
        ENTITY_INTERVALS,
        without={
            **dict.fromkeys(BY_SPANS, NO_SENTENCES),
            **dict.fromkeys(ENTITY_INTERVALS.keys() - {"structured.SpanScores, update_tags"}, NO_SENTENCES),
            **dict.fromkeys(UNBOUNDED, NO_SENTENCES | NO_BOUND),
            "structured.FieldScores, interval": NO_SENTENCES | NO_SPANS,
        },
    ),
    "relation F1": Number(
        {"ordinary": relations},
        {
            "structured.RelationScores": lambda *data: fed(structured.RelationScores(), *data).compute()["f1"],
            "structured.MultisetMatch": lambda *data: fed(structured.MultisetMatch(columns=True), *data).compute()[
                "f1"
            ],
        },
    ),
    "F1 of graphs": Number(
        {"ordinary": lambda generator: items_with_variables(generator, (3,))},
        {
            "structured.LatentMatch": lambda *data: fed(structured.LatentMatch(), *data).compute()["f1"],
            "structured.latent_overlap": mapped,
        },
    ),
    "Smatch": Number(
        {"ordinary": lambda _: (GRAPHS[1][0], GRAPHS[2][0]), "equal": lambda _: (GRAPHS[1][0], GRAPHS[1][0])},
        {
            "structured.Smatch": lambda pred, ref: fed(structured.Smatch(), [pred], [ref]).compute()["f1"],
            "structured.Smatch, of dataclasses": lambda *graphs: fed(
                structured.Smatch(), *([structured.AMR(structured.read_penman(graph))] for graph in graphs)
            ).compute()["f1"],
            "structured.metric_of": overlap_of_graphs,
        },
    ),
    "F1 of sets": of_overlap("SetMatch", "set_overlap"),
    "F1 of sequences": of_overlap("SequenceMatch", "sequence_overlap"),
    "F1 of boxes": Number(
        {"ordinary": boxes, "equal": lambda _: (torch.tensor([[[0.0, 0, 2, 2]]]),) * 2},
        {
            "structured.BoxMatch": lambda *data: fed(structured.BoxMatch(objective="count"), *data).compute()["f1"],
            "structured.box_iou": lambda pred, ref: of_boxes(pred, ref),
            "structured.set_overlap": of_boxes,
        },
    ),
}
