"""What tensormetrics/pages/retrieval_conventions.md says of other packages, by these packages."""

import pytest
import torch

from tensormetrics.retrieval import AccuracyCalculator, AveragePrecision, RunMetric, evaluate_run

RELEVANT = [0, 1, 0, 1, 0, 1, 0, 1, 1]  # by rank
SCORES = torch.arange(9.0, 0, -1)
RUN = {"q": {f"d{i}": float(score) for i, score in enumerate(SCORES)}}
QRELS = {"q": {f"d{i}": gain for i, gain in enumerate(RELEVANT)}}
ROWS = torch.zeros(1, 1), torch.tensor([1]), torch.arange(1.0, 10)[:, None], torch.tensor(RELEVANT)
QUERY = torch.zeros(9, dtype=torch.int64)


def test_map_at_k_has_three_denominators():
    run = RunMetric("map@4")
    run.update(SCORES, torch.tensor(RELEVANT), indexes=QUERY)
    ours = [
        evaluate_run(RUN, QRELS, ["map_cut_4"]).summary()["map_cut_4"],
        run.compute()["map@4"],
        AveragePrecision(4)(*ROWS),
        AccuracyCalculator(["mean_average_precision_at_4"]).get_accuracy(*ROWS)["mean_average_precision_at_4"],
    ]
    assert [float(value) for value in ours] == pytest.approx([0.2] * 4)
    assert AveragePrecision(4, denominator="min")(*ROWS) == 0.25
    assert AveragePrecision(4, denominator="found")(*ROWS) == 0.5


def test_trec_eval_divides_by_all_relevant_and_scores_empty_queries_zero():
    pytrec_eval = pytest.importorskip("pytrec_eval")
    judged = {**QRELS, "none": {"d0": 0}, "absent": {"d0": 1}}
    run = {**RUN, "none": {"d0": 1.0}}
    theirs = pytrec_eval.RelevanceEvaluator(judged, {"map_cut.4"}).evaluate(run)
    assert {query: values["map_cut_4"] for query, values in theirs.items()} == pytest.approx({"q": 0.2, "none": 0})
    ours = evaluate_run(run, judged, ["map_cut_4"])
    assert ours.queries == ["q", "none"] and ours.values["map_cut_4"].tolist() == pytest.approx([0.2, 0])


def test_torchmetrics_divides_by_the_relevant_ones_found():
    from torchmetrics.retrieval import RetrievalMAP, RetrievalNormalizedDCG, RetrievalPrecision

    assert RetrievalMAP(top_k=4)(SCORES, torch.tensor(RELEVANT), QUERY) == 0.5
    assert RetrievalMAP()(SCORES, torch.zeros(9).long(), QUERY) == 0
    ties, first, last = torch.ones(3), torch.tensor([1, 0, 0]), torch.tensor([0, 0, 1])
    assert RetrievalNormalizedDCG()(ties, first, QUERY[:3]) == RetrievalNormalizedDCG()(ties, last, QUERY[:3])
    assert RetrievalPrecision(top_k=5)(ties, first, QUERY[:3]) == pytest.approx(1 / 5)
    assert RetrievalPrecision(top_k=5, adaptive_k=True)(ties, first, QUERY[:3]) == pytest.approx(1 / 3)


def test_metric_learning_divides_by_all_relevant_and_leaves_lone_queries_out():
    peer = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")
    pytest.importorskip("faiss")
    calculator = peer.AccuracyCalculator(include=("mean_average_precision",), k=4, device=torch.device("cpu"))
    query, labels, reference, reference_labels = ROWS
    assert calculator.get_accuracy(*ROWS)["mean_average_precision"] == pytest.approx(0.2)
    queries = query.repeat(2, 1), torch.tensor([1, 7])  # no reference has the label 7
    assert calculator.get_accuracy(*queries, reference, reference_labels)["mean_average_precision"] == pytest.approx(
        0.2
    )


def test_ranx_divides_by_all_relevant_and_precision_by_k():
    ranx = pytest.importorskip("ranx", exc_type=ImportError)
    qrels, run = ranx.Qrels({"q": {d: g for d, g in QRELS["q"].items() if g}}), ranx.Run(RUN)
    assert ranx.evaluate(qrels, run, "map@4") == pytest.approx(0.2)
    assert ranx.evaluate(qrels, run, "precision@20") == pytest.approx(5 / 20)
