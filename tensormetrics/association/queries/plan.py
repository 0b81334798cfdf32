"""Queries as indices into a list of distinct word sets."""

import operator
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, compress

from ..embeddings.indexed_sets import Ints
from ..embeddings.query import Query, Template, joined

Names = tuple[str, ...]


@dataclass(frozen=True)
class QueryPlan:
    """Queries of distinct names; query `i` takes sets `targets[i]` and `attributes[i]` under the names `labels[i]`."""

    names: list[str]
    sets: list[list[str]]
    targets: list[Ints]
    attributes: list[Ints]
    labels: list[tuple[Names, Names]]

    def query(self, i: int) -> Query:
        targets, attributes = ([self.sets[s] for s in indices[i]] for indices in (self.targets, self.attributes))
        return Query(targets, attributes, *map(list, self.labels[i]))


def plan_queries(queries: Sequence[Query]) -> QueryPlan:
    """Plan queries without splitting them. ValueError if different queries have the same name."""
    plan, clashes = _plan(queries, ("n", "n"))
    if clashes:
        raise ValueError(f"queries: got different queries named {clashes}, wanted distinct names")
    return plan


def plan_subqueries(queries: Sequence[Query], template: Template, metric: str) -> QueryPlan:
    """Plan all choices of `template` sets from each query, without duplicates; warn about ignored ones."""
    minimum = [1 if size == "n" else size for size in template]
    fits = [all(map(operator.ge, query.template, minimum)) for query in queries]
    large = list(compress(queries, fits))
    if small := [query.query_name for query, is_large in zip(queries, fits, strict=True) if not is_large]:
        warnings.warn(
            f"queries: {small} have fewer sets than the template {template} of the metric {metric}, and are left out",
            UserWarning,
            stacklevel=3,
        )
    if not large:
        raise ValueError(f"queries: got none with the sets that the template {template} of the metric {metric} takes")
    plan, clashes = _plan(large, template)
    if clashes:
        warnings.warn(
            f"queries: different sub-queries are named {clashes}; the first of each name is kept",
            UserWarning,
            stacklevel=3,
        )
    return plan


def _plan(queries: Sequence[Query], template: Template) -> tuple[QueryPlan, list[str]]:
    """Return the plan, and the names that different queries share."""
    set_indices: dict[tuple[str, ...], int] = {}
    planned: dict[str, tuple] = {}
    clashes: dict[str, None] = {}
    for query in queries:
        selections = []
        for sets, names, size in (
            (query.target_sets, query.target_sets_names, template[0]),
            (query.attribute_sets, query.attribute_sets_names, template[1]),
        ):
            indices = [set_indices.setdefault(tuple(members), len(set_indices)) for members in sets]
            size = len(sets) if size == "n" else size
            combination_pairs = zip(combinations(indices, size), combinations(names, size), strict=True)
            selections.append([(selected, labels, joined(labels)) for selected, labels in combination_pairs])
        for targets, target_labels, target_name in selections[0]:
            for attributes, attribute_labels, attribute_name in selections[1]:
                name = f"{target_name} wrt {attribute_name}" if attribute_name else target_name
                entry = (targets, attributes, (target_labels, attribute_labels))
                if planned.setdefault(name, entry) != entry:
                    clashes[name] = None
    targets, attributes, labels = map(list, zip(*planned.values(), strict=True))
    return QueryPlan(list(planned), list(map(list, set_indices)), targets, attributes, labels), list(clashes)
