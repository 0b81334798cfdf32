"""Agreement with smatchpp 1.8: matched triples of its integer programme on random graphs."""

import logging
import random

import pytest

from tensormetrics.structured import Smatch

pytest.importorskip("penman")
pytest.importorskip("mip")
pytest.importorskip("smatchpp")


def random_graph(source: random.Random, nodes: int) -> str:
    """A tree with some more edges. No edge returns to its own node: smatchpp's programme counts such an edge twice."""
    children: list[list[int]] = [[] for _ in range(nodes)]
    for node in range(1, nodes):
        children[source.randrange(max(0, node - 4), node)].append(node)

    def text(node: int) -> str:
        parts = [f"n{node} / c{source.randrange(max(2, nodes // 2))}"]
        for child in children[node]:
            parts.append(f":ARG{source.randrange(3)}{source.choice(['', '', '-of'])} {text(child)}")
        other = source.randrange(nodes)
        if source.random() < 0.3 and other != node:
            parts.append(f":ARG{source.randrange(3, 5)} n{other}")
        if source.random() < 0.2:
            parts.append(source.choice([":polarity -", ":quant 2", ':name "Ann"']))
        return f"({' '.join(parts)})"

    return text(0)


@pytest.mark.slow
def test_integer_programme():
    from smatchpp import Smatchpp, solvers
    from smatchpp.formalism.generic import tools

    logging.getLogger("penman").setLevel(logging.ERROR)  # repeated triples
    source = random.Random(0)
    peer = Smatchpp(alignmentsolver=solvers.get_solver("ilp"), graph_standardizer=tools.GenericStandardizer())
    for _ in range(200):
        pred, ref = (random_graph(source, source.randint(1, 9)) for _ in range(2))
        counts, _ = peer.process_corpus([pred], [ref])
        metric = Smatch()
        metric.update([pred], [ref])
        matched, n_pred, n_ref = metric.sums[:3].tolist()
        assert metric.compute()["exact"] == 1
        assert [matched, matched, n_pred, n_ref] == list(counts["main"][0]), (pred, ref)
