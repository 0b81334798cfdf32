"""Which query is which: ids, groups and labels, in intervals and comparisons."""

import pytest
import torch

from tensormetrics.retrieval import NDCG, AccuracyCalculator, EmbeddingClusterAccuracy, FirstRank, HitRate
from tensormetrics.uncertainty import compare

NAME = "precision_at_1"
N = 60


@pytest.fixture
def rows(generator):
    return torch.randn(N, 4, generator=generator), torch.randint(6, (N,), generator=generator)


@pytest.fixture
def permutation(generator):
    return torch.randperm(N, generator=generator)


def fed(make, embeddings, labels, **items):
    metric = make()
    metric.update(embeddings, labels, **items)
    return metric


def calculator():
    return AccuracyCalculator(include=(NAME,))


def hit_rate():
    return HitRate(1)


def ends_of(metric, **options):
    estimate = metric.interval(replicates=100, **options)[NAME]
    return float(estimate.low), float(estimate.high)


class TestGroups:
    def test_groups_of_rows_with_ids_follow_the_ids(self, rows, permutation):
        embeddings, labels = rows
        expected = ends_of(fed(calculator, *rows, groups=labels, ids=torch.arange(N)))
        shuffled = fed(calculator, embeddings[permutation], labels[permutation], ids=permutation)
        assert ends_of(shuffled, groups=labels[permutation]) == expected
        assert ends_of(shuffled, groups=dict(enumerate(labels.tolist()))) == expected
        assert ends_of(shuffled, groups={i: f"class {label}" for i, label in enumerate(labels.tolist())}) != expected

    def test_groups_of_repeated_ids_have_one_for_each_row(self, rows, permutation):
        embeddings, labels = rows
        taken = torch.cat([permutation, permutation[:4]])  # as samplers fill the last batch
        metric = fed(calculator, embeddings[taken], labels[taken], ids=taken)
        expected = ends_of(fed(calculator, *rows, groups=labels, ids=torch.arange(N)))
        assert ends_of(metric, groups=labels[taken]) == expected
        with pytest.raises(ValueError, match=r"^groups: got shape \(60,\).*pass a mapping from id to group$"):
            metric.interval(groups=labels)

    def test_groups_of_names_are_a_mapping(self, rows):
        labels = rows[1].tolist()
        names = [f"query {i}" for i in range(N)]
        metric = fed(calculator, *rows, ids=names)
        groups = {name: f"class {label}" for name, label in zip(names, labels, strict=True)}
        expected = fed(calculator, *rows, ids=names, groups=[*groups.values()])
        assert ends_of(metric, groups={"another": "one", **groups}) == ends_of(expected)

    @pytest.mark.parametrize("groups", [{}, {0: 1, 1: 1}], ids=str)
    def test_mapping_without_some_ids_is_refused(self, groups, rows):
        metric = fed(calculator, *rows, ids=torch.arange(N))
        with pytest.raises(ValueError, match=rf"^groups: got none for {N - len(groups)} of 60 ids"):
            metric.interval(groups=groups)

    def test_mapping_of_numbered_rows_is_refused(self, rows):
        metric = fed(calculator, *rows)
        with pytest.raises(ValueError, match="^groups: got a mapping, but the items have no ids"):
            metric.interval(groups=dict(enumerate(rows[1].tolist())))

    def test_groups_of_get_accuracy_are_in_the_order_of_queries(self, rows):
        metric = calculator()
        metric.get_accuracy(*rows)
        assert ends_of(metric, groups=rows[1]) == ends_of(fed(calculator, *rows, groups=rows[1]))

    def test_groups_of_queries_in_two_roles_follow_the_ids(self, rows, permutation):
        embeddings, labels = rows
        metric, expected = calculator(), calculator()
        for chosen, options in ((permutation[:40], {}), (permutation[40:], {"role": "query"})):
            metric.update(embeddings[chosen], labels[chosen], ids=chosen, **options)
            expected.update(embeddings[chosen], labels[chosen], ids=chosen, groups=labels[chosen], **options)
        assert ends_of(metric, groups=labels[permutation]) == ends_of(expected)


class TestInfinities:
    @pytest.mark.parametrize("average", [{}, {"avg_of_avgs": True}, {"return_per_class": True}], ids=str)
    def test_interval_of_an_infinite_mean_rank_is_nan(self, average, generator):
        # The classes lie apart but for one item, whose neighbours among the nearest three are all of the other class.
        labels = torch.arange(40) % 2
        embeddings = 10.0 * labels[:, None] + torch.rand(40, 1, generator=generator)
        embeddings[0] = 10.5
        metric = AccuracyCalculator(include=("mean_rank",), k=3, **average)
        metric.update(embeddings, labels)
        value, (center, low, high) = metric.compute()["mean_rank"], metric.interval(replicates=50)["mean_rank"]
        assert torch.equal(value, center) and value.isinf().any()
        assert low[value.isinf()].isnan().all() and high[value.isinf()].isnan().all()
        assert (low <= value)[value.isfinite()].all() and (value <= high)[value.isfinite()].all()

    @pytest.mark.parametrize("make", [lambda: FirstRank("mean", average="macro"), lambda: FirstRank("mean")])
    def test_interval_of_an_infinite_score_of_a_user_is_nan(self, make, rows):
        metric = make()
        metric.score = lambda ranks: torch.where(ranks.relevant == ranks.relevant.max(), torch.inf, 1.0).double()
        metric.update(*rows)
        value, low, high = metric.interval(replicates=50)
        assert value == torch.inf == metric.compute() and low.isnan() and high.isnan()

    def test_interval_of_no_scored_query_has_the_shape_of_the_value(self):
        for metric in (
            AccuracyCalculator(include=(NAME,), return_per_class=True),
            HitRate(1, average="class"),
            FirstRank("median", average="class"),
        ):
            metric.update(torch.rand(9, 2), torch.arange(9))  # all are lone
            interval = metric.interval(replicates=20)
            estimate = interval[NAME] if isinstance(interval, dict) else interval
            assert {part.shape for part in estimate} == {(0,)}


METRICS = {
    "calculator": calculator,
    "mean": hit_rate,
    "several": lambda: HitRate((1, 5)),
    "median": FirstRank,
    "classes": lambda: NDCG(average="class"),
    "clusters": EmbeddingClusterAccuracy,
}
IDENTITIES = {
    "neither": {},
    "ids": {"ids": torch.arange(N)},
    "groups": {"groups": torch.arange(N) // 3},
    "ids and groups": {"ids": torch.arange(N), "groups": torch.arange(N) // 3},
}
PAIRS = [(one, other) for one in IDENTITIES for other in IDENTITIES if one != other]
every_metric = pytest.mark.parametrize("make", METRICS.values(), ids=METRICS)


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=str)
def test_items_identified_in_two_ways_are_refused(before, after, rows):
    metric, other = fed(hit_rate, *rows, **IDENTITIES[before]), fed(hit_rate, *rows, **IDENTITIES[after])
    state = {name: value.clone() for name, value in metric.metric_state.items()}
    message = f"^ids, groups: got {after} after updates with {before}; give every update the same, or call reset"
    for change in (
        lambda: metric.update(*rows, **IDENTITIES[after]),
        lambda: metric(*rows, **IDENTITIES[after]),
        lambda: metric.merge_state(other),
    ):
        with pytest.raises(ValueError, match=message):
            change()
    assert all(torch.equal(value, state[name]) for name, value in metric.metric_state.items())
    metric.update(*(side[:0] for side in rows))  # of no item nothing needs to be known
    metric.reset()
    metric.update(*rows, **IDENTITIES[after])


def test_queries_of_two_roles_identified_in_two_ways_are_refused(rows):
    metric = fed(hit_rate, *rows, ids=torch.arange(N))
    metric.update(*rows, role="reference")  # who the references are is of no interest
    metric.compute()
    metric.update(*rows, role="query", groups=torch.arange(N))
    with pytest.raises(ValueError, match="^ids, groups: got groups after updates with ids"):
        metric.compute()


def test_state_of_a_part_of_the_ids_is_refused(rows):
    metric = fed(hit_rate, *rows, **IDENTITIES["ids and groups"])
    metric.persistent(True)
    other = HitRate(1)
    other.load_state_dict({**metric.state_dict(), "groups": torch.arange(10)})
    with pytest.raises(ValueError, match="^groups: got some for a part of the items"):
        other.compute()


@every_metric
def test_comparison_of_other_queries_is_refused(make, rows):
    embeddings, labels = rows
    options = IDENTITIES["ids and groups"]
    metric = fed(make, *rows, **options)
    differences = compare(metric, fed(make, *rows, **options), replicates=50)
    for difference in differences.values() if isinstance(differences, dict) else [differences]:
        assert not difference.difference.any()
    for other in (
        {**options, "ids": torch.arange(N) + 1},
        {**options, "groups": torch.arange(N) % 20},
        {"ids": options["ids"]},
        {"groups": options["groups"] + 1},
    ):
        with pytest.raises(ValueError, match="^a, b: their items differ"):
            compare(metric, fed(make, *rows, **other), replicates=50)
    with pytest.raises(ValueError, match="^a, b: their items differ"):
        compare(metric, fed(make, embeddings, labels.roll(1), **options), replicates=50)


def test_comparison_of_queries_in_another_order_of_ids_has_no_difference(rows, permutation):
    embeddings, labels = rows
    a = fed(calculator, *rows, ids=torch.arange(N))
    b = fed(calculator, embeddings[permutation], labels[permutation], ids=permutation)
    assert compare(a, b, replicates=50)[NAME].difference == 0
