"""Claim: from two files to trec_eval's measures, a million ranked documents take a fifth of pytrec_eval's time.

Needs pytrec-eval-terrier. Values are asserted to be equal to 1e-12 for every query before anything is timed. Rivals
read the files in every turn, in one process; times are medians.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytrec_eval
from _common import Table, arguments

from tensormetrics.retrieval import evaluate_run

NEEDS = ("pytrec_eval",)
METRICS = "map", "ndcg_cut_10", "recip_rank", "P_10", "recall_100"
ROUNDS = 5


def write(folder: Path, sizes: list[int], ties: bool) -> tuple[Path, Path]:
    """Write a run with lists of these sizes, and fifty judgements a query, half of them retrieved."""
    draw = np.random.default_rng(len(sizes))
    run, qrels = folder / "run.txt", folder / "qrels.txt"
    with run.open("w") as ranked, qrels.open("w") as judged:
        for query, size in enumerate(sizes):
            documents = draw.choice(8_800_000, size, replace=False)
            scores = np.sort(draw.normal(20, 5, size).round(1 if ties else 6))[::-1]
            for position, (document, score) in enumerate(zip(documents.tolist(), scores.tolist(), strict=True)):
                ranked.write(f"{1_000_000 + query} Q0 MARCO_D{document} {position + 1} {score} bm25\n")
            selected = np.concatenate([draw.permutation(documents)[:25], draw.integers(0, 8_800_000, 25)])
            for document in np.unique(selected).tolist():
                judged.write(f"{1_000_000 + query} 0 MARCO_D{document} {draw.integers(0, 3)}\n")
    return run, qrels


def theirs(run: Path, qrels: Path) -> dict[str, dict[str, float]]:
    with run.open() as ranked, qrels.open() as judged:
        evaluator = pytrec_eval.RelevanceEvaluator(
            pytrec_eval.parse_qrel(judged), {"map", "ndcg_cut.10", "recip_rank", "P.10", "recall.100"}
        )
        return evaluator.evaluate(pytrec_eval.parse_run(ranked))


def measured(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def row(name: str, sizes: list[int], ties: bool, target: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        run, qrels = write(Path(folder), sizes, ties)
        expected, result = theirs(run, qrels), evaluate_run(run, qrels, METRICS)
        for metric, values in result.values.items():
            np.testing.assert_allclose(values, [expected[query][metric] for query in result.queries], rtol=1e-12)
        times = np.array(
            [[measured(lambda: evaluate_run(run, qrels, METRICS)), measured(lambda: theirs(run, qrels))]
             for _ in range(ROUNDS)]
        )  # fmt: skip
    ours, rival = (statistics.median(column) for column in times.T.tolist())
    return [name, f"{1000 * ours:.0f}", f"{1000 * rival:.0f}", f"{rival / ours:.1f}", target]


def main() -> None:
    options = arguments(__doc__, ("cpu",))
    columns = "run", "ours ms", "pytrec_eval ms", "theirs / ours", "wanted"
    table = Table(options, "Ranked lists in files", columns, packages=("pytrec-eval-terrier",))
    small = 100 if options.quick else 1
    table.add([row("1,000 queries of 1,000 documents", [1000] * (1000 // small), False, "5")])
    table.add([row("the same, scores of one decimal", [1000] * (1000 // small), True, "5")])
    ragged = [200_000 // small, *[200] * (1000 // small)]
    table.add([row("one query of 200,000 documents, 1,000 of 200", ragged, False, "5")])
    table.finish()


if __name__ == "__main__":
    main()
