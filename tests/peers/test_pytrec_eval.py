"""Measures of runs against trec_eval itself."""

import numpy as np
import pytest

from tensormetrics.retrieval import evaluate_run

pytrec_eval = pytest.importorskip("pytrec_eval")

FAMILIES = "map ndcg Rprec recip_rank bpref set_P set_recall set_F num_ret num_rel num_rel_ret".split()
FAMILIES += "map_cut ndcg_cut P recall success".split()


@pytest.mark.parametrize("judged_only", [False, True])
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("least", [-2, 0])
@pytest.mark.parametrize("decimals", [1, 9])
def test_every_measure_of_every_query(decimals, least, level, judged_only):
    draw = np.random.default_rng(10 * decimals + least + level)
    run, qrels = {}, {}
    for q in range(40):
        retrieved, judged = draw.choice(80, 30, replace=False), draw.choice(80, 30, replace=False)
        run[f"q{q}"] = {
            f"d{d}": round(float(s), decimals) for d, s in zip(retrieved, draw.normal(size=30), strict=True)
        }
        qrels[f"q{q}"] = {f"d{d}": int(g) for d, g in zip(judged, draw.integers(least, 4, size=30), strict=True)}
    del run["q0"], qrels["q1"]
    peer = pytrec_eval.RelevanceEvaluator(qrels, {*FAMILIES}, relevance_level=level, judged_docs_only_flag=judged_only)
    theirs = peer.evaluate(run)
    ours = evaluate_run(run, qrels, FAMILIES, relevance_level=level, judged_only=judged_only)
    assert set(ours.queries) == set(theirs)
    for name, values in ours.values.items():
        np.testing.assert_allclose(values, [theirs[query][name] for query in ours.queries], rtol=1e-12, err_msg=name)
