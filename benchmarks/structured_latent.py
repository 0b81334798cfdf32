"""Smatch with proof against smatchpp's integer programme and metametric: equal values first, then times, interleaved.

    python benchmarks/structured_latent.py [--variables 20] [--output benchmarks/results/<name>.md]

Pairs of random graphs that have little in common, which are the hard ones. Rivals that are not installed are left out;
reading PENMAN text is part of everybody's time. `one by one` updates with a pair, `batch` with all of them.
"""

import argparse
import datetime
import logging
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

from tensormetrics.structured import Smatch, Variable, read_penman

Pair = tuple[str, str]


def random_graph(source: random.Random, nodes: int) -> str:
    """A tree with some more edges, none of which returns to its own node."""
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
    matched, _, _, exact = METRIC.sums[0, :4].tolist()
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

    def entry(own: Variable | str) -> object:
        return TheirVariable(own.name) if isinstance(own, Variable) else own

    def graph(text: str) -> AMR:
        return AMR([Prop(*map(entry, (prop.subj, prop.pred, prop.obj))) for prop in read_penman(text)])

    return lambda pairs: [AMR.metric.score(graph(pred), graph(ref)) for pred, ref in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variables", type=int, nargs="*", default=[5, 10, 20])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    logging.getLogger("penman").setLevel(logging.ERROR)
    torch.set_num_threads(1)

    installed = [
        (module, make) for module, make in (("smatchpp", smatchpp), ("metametric", metametric)) if find_spec(module)
    ]
    solvers = {"one by one": one_by_one, "batch": batch} | {module: make() for module, make in installed}
    lines = [
        "# Smatch, every match proved to be the best",
        "",
        f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, 1 thread, "
        + ", ".join(f"{module} {version(module)}" for module in ("scipy", *dict(installed)))
        + f"; load average at the start {os.getloadavg()[0]:.1f}.",
        f"Milliseconds a pair: median of {arguments.rounds} rounds over {arguments.pairs} pairs (least), interleaved. "
        "The sums of matched triples are equal.",
        "",
        "| variables | " + " | ".join(solvers) + " |",
        "|---|" + "---|" * len(solvers),
    ]
    for variables in arguments.variables:
        source = random.Random(variables)
        pairs = [tuple(random_graph(source, variables) for _ in range(2)) for _ in range(arguments.pairs)]
        totals = {name: sum(solve(pairs)) for name, solve in solvers.items()}
        assert len({round(total) for total in totals.values()}) == 1, totals
        times: dict[str, list[float]] = {name: [] for name in solvers}
        for _ in range(arguments.rounds):
            for name, solve in solvers.items():
                start = time.perf_counter()
                solve(pairs)
                times[name].append((time.perf_counter() - start) * 1e3 / len(pairs))
        cells = [f"{statistics.median(taken):.1f} ({min(taken):.1f})" for taken in times.values()]
        lines.append(f"| {variables} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
