"""`compute` on several ranks leaves the rows where they are, and answers what one process answers, bit for bit."""

import gc

import pytest
import torch

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


def near(x, y):
    return (x - y).abs() <= 1


def graded(x, y):
    return (3 - (x - y).abs()).clamp(min=0)


def metrics():
    """Label -> the metric, its rows, and the options of its updates."""
    for family in ("random", "ties", "collapsed", "bfloat16"):
        yield family, AccuracyCalculator(NAMES), rows(family), {}
    x, labels = rows("ties")
    both = labels, labels % 2
    generator = torch.Generator().manual_seed(8)
    order = torch.randperm(N, generator=generator)
    order[::5] = order[0]  # items that a sampler repeats
    cameras = torch.randint(0, 3, (N,), generator=generator)
    yield "k=3", AccuracyCalculator(NAMES, k=3), (x, labels), {}
    yield "largest R", AccuracyCalculator(NAMES, k="max_bin_count", distance="cosine"), (x, labels), {}
    yield "optimistic", AccuracyCalculator(NAMES, ties="optimistic", distance="ip"), (x, labels), {}
    yield "little memory", AccuracyCalculator(NAMES, memory_budget=4_000), (x, labels), {}
    yield "blocks of lone queries", AccuracyCalculator(NAMES), (x, torch.arange(N).clamp(max=44)), {}
    yield "no query but lone ones", AccuracyCalculator(NAMES), (x, torch.arange(N)), {}
    yield "per class", AccuracyCalculator(NAMES, return_per_class=True), (x, labels), {}
    yield "comparison", AccuracyCalculator(NAMES, label_comparison_fn=near), (x, labels), {}
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


def fed(metric, x, labels, options, role="both"):
    if len(x):
        for piece in (slice(0, 5), slice(5, None)):
            metric.update(x[piece], labels[piece], role=role, **{name: v[piece] for name, v in options.items()})
    return metric


def roles(place, sizes):
    """Items, references besides, and queries besides; each rank has some of each, or none."""
    x, labels = rows("ties")
    metric = AccuracyCalculator((*NAMES, "nearest_centroid_accuracy"))
    for start, role in enumerate(("both", "reference", "query")):
        kind = slice(start, None, 3)
        cut = [s // 3 for s in sizes[:-1]]
        cut.append(len(x[kind]) - sum(cut))
        pair = (x[kind], labels[kind]) if place is None else [side[kind].split(cut)[place] for side in (x, labels)]
        fed(metric, *pair, {}, role)
    return metric


def results_of(rank, pair):
    results = {}
    for members, sizes in SPLITS:
        if rank not in members:
            continue
        place, group = members.index(rank), pair if len(members) == 2 else None
        for label, metric, (x, labels), options in metrics():
            metric.process_group = group
            share = {name: value.split(sizes)[place] for name, value in options.items()}
            fed(metric, x.split(sizes)[place], labels.split(sizes)[place], share)
            values = metric.compute()
            last = getattr(metric, "last", None)
            results[sizes, label] = values, metric.class_labels, last and last.scores, last and last.ranks
            if len(metric.embeddings):
                metric.update(x[:0], labels[:0], **{name: value[:0] for name, value in options.items()})
            assert len(metric.embeddings) == sizes[place]  # each rank goes on with its own rows
        metric = roles(place, sizes)
        metric.process_group = group
        results[sizes, "roles"] = metric.compute()
    results["held"] = rows_held()
    results["errors"] = errors(rank)
    return results


def rows_held():
    """The most rows, of all tensors as wide as the embeddings, that this rank had besides its own 400."""
    held, x, count = [], torch.randn(400, 97), RankCounter.before

    def watched(*args):
        tensors = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor) and o.shape[1:] == (97,)]
        held.append(sum({t.untyped_storage().data_ptr(): len(t) for t in tensors}.values()) - len(x))
        return count(*args)

    metric = AveragePrecision()
    metric.update(x, torch.arange(400) % 200)
    x, RankCounter.before = metric.embeddings, watched
    metric.compute()
    RankCounter.before = count
    return max(held)


def errors(rank):
    said = []
    for x in (torch.full((4, 2), torch.nan) if rank == 2 else torch.ones(4, 2), torch.ones(4, 3 if rank == 1 else 2)):
        metric = AccuracyCalculator(NAMES)
        metric.append_rows("embeddings", x)  # as a GPU does, where update does not look at values
        metric.append_rows("labels", torch.zeros(4, dtype=torch.int64))
        metric._update_count = 1
        with pytest.raises(ValueError) as error:
            metric.compute()
        assert len(metric.embeddings) == 4
        said.append(str(error.value))
    return said


@pytest.fixture
def ranks(rank_results):
    return [results["test_spread"] for results in rank_results]


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if not isinstance(a, torch.Tensor):
        return a == b
    return a.dtype == b.dtype and torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())


@pytest.mark.parametrize(("members", "sizes"), SPLITS, ids=str)
def test_ranks_answer_what_one_answers(ranks, members, sizes):
    for label, metric, (x, labels), options in metrics():
        values = fed(metric, x, labels, options).compute()
        last = getattr(metric, "last", None)
        alone = values, metric.class_labels, last and last.scores, last and last.ranks
        for member in members:
            assert same(ranks[member][sizes, label], alone), label
    alone = roles(None, sizes).compute()
    # Rows of a role are in rank order, as in one process.
    assert all(same(ranks[member][sizes, "roles"], alone) for member in members)


def test_no_rank_holds_all_rows(ranks):
    # The queries asked for, two blocks of references, and one of these made ready; of all 1200 rows it would be twice
    # that many at least.
    for rank in ranks:
        assert 0 < rank["held"] < 1700, rank["held"]


def test_all_ranks_raise(ranks):
    not_finite = "embeddings: 4 of 12 rows hold NaN or infinity, the first is row 8; wanted finite values"
    kinds = "[((4, 2), torch.float32, 'cpu'), ((4, 3), torch.float32, 'cpu'), ((4, 2), torch.float32, 'cpu')]"
    kinds = f"ranks hold states of different kinds: {kinds}; feed every rank rows of one shape and dtype"
    for rank in ranks:
        assert rank["errors"] == [not_finite, kinds]
