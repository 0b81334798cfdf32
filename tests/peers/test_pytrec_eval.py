"""Measures of runs against trec_eval and ir_measures."""

import numpy as np
import pytest

from tensormetrics.retrieval import evaluate_run

FAMILIES = "map ndcg Rprec recip_rank bpref set_P set_recall set_F num_ret num_rel num_rel_ret".split()
FAMILIES += "map_cut ndcg_cut P recall success gm_map 11pt_avg iprec_at_recall".split()


NAMES = "nDCG nDCG@10 nDCG@3 AP AP@10 RR RR@2 RR@5 R@10 P@5 P@10 Success@3 Rprec Bpref SetP SetR SetF".split()


def drawn(seed, documents, least, decimals):
    """Draw a run and judgments of 40 queries; one of each has no counterpart."""
    draw, (run, qrels) = np.random.default_rng(seed), ({}, {})
    for q in range(40):
        retrieved, judged = (draw.choice(documents, size, replace=False) for size in (draw.integers(3, 30), 30))
        scores, gains = draw.normal(size=30).round(decimals), draw.integers(least, 4, size=30)
        run[f"q{q}"] = {f"d{d}": float(s) for d, s in zip(retrieved, scores, strict=False)}
        qrels[f"q{q}"] = {f"d{d}": int(g) for d, g in zip(judged, gains, strict=True)}
    del run["q0"], qrels["q1"]
    return run, qrels


@pytest.mark.parametrize("judged_only", [False, True])
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("least", [-2, 0])
@pytest.mark.parametrize("decimals", [1, 9])
def test_every_measure_of_every_query(decimals, least, level, judged_only):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    run, qrels = drawn(10 * decimals + least + level, 80, least, decimals)
    peer = pytrec_eval.RelevanceEvaluator(qrels, {*FAMILIES}, relevance_level=level, judged_docs_only_flag=judged_only)
    theirs = peer.evaluate(run)
    ours = evaluate_run(run, qrels, FAMILIES, relevance_level=level, judged_only=judged_only)
    assert set(ours.queries) == set(theirs)
    for name, values in ours.values.items():
        expected = [theirs[query][name] for query in ours.queries]  # NaN of "11pt_avg" where nothing is retrieved
        np.testing.assert_allclose(values, np.nan_to_num(expected), rtol=1e-12, err_msg=name)


def test_every_name_of_ir_measures():
    ir_measures = pytest.importorskip("ir_measures")
    run, qrels = drawn(0, 40, 0, 9)
    ours = evaluate_run(run, qrels, NAMES)
    values = ir_measures.iter_calc([ir_measures.parse_measure(name) for name in NAMES], qrels, run)
    theirs = {(value.query_id, str(value.measure)): value.value for value in values}
    assert len(ours.queries) == 38
    for name, column in ours.values.items():
        np.testing.assert_allclose(column, [theirs[query, name] for query in ours.queries], rtol=1e-12, err_msg=name)
