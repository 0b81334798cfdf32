"""Names of the package metametric: `from tensormetrics.structured.metametric_names import muc`.

`metametric.dsl` corresponds to `tensormetrics.structured.dsl`; the decorator and the classes of structures have the
same names in `tensormetrics.structured`. Suites return the values of metametric, a mean over documents; `CorefScores`,
`EventScores` and `Smatch` are faster, sum over documents and follow the reference scorers of the field, and so does
`RankingScores`, which averages queries.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import dsl
from .objects.family import Family as Family
from .objects.metric import StructuredMetric as StructuredMetric
from .objects.reductions import Reduction as Reduction
from .objects.suite import Suite as Suite
from .suites.structures import AMR, Argument, Entity, EntitySet, Event, EventSet, Membership, Mention, Trigger
from .tensors.constraints import Constraint as Constraint
from .tensors.normalizers import normalize

Metric, MetricFamily, MetricSuite, MatchingConstraint = StructuredMetric, Family, Suite, Constraint


def common_links(pred: Entity, ref: Entity) -> int:
    """Count the links of MUC, those that join the mentions that two entities share."""
    return max(len({*pred.mentions} & {*ref.mentions}) - 1, 0)


def memberships(entities: EntitySet) -> list[Membership]:
    return [Membership(mention, entity) for entity in entities.entities for mention in entity.mentions]


def b_cubed(normalizer: str) -> StructuredMetric:
    inner = dsl.dataclass[Membership]({"mention": ..., "entity": dsl.normalize[normalizer](dsl.auto[Entity])})
    return dsl.preprocess[memberships](dsl.set_matching[Membership, "<->", normalizer](inner))


muc = dsl.dataclass[EntitySet]({"entities": dsl.set_matching[Entity, "~"](dsl.from_func(common_links))})
b_cubed_precision, b_cubed_recall = b_cubed("precision"), b_cubed("recall")
_mentions = dsl.set_matching[Mention, "<->", "f1"](...)
ceaf_phi4 = dsl.dataclass[EntitySet](
    {"entities": dsl.set_matching[Entity](dsl.dataclass[Entity]({"mentions": _mentions}))}
)


def family(metric: StructuredMetric, scores: Sequence[str] = ("precision", "recall", "f1")) -> Family:
    return Family(metric, dsl.macro_average(scores), policy="metametric")


def f1_of_means(values: dict[str, Tensor]) -> dict[str, Tensor]:
    # values: name -> ()
    precision, recall = values["precision"], values["recall"]
    return {"f1": normalize(precision * recall, precision, recall)}


def mean_f1(values: dict[str, Tensor]) -> dict[str, Tensor]:
    # values: name -> ()
    return {"avg-f1": (values["muc-f1"] + values["b_cubed-f1"] + values["ceaf_phi4-f1"]) / 3}


coref_suite = Suite(
    {
        "muc": family(muc),
        "b_cubed": Suite(
            {"precision": family(b_cubed_precision, ["none"]), "recall": family(b_cubed_recall, ["none"])}
        ).with_extra(f1_of_means),
        "ceaf_phi4": family(ceaf_phi4),
    }
).with_extra(mean_f1)


def event_metric(fields: dict[str, Any]) -> StructuredMetric:
    return dsl.dataclass[EventSet]({"events": dsl.set_matching[Event](dsl.dataclass[Event](fields))})


_spans = dsl.set_matching[Argument](dsl.dataclass[Argument]({"mention": ...}))
trigger_identification = event_metric({"trigger": dsl.dataclass[Trigger]({"mention": ...})})
trigger_classification = event_metric({"trigger": ...})
argument_identification = event_metric({"trigger": ..., "args": _spans})
argument_classification = event_metric({"trigger": ..., "args": dsl.set_matching[Argument](...)})
event_extraction_suite = Suite(
    {
        "trigger_identification": family(trigger_identification),
        "trigger_classification": family(trigger_classification),
        "argument_identification": family(argument_identification),
        "argument_classification": family(argument_classification),
    }
)

s_match = dsl.normalize["f1"](dsl.auto[AMR])


class RankedScores:
    """Scores of a ranking of (item, score) pairs against another one at depths 1 to 10, (10,) float64.

    measure: "precision", o_k / min(k, n), or "recall", o_k / min(k, m); with `average` the sum of P_k (R_k - R_(k-1)).
    """

    def __init__(self, measure: str, average: bool = False) -> None:
        self.measure, self.average, self.ranking = measure, average, dsl.ranking[10](dsl.auto[str])

    def score(self, pred: Iterable[tuple[str, float]], ref: Iterable[tuple[str, float]]) -> Tensor:
        # ->  (10,), or () with `average`
        names = [[name for name, _ in sorted(items, key=lambda pair: pair[1], reverse=True)] for items in (pred, ref)]
        hits = self.ranking(names[:1], names[1:]).hits
        depth = torch.arange(1, 11, device="cpu")
        padded = torch.cat([hits.new_zeros(1), hits])[depth.clamp(max=len(hits))]
        precision, recall = (padded / depth.clamp(max=max(len(items), 1)) for items in names)
        if self.average:
            return precision @ recall.diff(prepend=recall.new_zeros(1))
        return precision if self.measure == "precision" else recall


p_at_k, r_at_k, ranking_ap = RankedScores("precision"), RankedScores("recall"), RankedScores("precision", average=True)
