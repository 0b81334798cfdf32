"""Inputs that are easily scored wrongly: the full error message."""

import math
import re

import numpy as np
import pytest
import torch
from retrieval_oracle import KNN

from tensormetrics.retrieval import (
    NDCG,
    AccuracyCalculator,
    AveragePrecision,
    ClusterAccuracy,
    EmbeddingClusterAccuracy,
    FirstRank,
    HitRate,
    NearestCentroidAccuracy,
    PairwiseROC,
    PrecisionAtK,
    RecallAtK,
    ReciprocalRank,
    RPrecision,
    RunMetric,
    TARAtFAR,
    TorchKMeans,
    TorchKNN,
    evaluate_run,
)
from tensormetrics.retrieval.functional import (
    adjusted_mutual_info,
    cluster_accuracy,
    contingency,
    mutual_info,
    nearest_centroid,
    normalized_mutual_info,
    pairwise_roc,
    positive_ranks,
    tar_at_far,
    v_measure,
)

X, Y, MASK = torch.zeros(4, 2), torch.tensor([0, 0, 1, 1]), torch.zeros(4, 4, dtype=torch.bool)
BATCH = torch.zeros(2, 3, 4), torch.zeros(2, 3).long(), torch.ones(2, 3, dtype=torch.bool)
NOT_FINITE = torch.tensor([[0, 0], [1, math.inf], [0, 0], [math.nan, 0]])
UNSIGNED = (Y - 1).to(torch.uint64)
QUERY, REFERENCE, GAIN = torch.tensor([0, 1]), torch.tensor([1, 2]), torch.tensor([1.0, 2.0])
KNN_FUNC = {"knn_func": TorchKNN()}
NAMES_OF_ALL = (
    "AMI, NMI, mean_average_precision, mean_average_precision_at_r, mean_reciprocal_rank, precision_at_1,"
    " r_precision, ARI, FMI, cluster_accuracy, completeness, homogeneity, mean_auroc, mean_inp, mean_rank"
    ", median_rank, ndcg, nearest_centroid_accuracy, v_measure, hit_rate_at_{k}, mean_average_precision_a"
    "t_{k}, ndcg_at_{k}, precision_at_{k}, recall_at_{k}"
)
ONE_OF_TIES = "wanted one of 'index', 'optimistic', 'pessimistic'"
ONE_OF_DISTANCES = "wanted one of 'l2', 'sqeuclidean', 'ip', 'cosine'"
NEITHER = "wanted both reference and reference_labels or neither"
COLUMNS = "wanted (N,); for more columns give a label_comparison_fn"
LEADING = "wanted the same leading dimensions and columns"
SAME_COLUMNS = "wanted the same number of columns"
INTEGER = "wanted an integer >= 1"
SAME_KIND = "query_labels and reference_labels: got torch.int64 and torch.float32"
FINITE_GAINS = "gains: got values that are negative or not finite, wanted finite numbers >= 0"
NUMBERS = "for 16 pairs of labels, wanted a number for each pair"
FEW_INTEGERS = "above 2**63 - 1, wanted integers that int64 can hold, or real numbers"
PREFIX = "wanted references that begin with the queries"
BOTH_GAINS = "gains and label_comparison_fn: got both, wanted one; a gain above 0 means relevant"
CENTROIDS = "nearest_centroid_accuracy cannot leave them out; write exclude=('nearest_centroid_accuracy',)"
EXACT_CAMERAS = "wanted both query_cameras and reference_cameras or neither"


def score(*inputs, call=(), **options):
    return AccuracyCalculator(**{"include": KNN, **options}).get_accuracy(*inputs, **dict(call))


def ranks(*inputs, **options):
    return positive_ranks(*(inputs or (X, Y)), **options)


def ranks_of_triples(*triples, leading=()):
    return positive_ranks(torch.zeros(*leading, 3, 2), torch.zeros(*leading, 3), gains=triples)


def computed(metric, x=X, labels=Y, **options):
    metric.update(x, labels, **options)
    return metric.compute()


def clusters_of(*clusters):
    return {"kmeans_func": lambda x, n: torch.tensor(clusters)}


VALUE_ERRORS = {
    "query: 2 of 4 rows hold NaN or infinity, the first is row 1; wanted finite values": [lambda: score(NOT_FINITE, Y)],
    "reference: 2 of 4 rows hold NaN or infinity, the first is row 1; wanted finite values": [
        lambda: score(X, Y, NOT_FINITE, Y)
    ],
    "query_labels: 1 of 4 rows hold NaN or infinity, the first is row 3; wanted finite values": [
        lambda: score(X, [0, 1, 2, np.nan])
    ],
    "labels: 1 of 4 rows hold NaN or infinity, the first is row 3; wanted finite values": [
        lambda: AccuracyCalculator().update(X, torch.tensor([0.0, 1, 2, math.nan]))
    ],
    "query: got shape (4,), wanted (N, D)": [lambda: score(X[:, 0], Y)],
    f"query_labels: got shape (4, 2), {COLUMNS}, or to AccuracyCalculator label_levels=True": [
        lambda: score(X, X.long())
    ],
    f"query_labels: got shape (4, 2), {COLUMNS}": [lambda: ranks(X, X.long())],
    "lengths differ: query has 4, query_labels has 3": [lambda: score(X, Y[:3]), lambda: ranks(X, Y[:3])],
    "lengths differ: reference has 3, reference_labels has 4": [lambda: score(X, Y, X[:3], Y)],
    "reference: got shape (4, 1), wanted (N, 2)": [lambda: score(X, Y, X[:, :1], Y), lambda: ranks(X, Y, X[:, :1], Y)],
    f"reference_labels: got None, {NEITHER}": [
        lambda: score(X, Y, X),
        lambda: ranks(X, Y, X),
        lambda: nearest_centroid(X, Y, X),
        lambda: ranks(*BATCH[:2], BATCH[0]),
    ],
    f"reference: got None, {NEITHER}": [lambda: score(X, Y, None, Y)],
    "query: got torch.complex64, wanted real numbers; write torch.view_as_real(query).flatten(1)": [
        lambda: score(X + 0j, Y)
    ],
    "query_labels: got an array of <U1, wanted numbers; for names write numpy.unique(query_labels, "
    "return_inverse=True)[1]": [lambda: score(X, list("abab"))],
    f"query_labels: got torch.uint64 {FEW_INTEGERS}": [lambda: score(X, UNSIGNED)],
    f"labels: got torch.uint64 {FEW_INTEGERS}": [lambda: NearestCentroidAccuracy().update(X, UNSIGNED)],
    f"{SAME_KIND} with integers of 2**53 or more, wanted both as integers": [
        lambda: score(X, Y + 2**53 + 1, X, Y.float()),
        lambda: ranks(X, Y + 2**53 + 1, X, Y.float()),
    ],
    "ref_includes_query: row 2 of reference or reference_labels differs from the query's, wanted references that "
    "begin with the queries": [lambda: score(X, Y, X + Y[:, None], Y, True)],
    "devices differ: query on cpu, query_labels on cpu, reference on cpu, reference_labels on meta; move them with "
    ".to(device)": [lambda: ranks(X, Y, X, Y.to("meta"))],
    f"query_labels and reference_labels: got shapes (4, 2) and (4,), {SAME_COLUMNS}": [
        lambda: score(X, torch.stack([Y, Y], 1), X, Y, label_comparison_fn=lambda a, b: (a == b).all(1)),
        lambda: ranks(X, X.long(), X, Y),
    ],
    f"query_labels and reference_labels: got shapes (4, 2) and (4, 3), {SAME_COLUMNS}": [
        lambda: score(X, X, X, torch.zeros(4, 3), label_comparison_fn=lambda a, b: (a == b).all(-1))
    ],
    "ignore: got torch.int32, wanted torch.bool; write ignore.bool()": [
        lambda: ranks(ignore=MASK.int()),
        lambda: TorchKNN()(X, 1, X, ignore=MASK.int()),
        lambda: TorchKNN()(X, 1, X, ignore=lambda rows: MASK.int()[rows]),
        lambda: TorchKNN()(X[None], 1, X[None], ignore=MASK.int()[None]),
        lambda: score(X, Y, ignore=MASK.int()),
    ],
    "ignore: got shape (4, 3), wanted (4, 4)": [
        lambda: score(X, Y, ignore=MASK[:, 1:]),
        lambda: score(X, Y, ignore=lambda rows: MASK[rows][:, 1:]),
    ],
    "ignore: got shape (4,), wanted (4, 4)": [lambda: ranks(ignore=Y)],
    "ignore: reference groups: got shape (3,), wanted (4,)": [
        lambda: score(X, Y, ignore=(Y, Y[:3])),
        lambda: ranks(ignore=(Y, Y[:3])),
    ],
    "ignore: got some together with cameras, wanted one of them": [
        lambda: score(X, Y, ignore=MASK, call={"query_cameras": Y}),
        lambda: computed(PrecisionAtK(2, ignore=MASK), cameras=Y),
    ],
    f"ignore: {CENTROIDS}": [lambda: score(X, Y, include=["nearest_centroid_accuracy"], ignore=MASK)],
    f"cameras: {CENTROIDS}": [lambda: score(X, Y, include=["nearest_centroid_accuracy"], call={"query_cameras": Y})],
    f"reference_cameras: got None, {EXACT_CAMERAS}": [lambda: score(X, Y, X, Y, call={"query_cameras": Y})],
    f"query_cameras: got None, {EXACT_CAMERAS}": [lambda: score(X, Y, X, Y, call={"reference_cameras": Y})],
    "query_cameras: got shape (3,), wanted (4,)": [
        lambda: score(X, Y, X, Y, call={"query_cameras": Y[:3], "reference_cameras": Y})
    ],
    FINITE_GAINS: [
        lambda: score(X, Y, call={"gains": -torch.ones(4, 4)}),
        lambda: score(X, Y, gains=lambda a, b: a * math.nan),
        lambda: ranks_of_triples(QUERY, REFERENCE, -GAIN),
    ],
    "gains: got shape (4, 3), wanted (4, 4)": [
        lambda: score(X, Y, call={"gains": torch.ones(4, 3)}),
        lambda: ranks(gains=torch.ones(4, 3)),
    ],
    f"gains: got shape (1,) and torch.int64 {NUMBERS}": [
        lambda: score(X, range(4), gains=lambda a, b: a[:1]),
        lambda: ranks(X, torch.arange(4), gains=lambda a, b: a[:1]),
    ],
    BOTH_GAINS: [
        lambda: score(X, Y, gains=torch.mul, label_comparison_fn=torch.ne),
        lambda: ranks(gains=torch.mul, label_comparison_fn=torch.ne),
    ],
    "gains: got a tuple of 2, wanted (queries, references, gains), (n,) each": [
        lambda: ranks_of_triples(QUERY, REFERENCE)
    ],
    "gains: references: got shape (1,), wanted (2,)": [lambda: ranks_of_triples(QUERY, REFERENCE[:1], GAIN)],
    "gains: references: got torch.float64, wanted an integer dtype; write gains: references.long()": [
        lambda: ranks_of_triples(QUERY, REFERENCE.double(), GAIN)
    ],
    "gains: queries: got shape (1, 2), wanted (1,)": [lambda: ranks_of_triples(QUERY[None], REFERENCE[None], GAIN)],
    "gains: queries: got 0 to 3, wanted 0 to 2": [lambda: ranks_of_triples(3 * QUERY, REFERENCE, GAIN)],
    "gains: references: got -1 to 2, wanted 0 to 2": [lambda: ranks_of_triples(QUERY, 3 * QUERY - 1, GAIN)],
    "gains: got reference 1 of query 0 more than once, wanted each pair once": [
        lambda: ranks_of_triples(QUERY[[0, 0]], REFERENCE[[0, 0]], GAIN)
    ],
    "gains: got a tuple of 3, wanted (dimension 0, queries, references, gains), (n,) each": [
        lambda: ranks_of_triples(QUERY, REFERENCE, GAIN, leading=(1,))
    ],
    "gains: dimension 0: got 0 to 1, wanted 0 to 0": [
        lambda: ranks_of_triples(QUERY, QUERY, REFERENCE, GAIN, leading=(1,))
    ],
    "self_index: got shape (2,), wanted (4,)": [
        lambda: score(X, Y, call={"self_index": [0, 1]}),
        lambda: nearest_centroid(X, Y, X, Y, self_index=Y[:2]),
    ],
    "self_index: got 4, wanted -1 to 3": [lambda: score(X, Y, call={"self_index": [0, 1, 2, 4]})],
    "self_index: got 7, wanted -1 to 3": [
        lambda: ranks(X, Y, X, Y, self_index=Y + 6),
        lambda: TorchKNN()(X, 3, X, self_index=Y + 6),
        lambda: ranks(X[None], Y[None], X[None], Y[None], self_index=Y[None] + 6),
        lambda: nearest_centroid(X, Y, X, Y, self_index=Y + 6),
        lambda: nearest_centroid(X[None], Y[None], X[None], Y[None], self_index=Y[None] + 6),
    ],
    "self_index: got torch.float32, wanted an integer dtype; write self_index.long()": [
        lambda: nearest_centroid(X, Y, X, Y, self_index=Y.float()),
        lambda: score(X, Y, call={"self_index": Y.float()}),
    ],
    f"query and reference: got shapes (2, 3, 4) and (3, 4), {LEADING}": [lambda: TorchKNN()(BATCH[0], 1, BATCH[0][0])],
    f"query and reference: got shapes (2, 3, 4) and (2, 3, 2), {LEADING}": [
        lambda: TorchKNN()(BATCH[0], 1, BATCH[0][..., :2])
    ],
    f"k: got 0, {INTEGER}": [
        lambda: TorchKNN()(BATCH[0], 0, BATCH[0]),
        *(
            lambda make=make: make(0)
            for make in (PrecisionAtK, RecallAtK, HitRate, AveragePrecision, ReciprocalRank, NDCG)
        ),
    ],
    "query_mask: got shape (3,), wanted (2, 3)": [lambda: TorchKNN()(BATCH[0], 1, BATCH[0], query_mask=BATCH[2][0])],
    "reference_mask: got torch.int64, wanted torch.bool; write reference_mask.bool()": [
        lambda: TorchKNN()(BATCH[0], 1, BATCH[0], reference_mask=BATCH[1])
    ],
    f"ref_includes_query: got 3 queries and 2 references, {PREFIX}": [
        lambda: TorchKNN()(BATCH[0], 1, BATCH[0][:, :2], True),
        lambda: score(X[:3], Y[:3], X[:2], Y[:2], True),
    ],
    "ignore: got a function with leading dimensions or masks, wanted a mask (..., Q, R)": [
        lambda: TorchKNN()(BATCH[0], 1, BATCH[0], ignore=lambda rows: None)
    ],
    "ignore: got a function with leading dimensions or masks, wanted a mask (..., Q, N)": [
        lambda: ranks(*BATCH[:2], ignore=lambda rows: None)
    ],
    "reference_mask: got one without reference, wanted query_mask": [
        lambda: ranks(*BATCH[:2], reference_mask=BATCH[2])
    ],
    "query_labels: got shape (2, 2), wanted (2, 3)": [lambda: ranks(BATCH[0], BATCH[1][:, :2])],
    "query: got shape (4,), wanted (..., N, D)": [lambda: ranks(BATCH[0][0, 0], BATCH[1][0], query_mask=BATCH[2])],
    "query_labels: got shape (3,), wanted leading dimensions (2,), those of query": [
        lambda: nearest_centroid(BATCH[0], BATCH[1][0])
    ],
    "query: got shape (4,), wanted (..., Q, D)": [lambda: nearest_centroid(BATCH[0][0, 0], BATCH[1][0, 0])],
    f"distance: got 'L1', {ONE_OF_DISTANCES}": [
        lambda: ranks(*BATCH[:2], distance="L1"),
        *(
            lambda make=make: make(distance="L1")
            for make in (
                AccuracyCalculator,
                RPrecision,
                NearestCentroidAccuracy,
                TARAtFAR,
                lambda **o: nearest_centroid(X, Y, **o),
                lambda **o: tar_at_far(X, Y, **o),
                ranks,
            )
        ),
    ],
    f"ties: got 'first', {ONE_OF_TIES}": [
        lambda: ranks(*BATCH[:2], ties="first"),
        *(lambda make=make: make(ties="first") for make in (AccuracyCalculator, RPrecision, ranks)),
    ],
    f"memory_budget: got 0, {INTEGER}": [
        *(
            lambda make=make: make(memory_budget=0)
            for make in (AccuracyCalculator, RPrecision, ClusterAccuracy, EmbeddingClusterAccuracy, TorchKNN)
        )
    ],
    "average: got 'mean', wanted one of 'micro', 'macro', 'class', 'none'": [
        *(lambda make=make: make(average="mean") for make in (RPrecision, NearestCentroidAccuracy))
    ],
    "on_lone: got 'skip', wanted one of 'exclude', 'zero', 'error'": [
        *(lambda make=make: make(on_lone="skip") for make in (AccuracyCalculator, RPrecision))
    ],
    f"depth: got 0, {INTEGER}": [lambda: ranks(depth=0)],
    f"include: got 'MAP', wanted names among {NAMES_OF_ALL}": [lambda: score(X, Y, call={"include": ["MAP"]})],
    f"exclude: got 'MAP', wanted names among {NAMES_OF_ALL}": [lambda: AccuracyCalculator(exclude=("MAP",))],
    "exclude: got ('r_precision',), which leaves none of r_precision": [
        lambda: AccuracyCalculator(("r_precision",), ("r_precision",))
    ],
    "distance: got 'ip' together with a knn_func; give the distance to the knn_func": [
        lambda: AccuracyCalculator(distance="ip", **KNN_FUNC)
    ],
    "exact: got False together with a knn_func; give exact=False to the knn_func": [
        lambda: AccuracyCalculator(exact=False, **KNN_FUNC)
    ],
    "ties: got 'optimistic', wanted 'index' where the neighbors come from a function": [
        lambda: AccuracyCalculator(ties="optimistic", knn_func=lambda *a: TorchKNN()(*a))
    ],
    "keep: got 'ranks', wanted one of 'scores', 'all', 'neighbors'": [lambda: AccuracyCalculator(keep="ranks")],
    "on_lone: got 'zero', which is better than any median_rank; wanted 'exclude' or 'error'": [
        lambda: AccuracyCalculator(["median_rank"], on_lone="zero")
    ],
    "on_lone: got 'zero', which is better than any rank; wanted 'exclude' or 'error'": [
        lambda: FirstRank(on_lone="zero")
    ],
    "avg_of_avgs and return_per_class: got both, wanted one of them": [
        lambda: AccuracyCalculator(avg_of_avgs=True, return_per_class=True)
    ],
    "distances of knn_func: got shape (4, 2), wanted (4, 3)": [
        lambda: score(X, Y, knn_func=lambda q, k, r, i: (torch.zeros(4, 2), torch.zeros(4, k, dtype=torch.int64)))
    ],
    "statistic: got 'mode', wanted one of 'mean', 'median'": [lambda: FirstRank("mode")],
    "denominator: got 'k', wanted one of 'relevant', 'min', 'found'": [lambda: AveragePrecision(3, "k")],
    f"k: got None with denominator='min', {INTEGER}": [lambda: AveragePrecision(denominator="min")],
    "gain: got 'log', wanted one of 'linear', 'exp2'": [lambda: NDCG(gain="log")],
    "relevance_level: got 'x', wanted a number": [
        lambda: evaluate_run({"q": {"a": 1.0}}, {"q": {"a": 1}}, relevance_level="x"),
        lambda: RunMetric(relevance_level="x"),
    ],
    "far: got 1.5, wanted rates in [0, 1]": [lambda: tar_at_far(X, Y, far=1.5), lambda: TARAtFAR(far=1.5)],
    "far: got none, wanted at least one rate": [lambda: PairwiseROC(())],
    "clusters: got shape (3,), wanted (4,)": [
        lambda: contingency(Y, Y[:3]),
        lambda: cluster_accuracy(Y, Y[:3]),
        lambda: score(X, Y, include=["NMI"], **clusters_of(0, 1, 2)),
        lambda: computed(EmbeddingClusterAccuracy(**clusters_of(0, 0, 1))),
    ],
    "labels: got shape (), wanted (..., N)": [lambda: contingency(Y[0], Y), lambda: cluster_accuracy(Y[0], Y)],
    "devices differ: labels on cpu, clusters on meta; move them with .to(device)": [
        *(lambda function=function: function(Y, Y.to("meta")) for function in (contingency, cluster_accuracy))
    ],
    "labels: 2 of 4 rows hold NaN or infinity, the first is row 1; wanted finite values": [
        lambda: contingency(torch.tensor([0, math.nan, 1, math.nan]), Y)
    ],
    f"clusters: got torch.uint64 {FEW_INTEGERS}": [lambda: contingency(Y, UNSIGNED)],
    "wanted either a Contingency alone or two tensors, labels and clusters": [
        lambda: mutual_info(Y),
        lambda: mutual_info(contingency(Y, Y), Y),
    ],
    "average: got 'mean', wanted one of 'arithmetic', 'geometric', 'min', 'max'": [
        *(lambda f=f: f(Y, Y, average="mean") for f in (normalized_mutual_info, adjusted_mutual_info))
    ],
    "precision_at_1: got neither scores nor knn_labels, wanted one of them": [
        lambda: AccuracyCalculator().calculate_precision_at_1(query_labels=Y)
    ],
    f"n_clusters: got 0, {INTEGER}": [lambda: EmbeddingClusterAccuracy(0), lambda: TorchKMeans()(X, 0)],
    "n_clusters: got 5, wanted at most the number of rows of x, 4": [
        lambda: computed(EmbeddingClusterAccuracy(5)),
        lambda: TorchKMeans()(X, 5),
    ],
    f"niter: got 0, {INTEGER}": [lambda: TorchKMeans(0)],
    "init: got 'best', wanted one of 'random', 'k-means++'": [lambda: TorchKMeans(init="best")],
    "seed: got -1, wanted an integer >= 0": [lambda: TorchKMeans(seed=-1)],
    f"n_init: got 0, {INTEGER}": [lambda: TorchKMeans(n_init=0)],
    "tol: got -0.1, wanted a number >= 0": [lambda: TorchKMeans(tol=-0.1)],
    f"max_points_per_centroid: got 0, {INTEGER}": [lambda: TorchKMeans(max_points_per_centroid=0)],
    "x: got shape (2,), wanted (N, D)": [lambda: TorchKMeans()(X[0], 1)],
    "init: got shape (4, 2), wanted (2, 2)": [lambda: TorchKMeans(init=X)(X, 2)],
    "devices differ: x on cpu, init on meta; move them with .to(device)": [
        lambda: TorchKMeans(init=X.to("meta"))(X, 4)
    ],
    "x: 2 of 4 rows hold NaN or infinity, the first is row 1; wanted finite values": [
        lambda: TorchKMeans()(NOT_FINITE, 2)
    ],
    **{
        f"label_comparison_fn: got {got} for 16 pairs of labels, wanted a torch.bool for each pair": [
            lambda function=function, call=call: call(X, torch.arange(4), label_comparison_fn=function)
            for call in (score, ranks)
        ]
        for got, function in (
            ("shape (16,) and torch.int64", torch.sub),
            ("shape (16,) and torch.float32", lambda x, y: (x == y).float()),
            ("shape () and torch.bool", lambda x, y: (x == y).all()),
        )
    },
    **{
        f"k must be an integer >= 1, None or 'max_bin_count', got {k!r}": [lambda k=k: AccuracyCalculator(k=k)]
        for k in (0, -1, True, 2.0, "max", np.float32(3))
    },
    **{
        f"beta: got {beta}, wanted a finite number >= 0": [lambda beta=beta: v_measure(Y, Y, beta=beta)]
        for beta in (math.inf, -1.0, math.nan)
    },
}


OTHER_ERRORS = [
    *(
        (
            NotImplementedError,
            f"{name}: {', '.join(of)} cannot use it; write exclude={of!r}",
            lambda name=name, include=include: AccuracyCalculator(include, **{name: torch.mul}),
        )
        for name in ("label_comparison_fn", "gains")
        for include, of in (
            ((), ("AMI", "NMI")),
            (("ARI", "r_precision"), ("ARI",)),
            (("nearest_centroid_accuracy", "r_precision"), ("nearest_centroid_accuracy",)),
        )
    ),
    (
        TypeError,
        "include: got 'r_precision', wanted a list or tuple of metric names",
        lambda: AccuracyCalculator(include="r_precision"),
    ),
    *(
        (TypeError, "far: got 0.1, wanted a sequence of rates; write [0.1]", call)
        for call in (lambda: pairwise_roc(X, Y, far=0.1), lambda: PairwiseROC(far=0.1))
    ),
    *(
        (
            TypeError,
            f"NearestCentroidAccuracy: got the argument '{name}', which ",
            lambda name=name: NearestCentroidAccuracy(**{name: None}),
        )
        for name in ("gains", "ignore", "label_comparison_fn", "ties")
    ),
]


@pytest.mark.parametrize("message", VALUE_ERRORS)
def test_invalid_call_raises_documented_message(message):
    for call in VALUE_ERRORS[message]:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            call()


@pytest.mark.parametrize(("error", "message", "call"), OTHER_ERRORS)
def test_unsupported_call_raises_documented_message(error, message, call):
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        call()
