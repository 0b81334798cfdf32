"""Audits of approximate indexes: exact scores of sampled queries and an interval for all queries."""

import pytest
import torch

from tensormetrics.retrieval import AccuracyCalculator, FaissKNN, TorchKNN
from tensormetrics.retrieval.calculator.audit import draw_queries, exact_estimate, interval_around, recall_at_each_k
from tensormetrics.retrieval.scores.query_metric import Classes

NAMES = ("precision_at_1", "mean_average_precision_at_r", "mean_reciprocal_rank")
N, CLASSES = 900, 90


class TwoCellIndex:
    """Search that returns only references whose first column has the sign of the query, like an index of two cells."""

    distance = "l2"

    def __call__(self, query, k, reference, ref_includes_query, self_index=None):
        other = (query[:, :1] > 0) != (reference[:, 0] > 0)
        return TorchKNN()(query, k, reference, ref_includes_query, self_index=self_index, ignore=other)


def make_data(seed=0, count=N, dim=8):
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=random)
    centers = torch.randn(CLASSES, dim, generator=random)
    return centers[labels] + torch.randn(count, dim, generator=random), labels


def run_audit(audit, rows, labels, average=None, **options):
    calculator = AccuracyCalculator(NAMES, knn_func=TwoCellIndex(), audit=audit, **(average or {}), **options)
    return calculator, calculator.get_accuracy(rows, labels)


AVERAGES = [{}, {"avg_of_avgs": True}, {"return_per_class": True}]


@pytest.mark.parametrize("average", AVERAGES, ids=["micro", "macro", "class"])
def test_audit_of_all_queries_returns_exact_score(average):
    rows, labels = make_data()
    exact = AccuracyCalculator(NAMES, **average).get_accuracy(rows, labels)
    calculator, approximate = run_audit(N, rows, labels, average)
    intervals = calculator.audit_report()
    for name in NAMES:
        for bound in intervals[name]:
            assert bound.tolist() == pytest.approx(exact[name], abs=1e-12)
        assert approximate[name] != exact[name]


@pytest.mark.parametrize("k", [None, 5, "max_bin_count"])
def test_audit_scores_of_sample_equal_exact_search(k):
    rows, labels = make_data()
    exact = AccuracyCalculator(NAMES, k=k)
    exact.get_accuracy(rows, labels)
    calculator, _ = run_audit(60, rows, labels, k=k)
    audit = calculator.last.audit
    assert audit.queries.tolist() == draw_queries(N, 60, 0).tolist() and len(audit.queries) == 60
    for name in NAMES:
        assert torch.equal(audit.exact[name].nan_to_num(), exact.last.scores[name][audit.queries].nan_to_num())
    exact_order = TorchKNN().indices(rows, 5, rows, True)[audit.queries]
    approximate_order = TwoCellIndex()(rows, 5, rows, True)[1][audit.queries]
    for depth in range(1, 6):
        overlaps = [
            len({*a[:depth].tolist()} & {*b[:depth].tolist()}) / depth
            for a, b in zip(exact_order, approximate_order, strict=True)
        ]
        assert audit.recall[:, depth - 1].tolist() == pytest.approx(overlaps)
    recall = calculator.audit_report()["recall"]
    assert recall.value[4] == pytest.approx(audit.recall[:, 4].mean().item())
    assert (recall.low[:5] < recall.value[:5]).all() and (recall.value[:5] < recall.high[:5]).all()


def near_indices(rows):
    return (torch.arange(rows.start, rows.stop)[:, None] - torch.arange(N)).abs() < 300


@pytest.mark.parametrize("kind", ["cameras", "mask", "function", "gains", "triples"])
def test_audit_of_sample_applies_exclusions_of_full_run(kind):
    rows, labels = make_data()
    options, inputs = {}, {}
    if kind == "cameras":
        inputs["query_cameras"] = torch.arange(N) % 3
    if kind == "mask":
        options["ignore"] = near_indices(slice(0, N))
    if kind == "function":
        options["ignore"] = near_indices
    if kind == "gains":
        inputs["gains"] = (labels[:, None] == labels) * (1.0 + torch.arange(N) % 2)
    if kind == "triples":
        pairs = (labels[:, None] == labels).nonzero().flip(0)  # not sorted by query
        inputs["gains"] = (*pairs.unbind(1), 1.0 + pairs[:, 1] % 2)
    exact = AccuracyCalculator((*NAMES, "ndcg_at_5"), **options)
    exact.get_accuracy(rows, labels, **inputs)
    calculator = AccuracyCalculator((*NAMES, "ndcg_at_5"), knn_func=TwoCellIndex(), audit=60, **options)
    calculator.get_accuracy(rows, labels, **inputs)
    audit = calculator.last.audit
    for name, scores in exact.last.scores.items():
        assert torch.equal(audit.exact[name].nan_to_num(), scores[audit.queries].nan_to_num())


def test_recall_at_each_k_with_missing_references_counts_existing_ones():
    exact = torch.tensor([[4, 2, 7, -1], [1, 0, -1, -1], [-1, -1, -1, -1]])
    retrieved = torch.tensor([[2, 4, -1, -1], [5, 6, 0, 1], [-1, -1, -1, -1]])
    expected = torch.tensor([[0, 1, 2 / 3, 2 / 3], [0, 0, 1 / 2, 1], [torch.nan] * 4])
    assert torch.allclose(recall_at_each_k(exact, retrieved), expected.double(), equal_nan=True)


def test_draw_queries_is_uniform_and_depends_on_seed():
    draws = torch.stack([torch.bincount(draw_queries(50, 10, seed), minlength=50) for seed in range(400)])
    assert (draws.sum(1) == 10).all() and draws.max() == 1
    assert ((draws.double().mean(0) - 0.2).abs() < 5 * (0.2 * 0.8 / 400) ** 0.5).all()
    assert draw_queries(3, 10, 0).tolist() == [0, 1, 2] and draw_queries(0, 10, 0).tolist() == []


def test_audit_of_label_levels_reports_one_recall():
    rows, labels = make_data()
    calculator = AccuracyCalculator(("precision_at_1",), knn_func=TwoCellIndex(), audit=50, label_levels=True)
    calculator.get_accuracy(rows, torch.stack([labels, labels % 7], 1))
    assert sorted(calculator.audit_report()) == ["precision_at_1_level0", "precision_at_1_level1", "recall"]


def test_audit_with_unsupported_options_raises():
    with pytest.raises(
        ValueError, match="audit: got some queries with the exact search, wanted a knn_func that is not"
    ):
        AccuracyCalculator(audit=10)
    with pytest.raises(ValueError, match="audit must be an integer >= 1, got 0|audit: got 0"):
        AccuracyCalculator(knn_func=TwoCellIndex(), audit=0)
    with pytest.raises(RuntimeError, match="audit_report: nothing was audited; give AccuracyCalculator audit=1000"):
        AccuracyCalculator(knn_func=TwoCellIndex()).audit_report()
    index = TwoCellIndex()
    index.distance = "manhattan"
    with pytest.raises(ValueError, match="audit: got a knn_func whose distance is 'manhattan', wanted one of 'l2'"):
        AccuracyCalculator(knn_func=index, audit=5)


def test_audit_sample_without_difference_has_nonzero_interval():
    scores, labels = torch.rand(1000, dtype=torch.float64), torch.arange(1000) % 5
    classes = Classes.of(labels, torch.ones(1000, dtype=torch.bool))
    calculator = AccuracyCalculator(("precision_at_1",), knn_func=TwoCellIndex(), audit=100)
    calculator.get_accuracy(*make_data(count=200))
    audit = calculator.last.audit._replace(queries=draw_queries(1000, 100, 0))
    audit = audit._replace(exact={"precision_at_1": scores[audit.queries]})
    estimate = exact_estimate("precision_at_1", scores, audit, classes, "micro", 0.95)
    assert (
        estimate.value == pytest.approx(scores.mean().item()) and 0.02 < estimate.high - estimate.value < 0.04
    )  # about 3 / 100


def test_interval_around_two_queries_uses_quantile_of_one_degree_of_freedom():
    deviation = torch.tensor([[0.5], [-0.5]], dtype=torch.float64)
    mean, sizes = torch.tensor([0.5], dtype=torch.float64), torch.tensor([[2], [1000]])
    interval = interval_around(mean, deviation, sizes[0], 1.0, sizes[1].double(), 0.95)
    error = ((0.5 + 2) / 1 / 2 * (1 - 2 / 1000)) ** 0.5  # with two pseudo-queries that differ by 1 and -1
    assert float(interval.high - interval.value) == pytest.approx(12.706204736 * error, rel=1e-9)


@pytest.mark.slow
def test_audit_intervals_of_inverted_file_cover_exact_score():
    pytest.importorskip("faiss")
    random = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 2000, (100_000,), generator=random)
    rows = torch.randn(2000, 32, generator=random)[labels] + 1.5 * torch.randn(100_000, 32, generator=random)
    query, query_labels = rows[:10_000], labels[:10_000]
    index = FaissKNN(index_init_fn="IVF1024,Flat")  # nprobe is 1
    names = ("precision_at_1", "mean_reciprocal_rank")
    for average in AVERAGES[:2]:
        calculator = AccuracyCalculator(names, k=10, knn_func=index, audit=10_000, **average)
        approximate = calculator.get_accuracy(query, query_labels, rows, labels, True)
        full_audit, exact = calculator.last.audit, calculator.audit_report()
        (scores, classes) = calculator._items.averages[""]
        for name in names:
            assert approximate[name] < exact[name].value
            covered = 0
            for seed in range(100):
                queries = draw_queries(10_000, 1000, seed)
                audit = full_audit._replace(queries=queries, exact={name: full_audit.exact[name][queries]})
                estimate = exact_estimate(name, scores[name], audit, classes, calculator.average, 0.95)
                covered += bool(estimate.low <= exact[name].value <= estimate.high)
            assert covered >= 90
            print(name, average, approximate[name], exact[name].value.item(), covered)
