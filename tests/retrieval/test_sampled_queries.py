"""Scores of random queries and audits of approximate indexes, and the intervals for all queries."""

import numpy as np
import pytest
import torch

from tensormetrics.retrieval import AccuracyCalculator, FaissKNN, TorchKNN, open_embeddings
from tensormetrics.retrieval.calculator.audit import draw_queries, exact_estimate, interval_around, recall_at_each_k
from tensormetrics.retrieval.scores.query_metric import Classes

NAMES = ("precision_at_1", "mean_average_precision_at_r", "mean_reciprocal_rank", "nearest_centroid_accuracy")
N, CLASSES = 240, 8


def data(seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (N,), generator=generator)
    centers = torch.randn(CLASSES, 8, generator=generator)
    return centers[labels] + 0.8 * torch.randn(N, 8, generator=generator), labels


def arguments_of(kind):
    """Return the positional and keyword arguments of `get_accuracy` for all queries."""
    x, labels = data()
    if kind == "self":
        return (x, labels), {}
    if kind == "references":
        return (x[:100], labels[:100], x[100:], labels[100:]), {}
    if kind == "prefix":
        return (x[:100], labels[:100], x, labels, True), {}
    if kind == "self_index":
        return (x[:100], labels[:100], x.flip(0), labels.flip(0)), {"self_index": torch.arange(N - 1, N - 101, -1)}
    if kind == "cameras":
        return (x, labels), {"query_cameras": torch.arange(N) % 3}
    if kind == "gains":
        return (x, labels), {"gains": (labels[:, None] == labels).float() * torch.arange(N) % 3}
    table = (labels[:, None] == labels).float() * (torch.arange(N) % 3)
    return (x, labels), {"gains": (*table.nonzero().unbind(1), table[table > 0])}


@pytest.mark.parametrize("kind", ["self", "references", "prefix", "self_index", "cameras", "gains", "triples"])
@pytest.mark.parametrize("knn_func", [None, TorchKNN(exact=False)])
def test_sampled_query_scores_match_full_evaluation(kind, knn_func):
    arguments, options = arguments_of(kind)
    names = NAMES[:3] if "gains" in options or "query_cameras" in options else NAMES
    full, sampled = (AccuracyCalculator(names, knn_func=knn_func) for _ in range(2))
    full.get_accuracy(*arguments, **options)
    values = sampled.get_accuracy(*arguments, **options, sample_queries=37, sample_seed=2)
    sample = draw_queries(len(arguments[0]), 37, 2, "cpu", "score")
    assert len(sample.unique()) == 37
    for name in names:
        assert torch.equal(sampled.last.scores[name].nan_to_num(-1), full.last.scores[name][sample].nan_to_num(-1)), (
            name
        )
        assert values[name] == pytest.approx(float(full.last.scores[name][sample].nanmean()))
    other = AccuracyCalculator(names).get_accuracy(*arguments, **options, sample_queries=37, sample_seed=3)
    assert other != values


def test_sample_of_all_queries_has_zero_width_interval():
    x, labels = data()
    full, sampled = AccuracyCalculator(NAMES), AccuracyCalculator(NAMES)
    assert sampled.get_accuracy(x, labels, sample_queries=10**6) == full.get_accuracy(x, labels)
    for name, (value, low, high) in sampled.interval().items():
        assert value == low == high == full.interval()[name].value
        assert full.interval()[name].low < value


@pytest.mark.parametrize("average", [{}, {"avg_of_avgs": True}, {"return_per_class": True}])
def test_sampled_interval_applies_finite_population_correction(average):
    x, labels = data()
    sampled, by_hand = AccuracyCalculator(NAMES, **average), AccuracyCalculator(NAMES, **average)
    sampled.get_accuracy(x, labels, sample_queries=60)
    sample = draw_queries(N, 60, 0, "cpu", "score")
    by_hand.get_accuracy(x[sample], labels[sample], x, labels, self_index=sample)
    wider = by_hand.interval(groups=sample)  # the bootstrap draws depend on the identity of the queries
    for name, (value, low, high) in sampled.interval().items():
        torch.testing.assert_close(value, wider[name].value)
        factor = (1 - 60 / N) ** 0.5
        torch.testing.assert_close(high - value, factor * (wider[name].high - value), rtol=0.25, atol=0.01)
        torch.testing.assert_close(value - low, factor * (value - wider[name].low), rtol=0.25, atol=0.01)


def test_sampled_interval_groups_refer_to_all_queries():
    x, labels = data()
    calculator = AccuracyCalculator(NAMES[:1])
    calculator.get_accuracy(x, labels, sample_queries=60, groups=labels)
    immediate = calculator.interval()["precision_at_1"]
    calculator.get_accuracy(x, labels, sample_queries=60)
    later = calculator.interval(groups=labels)["precision_at_1"]
    assert list(immediate) == list(later)
    by_number = calculator.interval(groups={i: int(label) for i, label in enumerate(labels)})["precision_at_1"]
    assert list(by_number) == list(later)
    with pytest.raises(ValueError, match=rf"groups: got shape \(60,\), wanted \({N},\)"):
        calculator.interval(groups=labels[:60])


def test_sampled_queries_with_blocks_and_state_match_in_memory(tmp_path):
    x, labels = data()
    path = tmp_path / "x.npy"
    np.save(path, x.numpy())
    names = NAMES[:3]
    expected = AccuracyCalculator(names).get_accuracy(x[:100], labels[:100], x, labels, True, sample_queries=30)
    arguments = (x[:100], labels[:100], open_embeddings(path), labels, True)
    state = tmp_path / "counts.pt"
    for _ in range(2):
        actual = AccuracyCalculator(names).get_accuracy(
            *arguments, sample_queries=30, checkpoint=state, checkpoint_seconds=0
        )
        assert actual == expected
    with pytest.raises(ValueError, match="sample_seed"):
        AccuracyCalculator(names).get_accuracy(*arguments, sample_queries=30, sample_seed=1, checkpoint=state)


def test_sampled_queries_invalid_arguments_raise_errors():
    x, labels = data()
    with pytest.raises(
        ValueError, match=r"sample_queries: AMI, NMI need the clusters of all queries; write exclude=\('AMI', 'NMI'\)"
    ):
        AccuracyCalculator().get_accuracy(x, labels, sample_queries=10)
    calculator = AccuracyCalculator(NAMES)
    with pytest.raises(ValueError, match="sample_queries: got 0, wanted an integer >= 1"):
        calculator.get_accuracy(x, labels, sample_queries=0)
    with pytest.raises(ValueError, match="sample_seed: got -1, wanted an integer >= 0"):
        calculator.get_accuracy(x, labels, sample_queries=5, sample_seed=-1)
    with pytest.raises(
        TypeError, match=r"get_accuracy: got the argument 'cameras', wanted one of query, .*; write query_cameras"
    ):
        calculator.get_accuracy(x, labels, cameras=labels)


AUDITED = ("precision_at_1", "mean_average_precision_at_r", "mean_reciprocal_rank")
COUNT, AUDIT_CLASSES = 900, 90


class TwoCellIndex:
    """Search that returns only references whose first column has the sign of the query, like an index of two cells."""

    distance = "l2"

    def __call__(self, query, k, reference, ref_includes_query, self_index=None):
        other = (query[:, :1] > 0) != (reference[:, 0] > 0)
        return TorchKNN()(query, k, reference, ref_includes_query, self_index=self_index, ignore=other)


def make_data(seed=0, count=COUNT, dim=8):
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, AUDIT_CLASSES, (count,), generator=random)
    centers = torch.randn(AUDIT_CLASSES, dim, generator=random)
    return centers[labels] + torch.randn(count, dim, generator=random), labels


def run_audit(audit, rows, labels, average=None, **options):
    calculator = AccuracyCalculator(AUDITED, knn_func=TwoCellIndex(), audit=audit, **(average or {}), **options)
    return calculator, calculator.get_accuracy(rows, labels)


AVERAGES = [{}, {"avg_of_avgs": True}, {"return_per_class": True}]


@pytest.mark.parametrize("average", AVERAGES, ids=["micro", "macro", "class"])
def test_audit_of_all_queries_returns_exact_score(average):
    rows, labels = make_data()
    exact = AccuracyCalculator(AUDITED, **average).get_accuracy(rows, labels)
    calculator, approximate = run_audit(COUNT, rows, labels, average)
    intervals = calculator.audit_report()
    for name in AUDITED:
        for bound in intervals[name]:
            assert bound.tolist() == pytest.approx(exact[name], abs=1e-12)
        assert approximate[name] != exact[name]


@pytest.mark.parametrize("k", [None, 5, "max_bin_count"])
def test_audit_scores_of_sample_equal_exact_search(k):
    rows, labels = make_data()
    exact = AccuracyCalculator(AUDITED, k=k)
    exact.get_accuracy(rows, labels)
    calculator, _ = run_audit(60, rows, labels, k=k)
    audit = calculator.last.audit
    assert audit.queries.tolist() == draw_queries(COUNT, 60, 0).tolist() and len(audit.queries) == 60
    for name in AUDITED:
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
    return (torch.arange(rows.start, rows.stop)[:, None] - torch.arange(COUNT)).abs() < 300


@pytest.mark.parametrize("kind", ["cameras", "mask", "function", "gains", "triples"])
def test_audit_of_sample_applies_exclusions_of_full_run(kind):
    rows, labels = make_data()
    options, inputs = {}, {}
    if kind == "cameras":
        inputs["query_cameras"] = torch.arange(COUNT) % 3
    if kind == "mask":
        options["ignore"] = near_indices(slice(0, COUNT))
    if kind == "function":
        options["ignore"] = near_indices
    if kind == "gains":
        inputs["gains"] = (labels[:, None] == labels) * (1.0 + torch.arange(COUNT) % 2)
    if kind == "triples":
        pairs = (labels[:, None] == labels).nonzero().flip(0)  # not sorted by query
        inputs["gains"] = (*pairs.unbind(1), 1.0 + pairs[:, 1] % 2)
    exact = AccuracyCalculator((*AUDITED, "ndcg_at_5"), **options)
    exact.get_accuracy(rows, labels, **inputs)
    calculator = AccuracyCalculator((*AUDITED, "ndcg_at_5"), knn_func=TwoCellIndex(), audit=60, **options)
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
    classes = Classes(labels, torch.ones(1000, dtype=torch.bool))
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
