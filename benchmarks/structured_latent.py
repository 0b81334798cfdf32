"""Exact Smatch against smatchpp's integer program and metametric: equal values first, then interleaved times.

The graphs of a random pair have little in common, which makes them hard. All times include the parsing of PENMAN text.
`one by one` updates with a pair, `batch` with all of them.
"""

import logging
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from _common import Table, arguments

from tensormetrics.structured import Smatch, read_penman
from tensormetrics.structured.extend import Variable

NEEDS = ("metametric", "smatchpp", "mip")
PAIRS = 10
Pair = tuple[str, str]


def random_graph(source: random.Random, nodes: int) -> str:
    """Return a random tree with some more edges, without loops."""
    children: list[list[int]] = [[] for _ in range(nodes)]
    for node in range(1, nodes):
        children[source.randrange(max(0, node - 4), node)].append(node)

    def text(node: int) -> str:
        parts = [f"n{node} / c{source.randrange(max(2, nodes // 2))}"]
        parts += [f":ARG{source.randrange(3)} {text(child)}" for child in children[node]]
        other = source.randrange(nodes)
        if source.random() < 0.3 and other != node:
            parts.append(f":ARG{source.randrange(3, 5)} n{other}")
        return f"({' '.join(parts)})"

    return text(0)


METRIC = Smatch()


def one_by_one(pairs: list[Pair]) -> list[float]:
    return [batch([pair])[0] for pair in pairs]


def batch(pairs: list[Pair]) -> list[float]:
    METRIC.reset()
    METRIC.update(*zip(*pairs, strict=True))
    matched, _, _, exact = METRIC.sums[:4].tolist()
    assert exact == len(pairs)
    return [matched]


def smatchpp() -> Callable[[list[Pair]], list[float]]:
    from smatchpp import Smatchpp, solvers
    from smatchpp.formalism.generic import tools

    peer = Smatchpp(alignmentsolver=solvers.get_solver("ilp"), graph_standardizer=tools.GenericStandardizer())
    return lambda pairs: [peer.process_corpus([pred], [ref])[0]["main"][0][0] for pred, ref in pairs]


def metametric() -> Callable[[list[Pair]], list[float]]:
    from metametric.core.metric import Variable as TheirVariable
    from metametric.structures.amr import AMR, Prop

    def entry(part: Variable | str) -> object:
        return TheirVariable(part.name) if isinstance(part, Variable) else part

    def graph(text: str) -> AMR:
        return AMR([Prop(*map(entry, (prop.subj, prop.pred, prop.obj))) for prop in read_penman(text)])

    return lambda pairs: [AMR.metric.score(graph(pred), graph(ref)) for pred, ref in pairs]


def row(variables: int, solvers: dict[str, Callable], rounds: int) -> Iterator[list[str]]:
    source = random.Random(variables)
    pairs = [tuple(random_graph(source, variables) for _ in range(2)) for _ in range(PAIRS)]
    sums = {name: sum(solve(pairs)) for name, solve in solvers.items()}
    assert len({round(total) for total in sums.values()}) == 1, sums
    times: dict[str, list[float]] = {name: [] for name in solvers}
    for _ in range(rounds):
        for name, solve in solvers.items():
            start = time.perf_counter()
            solve(pairs)
            times[name].append((time.perf_counter() - start) * 1e3 / PAIRS)
    yield [str(variables), *(f"{statistics.median(values):.1f} ({min(values):.1f})" for values in times.values())]


def main() -> None:
    options = arguments(__doc__, ("cpu",))
    logging.getLogger("penman").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    rounds = 1 if options.quick else 3
    solvers = {"one by one": one_by_one, "batch": batch, "smatchpp": smatchpp(), "metametric": metametric()}
    notes = (
        f"Milliseconds a pair: median of {rounds} rounds over {PAIRS} pairs (least), interleaved. The sums of matched "
        "triples are equal."
    )
    packages = ("scipy", "smatchpp", "metametric")
    table = Table(options, "Smatch, every match proved to be the best", ["variables", *solvers], notes, packages)
    for variables in (5,) if options.quick else (5, 10, 20):
        table.add(row(variables, solvers, rounds))
    table.finish()


if __name__ == "__main__":
    main()
