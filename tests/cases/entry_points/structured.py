"""Quantities of predicted structures."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from tensormetrics import structured
from tensormetrics.structured import functional

from ..latent import GRAPHS, items_with_variables
from .quantity import EntryPoint, Quantity, computed, estimated, updated

Tags = tuple[list[list[str]], list[list[str]]]
SEEDED = {"replicates": 200, "seed": 3}


@dataclass(frozen=True)
class Span:
    label: str
    first: int
    last: int


@structured.metametric(normalizer="f1", policy="conventional")  # as scorers of entities
@dataclass
class Document:
    spans: list[Span]


def random_tags(items: int, kinds: str = "AB") -> Callable[[Generator], Tags]:
    names = ["O", *(f"B-{kind}" for kind in kinds)]

    def sample_tags(generator: Generator) -> list[list[str]]:
        indices = torch.randint(len(names), (items, 6), generator=generator)
        return [[names[n] for n in row] for row in indices.tolist()]

    return lambda generator: (sample_tags(generator), sample_tags(generator))


SENTENCES = {
    "ordinary": random_tags(9),
    "one sentence": random_tags(1),
    "one label": random_tags(9, "A"),
    "no spans": lambda _: ([["O", "O"]], [["O", "O"]]),
    "nothing predicted": lambda _: ([["O", "O"], ["O"]], [["B-A", "I-A"], ["B-B"]]),
    "nothing to find": lambda _: ([["B-A", "I-A"]], [["O", "O"]]),
    "all right": lambda _: ([["B-A", "I-A"], ["B-B"]], [["B-A", "I-A"], ["B-B"]]),
    "an empty sentence": lambda _: ([["B-A"], []], [["B-B"], []]),
    "other numbers of sentences": lambda _: ([["O"]], [["O"], ["O"]]),
    "other lengths of a sentence": lambda _: ([["O", "O"]], [["O"]]),
    "no tag": lambda _: ([["X-A"]], [["O"]]),
}
NO_SENTENCES = {"other lengths of a sentence": "spans do not contain the length of their sentence"}
NO_SPANS = {"no spans": "F1 without spans is NaN"}
NO_BOUND = dict.fromkeys(("one sentence", "no spans", "nothing to find"), "its scores have no known upper bound")


def spans_of(pred: list[list[str]], ref: list[list[str]]) -> tuple[Tensor, ...]:
    tables = [structured.read_tags(tags, labels=["A", "B"]) for tags in (pred, ref)]
    return *(table.spans for table in tables), *(table.lengths for table in tables)


def keys_of(pred: list[list[str]], ref: list[list[str]]) -> tuple[Tensor, ...]:
    """Encode each span as one integer."""
    *spans, n_pred, n_ref = spans_of(pred, ref)
    return *((span * torch.tensor([100, 10, 1])).sum(-1) for span in spans), n_pred, n_ref


def similarity_of(pred: list[list[str]], ref: list[list[str]]) -> tuple[Tensor, ...]:
    pred_keys, ref_keys, *lengths = keys_of(pred, ref)
    return (pred_keys[:, :, None] == ref_keys[:, None]).double(), *lengths


def documents_of(*tags: list[list[str]]) -> tuple[list[Document], ...]:
    def document(spans: Tensor, length: int) -> Document:
        return Document([Span("AB"[label], first, last) for label, first, last in spans[:length].tolist()])

    tables = [structured.read_tags(document_tags, labels=["A", "B"]) for document_tags in tags]
    return tuple([document(*row) for row in zip(table.spans, table.lengths.tolist(), strict=True)] for table in tables)


def ner_report_f1(pred: list[list[str]], ref: list[list[str]]) -> float:
    text = structured.ner_report(pred, ref, digits=15)
    rows = [line.split() for line in text.splitlines()]
    return next((float(row[4]) for row in rows if row[:2] == ["micro", "avg"]), 0.0)


def multiset_f1(*data: Tensor) -> Tensor:
    """Compute F1 of the overlaps summed over all documents."""
    overlap_parts = functional.multiset_overlap(*keys_of(*data))
    return functional.normalize(*(part.sum() for part in overlap_parts), "f1")


def f1_of_span_errors(pred: list[list[str]], ref: list[list[str]]) -> float:
    correct, incorrect, _, missed, spurious = map(len, structured.span_errors(pred, ref)[:5])
    items = 2 * correct + 2 * incorrect + missed + spurious
    return 2 * correct / items if items else 0.0


def random_relations(generator: Generator) -> tuple[Tensor, ...]:
    items = (torch.randint(0, 2, (8, n, 5), generator=generator) for n in (6, 7))
    return *items, *(torch.randint(0, n + 1, (8,), generator=generator) for n in (6, 7))


def latent_f1(*data: Tensor) -> Tensor:
    overlap = functional.latent_overlap(*data)
    return functional.normalize(overlap.value.sum(), *(length.sum().double() for length in data[-2:]), "f1")


def parsed_graphs(*graphs: str) -> list[list[Any]]:
    return [[structured.AMR(structured.read_penman(graph))] for graph in graphs]


def smatch_f1(*graphs: str) -> Tensor:
    overlap = structured.metric_of(structured.AMR).overlap(*parsed_graphs(*graphs))
    return functional.normalize(overlap.cross, overlap.pred, overlap.ref, "f1")


def family_metric(**options: Any) -> structured.Family:
    return structured.Family(structured.metric_of(Document), structured.micro_average(["f1"]), **options)


def updated_tags(pred: Any, ref: Any, **options: Any) -> structured.SpanScores:
    metric = structured.SpanScores(**options)
    metric.update_tags(pred, ref)
    return metric


def fields_of(*tags: list[list[str]]) -> tuple[list[dict[str, Any]], ...]:
    """Convert the tags to documents as JSON."""
    return tuple(
        [{"spans": [vars(span) for span in document.spans]} for document in documents]
        for documents in documents_of(*tags)
    )


def field_scores(*tags: list[list[str]], **options: Any) -> structured.FieldScores:
    metric = structured.FieldScores(Document, match=1.0, **options)
    metric.update(*fields_of(*tags))
    return metric


def f1_of_report(*tags: list[list[str]]) -> Tensor:
    report = structured.evaluate(*fields_of(*tags), Document, match=1.0, replicates=0)
    return torch.tensor(report["spans[]"].f1, dtype=torch.float64).nan_to_num()


ENTITIES: dict[str, EntryPoint] = {
    "structured.SpanScores, update_tags": lambda *data: updated_tags(*data).compute()["f1"],
    "structured.SpanScores": computed(structured.SpanScores, "f1", spans_of),
    "structured.SpanScores, with labels": lambda *data: updated_tags(*data, labels=["A", "B"]).compute()["f1"],
    "structured.ner_report": ner_report_f1,
    "structured.MultisetMatch": computed(structured.MultisetMatch, "f1", keys_of),
    "structured.multiset_overlap": multiset_f1,
    "structured.span_errors": f1_of_span_errors,
    "structured.SetMatch": computed(structured.SetMatch, "f1", similarity_of),
    "structured.FieldScores": lambda *data: field_scores(*data).compute()["f1[spans[]]"].nan_to_num(),
    "structured.evaluate": f1_of_report,
    "structured.Family": computed(family_metric, "f1", documents_of),
}
BY_TAGS = {f"structured.{name}" for name in ("SpanScores, update_tags", "SpanScores, with labels", "ner_report")}
BY_SPANS = ENTITIES.keys() - BY_TAGS - {"structured.span_errors"}
UNBOUNDED = "structured.SetMatch, interval", "structured.Family, interval"
ENTITY_INTERVALS: dict[str, EntryPoint] = {
    "structured.SpanScores, update_tags": lambda *data: updated_tags(*data, **SEEDED).interval()["f1"],
    "structured.SpanScores, interval": estimated(lambda: structured.SpanScores(**SEEDED), "f1", spans_of),
    "structured.MultisetMatch, interval": estimated(lambda: structured.MultisetMatch(**SEEDED), "f1", keys_of),
    "structured.SetMatch, interval": estimated(lambda: structured.SetMatch(**SEEDED), "f1", similarity_of),
    "structured.FieldScores, interval": lambda *data: field_scores(*data, **SEEDED).interval()["f1[spans[]]"],
    "structured.Family, interval": estimated(lambda: family_metric(**SEEDED), "f1", documents_of),
}


def exact_similarities(batch: int, n: int, m: int) -> Callable[[Generator], tuple[Tensor, ...]]:
    return lambda generator: (torch.randint(-2, 9, (batch, n, m), generator=generator).double() / 8,)


def similarities_with_lengths(generator: Generator) -> tuple[Tensor, ...]:
    (similarity,) = exact_similarities(5, 4, 6)(generator)
    return similarity, *(torch.randint(0, n + 1, (5,), generator=generator) for n in (4, 6))


SIMILARITIES = {
    "ordinary": exact_similarities(5, 4, 6),
    "lengths": similarities_with_lengths,
    "ties": lambda _: (torch.ones(2, 3, 3),),
    "one of each": exact_similarities(3, 1, 1),
    "no predictions": exact_similarities(3, 0, 4),
    "nothing at all": exact_similarities(3, 0, 0),
    "half": lambda generator: (exact_similarities(5, 4, 6)(generator)[0].half(),),
    "not a number": lambda generator: (exact_similarities(2, 3, 3)(generator)[0] / 0,),
    "integers": lambda generator: (torch.ones(2, 3, 3).long(),),
}


def overlap_quantity(name: str, function: str) -> Quantity:
    def overlap_f1(similarity: Tensor, *lengths: Tensor) -> Tensor:
        cross = getattr(structured.functional, function)(similarity, *lengths)
        n, m = lengths or (torch.full(similarity.shape[:1], size) for size in similarity.shape[1:])
        return functional.normalize(cross.sum(), n.sum().double(), m.sum().double(), "f1")

    metric_class = getattr(structured, name)
    entry_points: dict[str, EntryPoint] = {
        f"structured.{name}": lambda *data: updated(metric_class(), *data).compute()["f1"],
        f"structured.{function}": overlap_f1,
        "structured.normalize": overlap_f1,
    }
    return Quantity(SIMILARITIES, entry_points)


def box_f1(pred: Tensor, ref: Tensor) -> Tensor:
    overlap = functional.set_overlap((functional.box_iou(pred, ref) >= 0.5).double())
    n, m = (torch.tensor(float(boxes.shape[:2].numel())) for boxes in (pred, ref))
    return functional.normalize(overlap.sum(), n, m, "f1")


def random_boxes(generator: Generator) -> tuple[Tensor, Tensor]:
    start = 10 * torch.rand(4, 5, 2, generator=generator)
    ref = torch.cat([start, start + 2 + 4 * torch.rand(4, 5, 2, generator=generator)], -1)
    return ref[:, [1, 0, 4]] + torch.randn(4, 3, 4, generator=generator) / 2, ref


QUANTITIES = {
    "entity F1": Quantity(
        SENTENCES,
        ENTITIES,
        ENTITY_INTERVALS,
        skip_reasons={
            **dict.fromkeys(BY_SPANS, NO_SENTENCES),
            **dict.fromkeys(ENTITY_INTERVALS.keys() - {"structured.SpanScores, update_tags"}, NO_SENTENCES),
            **dict.fromkeys(UNBOUNDED, NO_SENTENCES | NO_BOUND),
            "structured.FieldScores, interval": NO_SENTENCES | NO_SPANS,
        },
    ),
    "relation F1": Quantity(
        {"ordinary": random_relations},
        {
            "structured.RelationScores": computed(structured.RelationScores, "f1"),
            "structured.MultisetMatch": computed(lambda: structured.MultisetMatch(columns=True), "f1"),
        },
    ),
    "F1 of graphs": Quantity(
        {"ordinary": lambda generator: items_with_variables(generator, (3,))},
        {
            "structured.LatentMatch": lambda *data: updated(structured.LatentMatch(), *data).compute()["f1"],
            "structured.latent_overlap": latent_f1,
        },
    ),
    "Smatch": Quantity(
        {"ordinary": lambda _: (GRAPHS[1][0], GRAPHS[2][0]), "equal": lambda _: (GRAPHS[1][0], GRAPHS[1][0])},
        {
            "structured.Smatch": computed(structured.Smatch, "f1", lambda pred, ref: ([pred], [ref])),
            "structured.Smatch, of dataclasses": computed(structured.Smatch, "f1", parsed_graphs),
            "structured.metric_of": smatch_f1,
        },
    ),
    "F1 of sets": overlap_quantity("SetMatch", "set_overlap"),
    "F1 of sequences": overlap_quantity("SequenceMatch", "sequence_overlap"),
    "F1 of boxes": Quantity(
        {"ordinary": random_boxes, "equal": lambda _: (torch.tensor([[[0.0, 0, 2, 2]]]),) * 2},
        {
            "structured.BoxMatch": lambda *data: updated(structured.BoxMatch(objective="count"), *data).compute()["f1"],
            "structured.box_iou": lambda pred, ref: box_f1(pred, ref),
            "structured.set_overlap": box_f1,
        },
    ),
}
