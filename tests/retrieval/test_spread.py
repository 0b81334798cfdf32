"""`compute` on several ranks keeps rows on their ranks and returns the results of one process, bit for bit."""

import pytest
import torch
from rank_processes import rows_besides

from tensormetrics.retrieval import AccuracyCalculator, AveragePrecision, RecallAtK
from tensormetrics.retrieval.ranking.rank_counts import RankCounter

N = 48
SPLITS = [((0, 1, 2), (30, 0, 18)), ((1, 2), (17, 31))]
NAMES = ("mean_average_precision_at_r", "mean_average_precision", "precision_at_1", "ndcg", "mean_auroc", "median_rank")


def rows(family):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(N, 5, generator=generator)
    labels = torch.randint(0, 6, (N,), generator=generator)
    labels[3] = 99  # lone
    if family == "ties":
        x = torch.randint(0, 2, (N, 5), generator=generator)
    if family == "collapsed":
        x = torch.zeros(N, 5)
    return x.bfloat16() if family == "bfloat16" else x, labels


def close_labels(x, y):
    return (x - y).abs() <= 1


def graded(x, y):
    return (3 - (x - y).abs()).clamp(min=0)


def metrics():
    """Yield a label, the metric, its rows and labels, and the keyword arguments of its updates."""
    for family in ("random", "ties", "collapsed", "bfloat16"):
        yield family, AccuracyCalculator(NAMES), rows(family), {}
    x, labels = rows("ties")
    both = labels, labels % 2
    generator = torch.Generator().manual_seed(8)
    order = torch.randperm(N, generator=generator)
    order[::5] = order[0]  # items repeated by a distributed sampler
    cameras = torch.randint(0, 3, (N,), generator=generator)
    yield "k=3", AccuracyCalculator(NAMES, k=3), (x, labels), {}
    yield "largest R", AccuracyCalculator(NAMES, k="max_bin_count", distance="cosine"), (x, labels), {}
    yield "optimistic", AccuracyCalculator(NAMES, ties="optimistic", distance="ip"), (x, labels), {}
    yield "little memory", AccuracyCalculator(NAMES, memory_budget=4_000), (x, labels), {}
    yield "blocks of lone queries", AccuracyCalculator(NAMES), (x, torch.arange(N).clamp(max=44)), {}
    yield "no query but lone ones", AccuracyCalculator(NAMES), (x, torch.arange(N)), {}
    yield "per class", AccuracyCalculator(NAMES, return_per_class=True), (x, labels), {}
    yield "comparison", AccuracyCalculator(NAMES, label_comparison_fn=close_labels), (x, labels), {}
    yield "gains", AccuracyCalculator(NAMES, gains=graded, keep="all"), (x, labels), {}
    yield "levels", AccuracyCalculator(NAMES, label_levels=True), (x, torch.stack(both, 1)), {}
    yield "ids", AccuracyCalculator(NAMES), (x[order], labels[order]), {"ids": order}
    yield "groups", AccuracyCalculator(NAMES), (x, labels), {"cameras": cameras, "ids": torch.arange(N).flip(0)}
    yield "all rows are gathered for clusters", AccuracyCalculator(["NMI", "precision_at_1"]), (x, labels), {}
    table = torch.rand(N, N, generator=generator) * (torch.rand(N, N, generator=generator) < 0.2)
    triples = (*table.nonzero().unbind(1), table[table > 0])
    yield "triples", AccuracyCalculator(NAMES, gains=triples, keep="all"), (x, labels), {}
    yield "triples of few", AccuracyCalculator(NAMES, gains=triples, k=3), (x, labels), {}
    yield "triples by ids", AccuracyCalculator(NAMES, gains=triples), (x, labels), {"ids": torch.arange(N).flip(0)}
    yield "module with triples", RecallAtK(3, gains=triples, memory_budget=4_000), (x, labels), {}
    table = torch.eye(N).roll(2, 0).tolist()
    yield "for gains of pairs", AccuracyCalculator(NAMES, gains=table), (x, labels), {}
    yield "and for a mask", AccuracyCalculator(NAMES, ignore=torch.eye(N, dtype=torch.bool).roll(1, 0)), (x, labels), {}
    yield "module", AveragePrecision(average="class"), (x, labels), {}


def updated(metric, x, labels, options, role="both"):
    if len(x):
        for chunk in (slice(0, 5), slice(5, None)):
            metric.update(x[chunk], labels[chunk], role=role, **{name: v[chunk] for name, v in options.items()})
    return metric


def roles(index_in_group, sizes):
    """Update a metric by role: a third of the rows each as both, reference, query; without an index with all rows."""
    x, labels = rows("ties")
    metric = AccuracyCalculator((*NAMES, "nearest_centroid_accuracy"))
    for start, role in enumerate(("both", "reference", "query")):
        role_rows = slice(start, None, 3)
        part_sizes = [s // 3 for s in sizes[:-1]]
        part_sizes.append(len(x[role_rows]) - sum(part_sizes))
        pair = (
            (x[role_rows], labels[role_rows])
            if index_in_group is None
            else [column[role_rows].split(part_sizes)[index_in_group] for column in (x, labels)]
        )
        updated(metric, *pair, {}, role)
    return metric


def results_of(rank, pair):
    results = {}
    for members, sizes in SPLITS:
        if rank not in members:
            continue
        index_in_group, group = members.index(rank), pair if len(members) == 2 else None
        for label, metric, (x, labels), options in metrics():
            metric.process_group = group
            local_options = {name: value.split(sizes)[index_in_group] for name, value in options.items()}
            updated(metric, x.split(sizes)[index_in_group], labels.split(sizes)[index_in_group], local_options)
            values = metric.compute()
            last = getattr(metric, "last", None)
            results[sizes, label] = values, metric.class_labels, last and last.scores, last and last.ranks
            if len(metric.embeddings):
                metric.update(x[:0], labels[:0], **{name: value[:0] for name, value in options.items()})
            assert len(metric.embeddings) == sizes[index_in_group]  # compute does not change the rows of a rank
        metric = roles(index_in_group, sizes)
        metric.process_group = group
        results[sizes, "roles"] = metric.compute()
    results["held"] = rows_held()
    results["errors"] = errors(rank)
    return results


def rows_held():
    """Return the largest number of rows, in all tensors of the embeddings' width, besides the 400 of this rank."""
    counts, x, count = [], torch.randn(400, 97), RankCounter.before

    def watched(*args):
        counts.append(rows_besides(len(x), 97))
        return count(*args)

    metric = AveragePrecision()
    metric.update(x, torch.arange(400) % 200)
    x, RankCounter.before = metric.embeddings, watched
    metric.compute()
    RankCounter.before = count
    return max(counts)


def errors(rank):
    messages = []
    for x in (torch.full((4, 2), torch.nan) if rank == 2 else torch.ones(4, 2), torch.ones(4, 3 if rank == 1 else 2)):
        metric = AccuracyCalculator(NAMES)
        metric.append_rows("embeddings", x)  # like update on a GPU, which does not check values
        metric.append_rows("labels", torch.zeros(4, dtype=torch.int64))
        metric._update_count = 1
        with pytest.raises(ValueError) as error:
            metric.compute()
        assert len(metric.embeddings) == 4
        messages.append(str(error.value))
    return messages


def equal_results(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal_results(a[name], b[name]) for name in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(equal_results, a, b))
    if not isinstance(a, torch.Tensor):
        return a == b
    return a.dtype == b.dtype and torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())


@pytest.mark.parametrize(("members", "sizes"), SPLITS, ids=str)
def test_compute_on_ranks_matches_single_process(ranks, members, sizes):
    for label, metric, (x, labels), options in metrics():
        values = updated(metric, x, labels, options).compute()
        last = getattr(metric, "last", None)
        single = values, metric.class_labels, last and last.scores, last and last.ranks
        for member in members:
            assert equal_results(ranks[member][sizes, label], single), label
    single = roles(None, sizes).compute()
    # Rows of a role are in rank order, as in one process.
    assert all(equal_results(ranks[member][sizes, "roles"], single) for member in members)


def test_compute_on_ranks_never_holds_all_rows(ranks):
    # One block of queries, two blocks of references, one of them prepared. Holding all 1200 rows would take at least
    # twice that.
    for rank in ranks:
        assert 0 < rank["held"] < 1700, rank["held"]


def test_invalid_states_raise_on_all_ranks(ranks):
    not_finite = "AccuracyCalculator: embeddings: 4 of 12 rows hold NaN or infinity, the first is row 8"
    not_finite += ", of an earlier update; call reset() and give finite values"
    kinds = "[((4, 2), torch.float32, 'cpu'), ((4, 3), torch.float32, 'cpu'), ((4, 2), torch.float32, 'cpu')]"
    kinds = f"ranks hold states of different kinds: {kinds}; feed every rank rows of one shape and dtype"
    for rank in ranks:
        assert rank["errors"] == [not_finite, kinds]
