"""Claim: `run_query` takes a hundredth of WEFE's time for WEAT (an eightieth for few words), a thirtieth for MAC
and a fiftieth for RND by cosines, a sixth for RIPA, a third for RNSB and ECT, and three quarters for RND; 10,000
true permutations take less than one draw of WEFE's; `run_queries` scores 2,106 RND sub-queries in a fiftieth
of the time, and 10,800 of WEAT in under a second and 256 MB.

WEFE pins old versions of numpy and scipy but runs without them:

    pip install --no-deps wefe==1.0.1
    pip install gensim semantic_version plotly requests pandas scikit-learn scipy

Equal values are asserted before anything is timed, on float64 tables; times are of float32 tables, medians, the rivals
taking turns. TENSORMETRICS_WEAT_W2V names WEFE's word2vec file; without it vectors are drawn. Prepared tensors against
numpy: `association_functions.py`.
"""

import functools
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from _common import Table, arguments
from association_functions import interleaved

from tensormetrics import association

NEEDS = ("wefe", "gensim", "sklearn", "pandas")
DIMS = 300
WORDS_OF_SET = 20
NOTES = (
    "RND is bound by calls: two fifths of its time are 13 operators and checks of 75 vectors, a fifth the look-up "
    "of the words, a tenth the rows of these. RNSB takes 6 Newton steps, each of which solves a system of 50 x 50 "
    "(19 of its 40 us); products of the words are 33 us, the search along the first step 35."
)
TURN = 0.02  # after a slow rival a single call finds the caches empty


class Models(NamedTuple):
    """Models of both packages with the same vectors."""

    ours: association.WordEmbeddingModel
    wefe: object

    @classmethod
    def of(cls, words: list[str], vectors: np.ndarray) -> "Models":
        import gensim
        import wefe.word_embedding_model

        keyed = gensim.models.KeyedVectors(vectors.shape[1], dtype=vectors.dtype)
        keyed.add_vectors(words, vectors)
        return cls(
            association.WordEmbeddingModel(keyed, "vectors"),
            wefe.word_embedding_model.WordEmbeddingModel(keyed, "vectors"),
        )


class Case(NamedTuple):
    metric: str
    sets: tuple[list, list]
    target: str
    options: dict = {}
    wefe_options: dict = {}
    exact_options: dict = {}  # options with which WEFE's value equals that of its definition
    label: str = ""


def word_sets(vectors: str | None) -> tuple[dict[str, list[str]], list[str], np.ndarray]:
    """Return the WEAT sets with the words that have vectors, all words, and their vectors."""
    sets = association.load_weat()
    if vectors:
        model = association.load_weat_w2v(vectors)
        words, table = list(model.vocab), model.vectors.numpy()
    else:
        words = list(dict.fromkeys(sum(sets.values(), [])))
        table = np.random.default_rng(0).normal(size=(len(words), DIMS)).astype(np.float32)
    vocabulary = set(words)
    return {name: [word for word in members if word in vocabulary] for name, members in sets.items()}, words, table


def cases(sets: dict[str, list[str]]) -> list[Case]:
    large = [sets[name] for name in ("flowers", "insects", "pleasant_5", "unpleasant_5a")]
    small = [sets[name] for name in ("male_names", "female_names", "career", "family")]
    pairs = [members[: min(map(len, large[:2]))] for members in large[:2]]
    tight = {"estimator_params": {"solver": "liblinear", "tol": 1e-12, "max_iter": 1_000_000}}
    two, one = (large[:2], large[2:]), (large[:2], large[2:3])
    return [
        Case("WEAT", two, ">= 100 x"),
        Case("WEAT", (small[:2], small[2:]), ">= 100 x"),
        Case("RND", one, ">= 2 x"),
        Case("RND", one, ">= 20 x", {"distance": "cos"}, {"distance": "cos"}, label=" (cos)"),
        Case("RIPA", (pairs, large[2:3]), ">= 6 x"),
        Case("ECT", one, ">= 3 x"),
        Case("MAC", two, ">= 20 x"),
        Case("RNSB", two, ">= 5 x", {"holdout": False}, {"holdout": False}, tight),
    ]


def calls(
    case: Case, models: Models, options: dict[str, object] | None = None, **wefe_options: object
) -> dict[str, Callable[[], dict]]:
    import wefe.metrics
    import wefe.query

    metric = getattr(association, case.metric)(**case.options, **(options or {}))
    ours = functools.partial(metric.run_query, association.Query(*case.sets), models.ours)
    peer = functools.partial(
        getattr(wefe.metrics, case.metric)().run_query,
        wefe.query.Query(*case.sets),
        models.wefe,
        **case.wefe_options,
        **wefe_options,
    )
    return {"ours": ours, "WEFE": peer}


def check(case: Case, wide: Models) -> None:
    ours, peer = (call() for call in calls(case, wide, **case.exact_options).values())
    ours, peer = float(ours), peer["result"]
    # WEFE names similarities a distance where RND is "cos".
    sign = -1 if case.options.get("distance") == "cos" else 1
    np.testing.assert_allclose(ours, sign * peer, rtol=1e-4 if case.metric == "RNSB" else 1e-9, err_msg=case.metric)


def single_query(case: Case, models: Models, wide: Models) -> Iterator[tuple]:
    check(case, wide)
    sizes = " to ".join("+".join(str(len(members)) for members in group) for group in case.sets)
    yield f"{case.metric}{case.label} {sizes}", interleaved(calls(case, models), 15, turn=TURN), case.target


def permutations(case: Case, models: Models) -> Iterator[tuple]:
    draws, iterations = 5, 10_000
    ours = {"p_value": True, "method": "approximate", "permutations": iterations}
    test = {"calculate_p_value": True, "p_value_method": "approximate", "p_value_iterations": draws}
    durations = interleaved(calls(case, models, ours, **test), 3)
    durations["WEFE"] *= iterations / draws
    yield f"WEAT with p-value, 10,000 permutations (WEFE: {draws} draws times {iterations // draws})", durations, "-"


def synthetic_sets(targets: int, attributes: int) -> tuple[list, list]:
    count = (targets + attributes) * WORDS_OF_SET
    words = [f"w{i}" for i in range(count)]
    sets = [words[i : i + WORDS_OF_SET] for i in range(0, count, WORDS_OF_SET)]
    return sets[:targets], sets[targets:]


def synthetic_vectors(targets: int, attributes: int, dtype: type = np.float32) -> tuple[list[str], np.ndarray]:
    count = (targets + attributes) * WORDS_OF_SET
    return [f"w{i}" for i in range(count)], np.random.default_rng(1).normal(size=(count, DIMS)).astype(dtype)


def frames(metric: str, sets: tuple[list, list], models: Models) -> dict[str, Callable]:
    import wefe.metrics
    import wefe.query
    import wefe.utils

    return {
        "ours": lambda: association.run_queries(
            getattr(association, metric), [association.Query(*sets)], [models.ours], generate_subqueries=True
        ),
        "WEFE": lambda: wefe.utils.run_queries(
            getattr(wefe.metrics, metric), [wefe.query.Query(*sets)], [models.wefe], generate_subqueries=True
        ),
    }


def batch_of_queries() -> Iterator[tuple]:
    for metric in ("RND", "WEAT"):
        ours, peer = (
            call()
            for call in frames(metric, synthetic_sets(4, 3), Models.of(*synthetic_vectors(4, 3, np.float64))).values()
        )
        np.testing.assert_allclose(ours.to_frame()[list(peer.columns)], peer, rtol=1e-9, atol=1e-12)
    models = Models.of(*synthetic_vectors(27, 6))
    yield "run_queries, RND, 2,106 sub-queries", interleaved(frames("RND", synthetic_sets(27, 6), models), 3), ">= 50 x"
    models = Models.of(*synthetic_vectors(25, 9))
    ours = {"ours": frames("WEAT", synthetic_sets(25, 9), models)["ours"]}
    size = peak_memory("run_queries") - peak_memory("nothing")
    yield f"run_queries, WEAT, 10,800 sub-queries ({size} MB)", interleaved(ours, 3), "< 1 s, <= 256 MB"


def peak_memory(task: str) -> int:
    """Return the peak memory in MB of a process that runs a task with the models loaded."""
    command = [sys.executable, __file__, "--child", task]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def child(task: str) -> None:
    models = Models.of(*synthetic_vectors(25, 9))
    small = Models.of(*synthetic_vectors(2, 2))
    frames("WEAT", synthetic_sets(2, 2), small)["ours"]()  # so that imports and first allocations do not count
    if task == "run_queries":
        frames("WEAT", synthetic_sets(25, 9), models)["ours"]()
    # ru_maxrss would start at the size of the parent process.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(int(peak.split()[1]) // 1024)


def cells(measured: Iterator[tuple]) -> Iterator[tuple[str, ...]]:
    for name, durations, target in measured:
        ours, peer = durations["ours"], durations.get("WEFE")
        against = (f"{1e3 * peer:.3g}", f"{peer / ours:.1f}") if peer else ("-", "-")
        yield name, str(torch.get_num_threads()), f"{1e3 * ours:.3g}", *against, target


def main() -> None:
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["--child"]:
        return child(*sys.argv[2:])
    options = arguments(__doc__, ("cpu",))
    vectors = os.environ.get("TENSORMETRICS_WEAT_W2V")
    source = "WEFE's 347 word2vec vectors" if vectors else "Drawn vectors"
    notes = (
        f"{source}, {DIMS} dimensions, float32, medians in ms, the rivals taking turns of 20 ms or one call. Equality "
        f"was asserted before.\n{NOTES}"
    )
    columns = ("operation", "threads", "ours", "WEFE", "WEFE / ours", "wanted")
    packages = ("numpy", "scipy", "scikit-learn", "pandas", "gensim", "wefe")
    table = Table(options, "Association queries in words against WEFE", columns, notes, packages)
    sets, words, wide = word_sets(vectors)
    models, exact = Models.of(words, wide), Models.of(words, wide.astype(np.float64))
    for threads in (1,) if options.quick else (1, torch.get_num_threads()):
        torch.set_num_threads(threads)
        for case in cases(sets):
            table.add(cells(single_query(case, models, exact)))
        if not options.quick:
            table.add(cells(permutations(cases(sets)[0], models)))
            table.add(cells(batch_of_queries()))
    table.finish()


if __name__ == "__main__":
    main()
