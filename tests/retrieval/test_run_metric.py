"""RunMetric on tensors of query-document pairs, compared with `evaluate_run`, torchmetrics and other batch orders."""

import pytest
import torch
from torchmetrics import retrieval as peers

from tensormetrics import compare
from tensormetrics.retrieval import RunMetric, evaluate_run

NAMES = (
    "map",
    "map_cut_5",
    "ndcg",
    "ndcg_cut_5",
    "recip_rank",
    "P_5",
    "recall_5",
    "success_5",
    "Rprec",
    "bpref",
    "num_rel",
)


def rows(generator, queries=12, documents=15, ties=True):
    """Return scores with ties, graded targets, indexes, documents; rows are shuffled, one query has no relevant one."""
    n = queries * documents
    scores = torch.randn(n, generator=generator)
    scores = (2 * scores).round() / 2 if ties else scores
    target = torch.randint(0, 3, (n,), generator=generator) * (torch.rand(n, generator=generator) < 0.4)
    indexes = torch.arange(queries).repeat_interleave(documents) * 3 + 7
    target[indexes == 7] = 0
    documents = torch.arange(documents).repeat(queries) + 100  # equal lengths, so that names sort like the numbers
    order = torch.randperm(n, generator=generator)
    return scores[order], target[order], indexes[order], documents[order]


def run_and_qrels(scores, target, indexes, documents):
    run, qrels = {}, {}
    for score, gain, query, document in zip(*(x.tolist() for x in (scores, target, indexes, documents)), strict=True):
        run.setdefault(str(query), {})[str(document)] = score
        qrels.setdefault(str(query), {})[str(document)] = gain
    return run, qrels


@pytest.mark.parametrize("level", [1, 2])
def test_run_metric_scores_match_evaluate_run(level, generator, device):
    data = rows(generator)
    expected = evaluate_run(*run_and_qrels(*data), NAMES, relevance_level=level)
    metric = RunMetric(NAMES, relevance_level=level).to(device)
    for batch in torch.arange(len(data[0])).split(37):
        metric.update(*(column[batch].to(device) for column in data))
    by_query = metric.per_query()
    positions = [by_query.queries.index(int(query)) for query in expected.queries]
    for name in NAMES:
        assert torch.equal(by_query.values[name][positions], expected.values[name]), name
        assert float(metric.compute()[name]) == pytest.approx(expected.summary()[name]), name
    assert metric.compute()["map"].device.type == device.type


@pytest.mark.parametrize("action", ["neg", "pos", "skip"])
def test_run_metric_scores_match_torchmetrics(action, generator):
    scores, target, indexes, _ = rows(generator, ties=False)
    scores = scores.sigmoid()  # RetrievalMAP treats documents with scores <= 0 as irrelevant
    options = {"empty_target_action": action}
    metrics = {
        "map": peers.RetrievalMAP(**options),
        "recip_rank": peers.RetrievalMRR(**options),
        "P_5": peers.RetrievalPrecision(top_k=5, **options),
        "recall_5": peers.RetrievalRecall(top_k=5, **options),
        "success_5": peers.RetrievalHitRate(top_k=5, **options),
        "Rprec": peers.RetrievalRPrecision(**options),
    }
    metric = RunMetric((*metrics, "ndcg_cut_5"), **options)
    metric.update(scores, target, indexes)
    values = metric.compute()
    for name, peer in metrics.items():
        peer.update(scores, target.bool().long(), indexes)
        assert float(values[name]) == pytest.approx(float(peer.compute())), name
    graded = peers.RetrievalNormalizedDCG(top_k=5, **options)
    graded.update(scores, target, indexes)
    assert float(values["ndcg_cut_5"]) == pytest.approx(float(graded.compute()))


def test_run_metric_depths_and_ties_match_hand_computed():
    """Query 5 has documents 1, 2, 3, 4 with scores 3, 2, 2, 1; documents 2 and 4 are relevant."""
    data = torch.tensor([3.0, 2.0, 2.0, 1.0]), torch.tensor([0, 1, 0, 1]), torch.full((4,), 5)
    in_order, by_name, top_2 = RunMetric("map"), RunMetric("map"), RunMetric(("map", "num_ret"), top_k=2)
    in_order.update(*data)  # ranks 2 and 4
    by_name.update(*data, torch.tensor([1, 2, 3, 4]))  # document 3 before 2: ranks 3 and 4
    top_2.update(*data)  # only rank 2 of two relevant documents
    assert float(in_order.compute()["map"]) == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert float(by_name.compute()["map"]) == pytest.approx((1 / 3 + 2 / 4) / 2)
    assert float(top_2.compute()["map"]) == pytest.approx((1 / 2) / 2) and float(top_2.compute()["num_ret"]) == 2


def test_ignore_index_rows_are_excluded(generator):
    scores, target, indexes, documents = rows(generator)
    ignored = torch.rand(len(scores), generator=generator) < 0.3
    metric, expected = RunMetric(NAMES, ignore_index=-100), RunMetric(NAMES)
    metric.update(scores, target.masked_fill(ignored, -100), indexes, documents)
    expected.update(*(column[~ignored] for column in (scores, target, indexes, documents)))
    assert {k: float(v) for k, v in metric.compute().items()} == {k: float(v) for k, v in expected.compute().items()}


def test_interval_matches_per_query_scores_in_any_row_order(generator):
    data = rows(generator)
    metric, shuffled = RunMetric(NAMES), RunMetric(NAMES)
    metric.update(*data)
    order = torch.randperm(len(data[0]), generator=generator)
    for batch in order.split(50):
        shuffled(*(column[batch] for column in data))
    intervals, expected = metric.interval(), metric.per_query().interval()
    assert "num_rel" not in intervals and intervals["map"].items == 12
    for name, estimate in intervals.items():
        for other in (expected[name], shuffled.interval()[name]):
            assert all(map(torch.equal, estimate, other)), name
    groups = data[2] // 6
    grouped = RunMetric(NAMES)
    grouped.update(*data, groups=groups)
    assert grouped.interval()["map"].groups == len(groups.unique()) < 12


def test_compare_run_metrics_pairs_queries(generator):
    scores, target, indexes, documents = rows(generator)
    better = scores + 2 * target
    metrics = {name: RunMetric(("map", "P_5")) for name in ("base", "better")}
    for metric, preds in zip(metrics.values(), (scores, better), strict=True):
        metric.update(preds, target, indexes, documents)
    result = compare(metrics["better"], metrics["base"])["map"]
    one, other = (metric.per_query() for metric in metrics.values())
    expected = compare(other, one)["map"]
    assert [*map(float, result)] == [*map(float, expected)] and result.verdict == "better"
    assert compare(metrics, baseline="base")["better", "map"] == float(other.summary()["map"])
    others = RunMetric(("map", "P_5"))
    others.update(scores, 1 - target.clamp(max=1), indexes, documents)
    with pytest.raises(ValueError, match="^a, b: their items differ"):
        compare(metrics["base"], others)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"preds": torch.arange(4)}, ValueError, "preds: "),
        ({"target": torch.rand(4)}, ValueError, "target: "),
        ({"indexes": torch.zeros(3).long()}, ValueError, "indexes: "),
        ({"doc_ids": torch.tensor([1, 1, 2, 3])}, ValueError, "doc_ids: query 0 has document 1 twice"),
        ({"preds": torch.full((4,), torch.nan)}, ValueError, "preds: got NaN for query 0, wanted numbers"),
        ({"groups": [0, 1, 0, 0]}, ValueError, "groups: got several for query 0, wanted one"),
    ],
)
def test_invalid_rows_raise_value_error(change, error, message):
    metric = RunMetric()
    data = {"preds": torch.rand(4), "target": torch.ones(4).long(), "indexes": torch.zeros(4).long()}
    with pytest.raises(error, match=f"^{message}"):
        metric.update(**(data | change))
        metric.compute()


def test_invalid_options_and_mixed_rows_raise_value_error():
    for options, message in (
        ({"metrics": ()}, "metrics: got none"),
        ({"metrics": "mapp"}, "mapp"),
        ({"empty_target_action": "zero"}, "empty_target_action: got 'zero'"),
        ({"top_k": 0}, "top_k: got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            RunMetric(**options)
    metric, data = RunMetric(empty_target_action="error"), (torch.rand(4), torch.zeros(4).long(), torch.zeros(4).long())
    metric.update(*data)
    with pytest.raises(ValueError, match="doc_ids: got some after rows that have none"):
        metric.update(*data, torch.arange(4))
    with pytest.raises(ValueError, match="target: query 0 has no relevant document"):
        metric.compute()
    with pytest.raises(ValueError, match="metrics: got num_rel, wanted at least one mean for an interval"):
        counts = RunMetric("num_rel")
        counts.update(*data)
        counts.interval()


@pytest.mark.parametrize("name", ["doc_ids", "groups"])
def test_rows_with_and_without_names_cannot_be_mixed(name):
    data = torch.rand(4), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    named = {name: torch.tensor([3, 3, 5, 5]) if name == "groups" else torch.arange(4)}
    metric, other = RunMetric(), RunMetric()
    metric.update(*data)
    other.update(*data, **named)
    before = metric.compute()
    for mix in (
        lambda: metric.update(*data, **named),
        lambda: metric(*data, **named),
        lambda: metric.merge_state(other),
    ):
        with pytest.raises(
            ValueError, match=f"^{name}: got some after rows that have none; give them always or never$"
        ):
            mix()
    assert all(map(torch.equal, metric.compute().values(), before.values())) and len(metric.preds) == 4
    metric.doc_ids = torch.arange(3)  # as if one rank had passed fewer
    metric._computed = None
    with pytest.raises(ValueError, match="^doc_ids: got 3 for 4 rows; give them always or never$"):
        metric.compute()


def test_run_metric_without_rows_returns_nan():
    metric = RunMetric()
    metric.update(torch.empty(0), torch.empty(0).long(), torch.empty(0).long())
    assert metric.compute()["map"].isnan() and metric.per_query().queries == []
