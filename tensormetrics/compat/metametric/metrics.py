"""The scores of `metametric.metrics`, means over documents.

`CorefScores`, `EventScores`, `Smatch` and `RankingScores` of `structured` are faster, and follow the reference scorers
of the field.
"""

from collections.abc import Iterable
from typing import Any

from ... import structured
from ...structured import AMR, Argument, Entity, EntitySet, Event, EventSet, Mention, Trigger
from ...structured.suites.structures import Membership
from . import dsl
from .core import FScore
from .suites import MetricFamily, Values


def common_links(pred: Entity, ref: Entity) -> int:
    """Count the links of MUC, those that join the mentions that two entities share."""
    return max(len({*pred.mentions} & {*ref.mentions}) - 1, 0)


def memberships(entities: EntitySet) -> list[Membership]:
    return [Membership(mention, entity) for entity in entities.entities for mention in entity.mentions]


def b_cubed(normalizer: str) -> structured.extend.StructuredMetric:
    inner = dsl.dataclass[Membership]({"mention": ..., "entity": dsl.normalize[normalizer](dsl.auto[Entity])})
    return dsl.preprocess[memberships](dsl.set_matching[Membership, "<->", normalizer](inner))


muc_link = dsl.from_func(common_links)
muc = dsl.dataclass[EntitySet]({"entities": dsl.set_matching[Entity, "~"](muc_link)})
b_cubed_precision, b_cubed_recall = b_cubed("precision"), b_cubed("recall")
_mentions = dsl.set_matching[Mention, "<->", "f1"](...)
ceaf_phi4 = dsl.dataclass[EntitySet](
    {"entities": dsl.set_matching[Entity](dsl.dataclass[Entity]({"mentions": _mentions}))}
)


def _family(metric: structured.extend.StructuredMetric, *normalizers: str) -> MetricFamily:
    return dsl.family(metric, dsl.macro_average(normalizers or ("precision", "recall", "f1")))


def f1_of_means(values: Values) -> Values:
    precision, recall = values["precision"], values["recall"]
    return {"f1": FScore().normalize(precision * recall, precision, recall)}


def mean_f1(values: Values) -> Values:
    return {"avg-f1": (values["muc-f1"] + values["b_cubed-f1"] + values["ceaf_phi4-f1"]) / 3}


coref_suite = dsl.suite(
    {
        "muc": _family(muc),
        "b_cubed": dsl.suite(
            {"precision": _family(b_cubed_precision, "none"), "recall": _family(b_cubed_recall, "none")}
        ).with_extra(f1_of_means),
        "ceaf_phi4": _family(ceaf_phi4),
    }
).with_extra(mean_f1)


def event_metric(fields: dict[str, Any]) -> structured.extend.StructuredMetric:
    return dsl.dataclass[EventSet]({"events": dsl.set_matching[Event](dsl.dataclass[Event](fields))})


_spans = dsl.set_matching[Argument](dsl.dataclass[Argument]({"mention": ...}))
trigger_identification = event_metric({"trigger": dsl.dataclass[Trigger]({"mention": ...})})
trigger_classification = event_metric({"trigger": ...})
argument_identification = event_metric({"trigger": ..., "args": _spans})
argument_classification = event_metric({"trigger": ..., "args": dsl.set_matching[Argument](...)})
event_extraction_suite = dsl.suite(
    {
        "trigger_identification": _family(trigger_identification),
        "trigger_classification": _family(trigger_classification),
        "argument_identification": _family(argument_identification),
        "argument_classification": _family(argument_classification),
    }
)

s_match = dsl.normalize["f1"](dsl.auto[AMR])


def sort_by_score(x: Iterable[tuple[str, float]]) -> list[str]:
    return [name for name, _ in sorted(x, key=lambda pair: pair[1], reverse=True)]


ranking_match = dsl.preprocess_param[sort_by_score](dsl.ranking[10](dsl.auto[str]))
p_at_k = dsl.normalize_param["precision@k"](ranking_match)
r_at_k = dsl.normalize_param["recall@k"](ranking_match)
ranking_ap = dsl.normalize_param["ranking_ap"](ranking_match)
