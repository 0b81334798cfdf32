"""Measures by the names of ir_measures against ir_measures itself."""

import numpy as np
import pytest

from tensormetrics.retrieval import evaluate_run

ir_measures = pytest.importorskip("ir_measures")

NAMES = "nDCG nDCG@10 nDCG@3 AP AP@10 RR RR@2 RR@5 R@10 P@5 P@10 Success@3 Rprec Bpref SetP SetR SetF".split()


def test_every_name_of_every_query():
    draw = np.random.default_rng(0)
    run, qrels = {}, {}
    for q in range(30):
        retrieved, judged = (draw.choice(40, size, replace=False) for size in (draw.integers(3, 15), 12))
        run[f"q{q}"] = {f"d{d}": float(s) for d, s in zip(retrieved, draw.normal(size=len(retrieved)), strict=True)}
        qrels[f"q{q}"] = {f"d{d}": int(g) for d, g in zip(judged, draw.integers(0, 4, size=12), strict=True)}
    ours = evaluate_run(run, qrels, NAMES)
    values = ir_measures.iter_calc([ir_measures.parse_measure(name) for name in NAMES], qrels, run)
    theirs = {(value.query_id, str(value.measure)): value.value for value in values}
    assert len(theirs) == 30 * len(NAMES)
    for name, column in ours.values.items():
        expected = [theirs[query, name] for query in ours.queries]
        np.testing.assert_allclose(column, expected, rtol=1e-12, err_msg=name)
