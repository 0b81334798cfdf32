import importlib.util
import itertools
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from raising import raises
from scipy.spatial import distance
from torchmetrics import MetricCollection

from tensormetrics.association import (
    ECT,
    GWEAT,
    MAC,
    RIPA,
    RND,
    RNSB,
    SAME,
    SCWEAT,
    WEAT,
    BaseMetric,
    DirectBias,
    IndexedQuery,
    PreprocessorArgs,
    Query,
    WordEmbeddingModel,
    ect,
    rnd,
)
from tensormetrics.association import ExampleMetric as BuiltIn

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
LOWER = {"lowercase": True}


class ExampleMetric(BaseMetric):
    """The metric of the guide to custom metrics, as it is written there."""

    metric_template = (2, 1)
    metric_name = "Example Metric"
    metric_short_name = "EM"

    def _calc_metric(self, target_embeddings, attribute_embeddings):
        target_embeddings_0 = np.array(list(target_embeddings[0].values()))
        target_embeddings_1 = np.array(list(target_embeddings[1].values()))
        attribute_embeddings_0 = np.array(list(attribute_embeddings[0].values()))

        target_embeddings_0_avg = np.mean(target_embeddings_0, axis=0)
        target_embeddings_1_avg = np.mean(target_embeddings_1, axis=0)
        attribute_embeddings_0_avg = np.mean(attribute_embeddings_0, axis=0)

        dist_target_0_attr = distance.cosine(target_embeddings_0_avg, attribute_embeddings_0_avg)
        dist_target_1_attr = distance.cosine(target_embeddings_1_avg, attribute_embeddings_0_avg)
        metric_result = dist_target_0_attr - dist_target_1_attr
        return metric_result

    def run_query(
        self,
        query: Query,
        word_embedding: WordEmbeddingModel,
        lost_vocabulary_threshold: float = 0.2,
        preprocessor_args: PreprocessorArgs = {  # noqa: B006
            "strip_accents": False,
            "lowercase": False,
            "preprocessor": None,
        },
        secondary_preprocessor_args: PreprocessorArgs = None,
        warn_not_found_words: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> dict[str, Any]:
        super().run_query(
            query,
            word_embedding,
            lost_vocabulary_threshold,
            preprocessor_args,
            secondary_preprocessor_args,
            warn_not_found_words,
            *args,
            **kwargs,
        )
        embeddings = word_embedding.get_embeddings_from_query(
            query=query,
            lost_vocabulary_threshold=lost_vocabulary_threshold,
            preprocessor_args=preprocessor_args,
            secondary_preprocessor_args=secondary_preprocessor_args,
            warn_not_found_words=warn_not_found_words,
        )
        if embeddings is None:
            return {"query_name": query.query_name, "result": np.nan, "em": np.nan}
        target_sets, attribute_sets = embeddings
        target_embeddings = list(target_sets.values())
        attribute_embeddings = list(attribute_sets.values())
        result = self._calc_metric(target_embeddings, attribute_embeddings)
        return {"query_name": query.query_name, "result": result, "em": result}


def table(name, device="cpu", dtype=torch.float64):
    words = GOLDEN["models"][name]
    return WordEmbeddingModel.from_tensor(torch.tensor(list(words.values()), dtype=dtype, device=device), list(words))


@pytest.fixture
def tiny(device):
    return table("tiny", device)


@pytest.fixture
def query():
    return Query([["t1a", "t1b", "t1c"], ["t2a", "t2b", "t2c"]], [["a1a", "a1b", "a1c", "a1d"]], ["T1", "T2"], ["A1"])


ALL = (WEAT, RND, RIPA, ECT, MAC, BuiltIn, SCWEAT, RNSB, DirectBias, SAME, GWEAT)
METRICS = {metric.__name__: metric for metric in ALL}
CASES = [case for case in GOLDEN["cases"] if case["kind"] == "metric" and case["metric"] in METRICS]


def numbers(nested):
    return [number for value in nested.values() for number in (numbers(value) if isinstance(value, dict) else [value])]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_goldens_in_words(case, dtype, device):
    sides = [case["targets"], case["attributes"]]
    query = Query(*(list(side.values()) for side in sides), *(list(side) for side in sides))
    result = METRICS[case["metric"]]().run_query(query, table(case["model"], device, dtype), **case["options"])
    assert list(result)[:2] == ["query_name", "result"] and result["query_name"] == query.query_name
    tolerance = {"rtol": 1e-10, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-6, "atol": 1e-6}
    if case["metric"] == "RNSB":
        tolerance["rtol"] = max(tolerance["rtol"], 1e-7)
    shared = result.keys() & case["expected"].keys()
    assert shared
    for key in shared:
        got, expected = result[key], case["expected"][key]
        if isinstance(got, dict):
            assert list(got) == list(expected)
            got, expected = numbers(got), numbers(expected)
        else:
            assert isinstance(got, np.float64)
        np.testing.assert_allclose(got, expected, **tolerance)


KEYS = {
    WEAT: ["weat", "effect_size", "p_value"],
    RND: ["rnd", "distance_by_word"],
    RIPA: ["ripa", "word_values"],
    ECT: ["ect"],
    MAC: ["mac", "targets_eval"],
    BuiltIn: ["em"],
    SCWEAT: ["sc_weat", "effect_size_by_word", "p_value_by_word"],
    RNSB: ["rnsb", "negative_sentiment_probabilities", "negative_sentiment_distribution"],
    DirectBias: ["direct_bias", "bias_by_word"],
    SAME: ["same", "skew", "stereotype", "same_by_word"],
    GWEAT: ["gweat", "by_group", "p_value"],
}


@pytest.mark.parametrize("metric", KEYS, ids=lambda metric: metric.__name__)
def test_keys_stay_the_same_when_words_are_lost(metric, tiny):
    targets, attributes = (n if isinstance(n, int) else 2 for n in metric.metric_template)
    sets = [["t1a", "t1b"], ["t2a", "t2b"], ["a1a", "a1b"], ["a2a", "a2b"]]
    found = metric().run_query(Query(sets[:targets], sets[2 : 2 + attributes]), tiny)
    lost = metric().run_query(Query([["x", "y"]] * targets, sets[2 : 2 + attributes]), tiny)
    assert list(found) == list(lost) == ["query_name", "result", *KEYS[metric]]
    for key, value in lost.items():
        if key != "query_name":
            assert value == {} if isinstance(found[key], dict) else np.isnan(value)


@pytest.mark.parametrize("metric", KEYS, ids=lambda metric: metric.__name__)
def test_both_vocabularies(metric, tiny):
    targets, attributes = (n if isinstance(n, int) else 2 for n in metric.metric_template)
    sets = [["T1A", "t1b"], ["t2a", "T2B"], ["a1a", "A1B"], ["a2a", "a2b"]]
    query = Query(sets[:targets], sets[2 : 2 + attributes])
    current = metric().run_query(query, tiny, preprocessors=[{}, LOWER])
    former = metric().run_query(
        query=query, word_embedding=tiny, preprocessor_args={}, secondary_preprocessor_args=LOWER
    )
    assert repr(current) == repr(former) and np.isfinite(current["result"])
    if metric.by_position:
        assert repr(metric().run_query(query, tiny, 0.2, {}, LOWER, False)) == repr(current)
        assert repr(metric().run_query(query, tiny, 0.2, None, LOWER)) == repr(current)
        assert repr(metric().run_query(query, tiny, 0.2, [{}, LOWER], "first", False, False)) == repr(current)
    else:
        short = metric.metric_short_name
        message = f"{short}.run_query: got 3 arguments by position, wanted at most 2; name the others"
        with raises(TypeError, message):
            metric().run_query(query, tiny, 0.2)


def test_options_of_the_call_override_those_of_the_constructor(tiny):
    query = Query([["t1a", "t1b"], ["t2a", "t2b"]], [["a1a", "a1b"], ["a2a", "a2b"]])
    metric = WEAT(correction=1)
    result = metric.run_query(query, tiny, return_effect_size=True)
    assert result["result"] == result["effect_size"] != result["weat"]
    assert metric.run_query(query, tiny)["result"] == result["weat"]
    assert WEAT().run_query(query, tiny, correction=1) == pytest.approx(metric.run_query(query, tiny), nan_ok=True)
    short = Query([["t1a"], ["t2a"]], [["a1a", "a1b"]])
    assert RND(distance="cos").run_query(short, tiny) == RND().run_query(short, tiny, distance_type="cos")


def test_words_of_several_rows_are_one_entry_by_word(device):
    pools = {"x": [[1.0, 0.0]], "y": [[0.0, 1.0]], "a": [[2.0, 0.0], [0.0, 1.0]]}
    model = WordEmbeddingModel.from_contexts({word: torch.tensor(rows, device=device) for word, rows in pools.items()})
    result = RND().run_query(Query([["x"], ["y"]], [["a"]]), model)
    assert result["result"] == result["distance_by_word"]["a"] == pytest.approx((1 - 5**0.5 + 2**0.5) / 2)


def test_ripa_pairs(tiny, caplog):
    pairs = Query([["t1a", "x", "t1b"], ["t2a", "t2b", "t1b"]], [["a1a"]])  # one lost, one of equal vectors
    with caplog.at_level(logging.WARNING, "tensormetrics.association"):
        result = RIPA().run_query(pairs, tiny, lost_vocabulary_threshold=0.5)
    alone = RIPA().run_query(Query([["t1a"], ["t2a"]], [["a1a"]]), tiny)
    assert result == alone and alone["word_values"]["a1a"]["std"] == 0
    message = "'Target set 0 and Target set 1 wrt Attribute set 0': only 1 pairs of unequal vectors"
    assert caplog.records[-1].getMessage() == message
    nothing = RIPA().run_query(Query([["t1a"], ["t1a"]], [["a1a"]]), tiny)
    assert np.isnan(nothing["result"]) and np.isnan(nothing["word_values"]["a1a"]["mean"])
    with raises(
        ValueError,
        "query: 'Target set 0' has 2, 'Target set 1' has 1 words, wanted lists of one length, because they form tuples "
        "by position",
    ):
        RIPA().run_query(Query([["t1a", "t1b"], ["t2a"]], [["a1a"]]), tiny)


def test_rnsb_counts_a_word_of_two_sets_once(tiny):
    sets = [["a1a", "a1b"], ["a2a", "a2b"]]
    result = RNSB().run_query(Query([["t1a", "t1b"], ["t2a", "t1b", "t1a"]], sets), tiny)
    alone = RNSB().run_query(Query([["t1a", "t1b", "t2a"]], sets), tiny)
    assert list(result["negative_sentiment_probabilities"]) == ["t1a", "t1b", "t2a"]
    for key in result.keys() - {"query_name"}:
        assert result[key] == pytest.approx(alone[key], rel=1e-12)
    assert sum(result["negative_sentiment_distribution"].values()) == pytest.approx(1)


def test_rnsb_with_words_set_aside(tiny):
    words = [word for word in GOLDEN["models"]["tiny"] if word[0] == "t"]
    query = Query([words[:4], words[4:]], [[f"a1{c}" for c in "abcd"], [f"a2{c}" for c in "abcd"]])
    whole = RNSB(holdout=False).run_query(query, tiny)
    assert whole == RNSB(n_iterations=7, random_state=3).run_query(query, tiny)
    single = [RNSB(holdout=True, random_state=i).run_query(query, tiny) for i in range(4)]
    mean = RNSB(holdout=True, n_iterations=4).run_query(query, tiny)
    assert mean["rnsb"] == pytest.approx(np.mean([result["rnsb"] for result in single]), rel=1e-12)
    assert len({result["rnsb"] for result in single} | {whole["rnsb"]}) > 2
    p = [result["negative_sentiment_probabilities"]["t1a"] for result in single]
    assert mean["negative_sentiment_probabilities"]["t1a"] == pytest.approx(np.mean(p), rel=1e-12)
    assert sum(mean["negative_sentiment_distribution"].values()) == pytest.approx(1)
    a, b = ([words[:i] + words[i + 1 :] for i in range(4)] for words in query.attribute_sets)
    left = [RNSB().run_query(Query(query.target_sets, pair), tiny)["rnsb"] for pair in itertools.product(a, b)]
    for result in single:  # one of four words is missing on either side
        assert min(abs(result["rnsb"] - other) for other in left) < 1e-12


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"C": 0}, ValueError, "C: got 0, wanted a number > 0"),
        ({"holdout": 0.2}, TypeError, "holdout: got a float, wanted True or False"),
        ({"random_state": -1}, ValueError, "random_state: got -1, wanted an integer >= 0"),
        ({"n_iterations": 0}, ValueError, "n_iterations: got 0, wanted an integer >= 1"),
    ],
)
def test_errors_of_rnsb_options(options, kind, message):
    with raises(kind, message):
        RNSB(**options)


def test_groups_are_counted_before_look_up(tiny):
    one = Query([["t1a"]], [["a1a"]], ["T"], ["A"])
    for metric in (DirectBias, SAME):
        message = (
            "query: 'T wrt A' has 1 target and 1 attribute sets, wanted at least 2 attribute sets for the metric "
            + metric.metric_short_name
        )
        with raises(ValueError, message):
            metric().run_query(one, tiny)
    message = (
        "query: 'T wrt A and B' has 1 target and 2 attribute sets, wanted equally many, at least 2 for the metric "
    )
    with raises(ValueError, message + "GWEAT"):
        GWEAT().run_query(Query([["t1a"]], [["a1a"], ["a2a"]], ["T"], ["A", "B"]), tiny)
    lengths = "query: 'A' has 1, 'B' has 2 words, wanted lists of one length, because they form tuples by position"
    with raises(ValueError, lengths):
        DirectBias().run_query(Query([["t1a"]], [["a1a"], ["a2a", "a2b"]], ["T"], ["A", "B"]), tiny)


def test_direct_bias_of_a_batch_with_lost_tuples(tiny):
    query = Query([["t1a", "t1b"]], [["a1a", "x", "a1c"], ["a2a", "a2b", "a2c"]])
    whole = Query([["t1a", "t1b"]], [["a1a", "a1b", "a1c"], ["a2a", "a2b", "a2c"]])
    indices = [tiny.index_query(q, paired=True, lost_vocabulary_threshold=0.5) for q in (query, whole)]
    metric = DirectBias()
    sets, masks = metric.arguments(IndexedQuery.stack(indices), tiny.vectors)
    scores = metric.measure(*sets, **masks)["direct_bias"].tolist()
    expected = [metric.run_query(q, tiny, lost_vocabulary_threshold=0.5)["result"] for q in (query, whole)]
    assert scores == pytest.approx(expected, rel=1e-12)


def test_mac_counts_a_word_once_per_set(tiny):
    result = MAC().run_query(Query([["t1a", "t1b"], ["t1a"]], [["a1a"], ["a2a", "a2b"]], ["T", "U"], ["A", "B"]), tiny)
    table = result["targets_eval"]
    assert {name: list(words) for name, words in table.items()} == {"T": ["t1a", "t1b"], "U": ["t1a"]}
    assert result["mac"] == pytest.approx(np.mean(numbers(table))) and table["T"]["t1a"] == table["U"]["t1a"]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"query": ["a"]}, TypeError, "query: got a list, wanted a Query"),
        (
            {"model": {}},
            TypeError,
            "model: got a dict, wanted a WordEmbeddingModel; write WordEmbeddingModel(model)",
        ),
        ({"word_embedding": None}, TypeError, "model, word_embedding: got both, wanted one"),
        (
            {"lost_vocabulary_threshold": 2},
            ValueError,
            "lost_vocabulary_threshold: got 2, wanted a number between 0 and 1",
        ),
        ({"normalize": 1}, TypeError, "normalize: got a int, wanted True or False"),
        ({"warn_not_found_words": None}, TypeError, "warn_not_found_words: got a NoneType, wanted True or False"),
        ({"preprocessors": ["x"]}, TypeError, "preprocessors[0]: got a str, wanted a dict of options"),
        (
            {"preprocessors": [{}], "secondary_preprocessor_args": {}},
            TypeError,
            "preprocessors, secondary_preprocessor_args: got both, wanted one; write preprocessors=[first, second]",
        ),
        ({"strategy": "any"}, ValueError, "strategy: got 'any', wanted one of 'first', 'all'"),
        ({"distance": "l2"}, ValueError, "distance: got 'l2', wanted one of 'norm', 'cos', 'cos_similarity'"),
        (
            {"normalise": True},
            TypeError,
            "RND.run_query: got the unknown keyword 'normalise'; did you mean 'normalize'?",
        ),
        (
            {"query": Query([["t1a"]], [["a1a"]], ["T"], ["A"])},
            ValueError,
            "query: 'T wrt A' has 1 target sets, wanted 2 for the metric RND",
        ),
        (
            {"query": Query([["t1a"], ["t2a"]], [], ["T", "U"])},
            ValueError,
            "query: 'T and U' has 0 attribute sets, wanted 1 for the metric RND",
        ),
    ],
)
def test_errors_come_before_any_look_up(change, kind, message, query, tiny, monkeypatch):
    monkeypatch.setattr(WordEmbeddingModel, "index_query", None)
    with raises(kind, message):
        RND().run_query(**{"query": query, "model": tiny} | change)


def test_errors_of_the_call(query, tiny):
    with raises(TypeError, "RND.run_query: got no model (or word_embedding)"):
        RND().run_query(query)
    with raises(TypeError, "RND.run_query: got no query"):
        RND().run_query(model=tiny)
    with raises(TypeError, "RND.run_query: got query by position and by name, wanted one"):
        RND().run_query(query, tiny, query=query)
    with raises(ValueError, "query: 'T1 and T2' has 0 attribute sets, wanted one or more for the metric MAC"):
        MAC().run_query(Query(query.target_sets, [], ["T1", "T2"]), tiny)
    with raises(ValueError, "correction: got 2, wanted 0 or 1"):
        WEAT(correction=2)
    with raises(TypeError, "return_effect_size: got a int, wanted True or False"):
        WEAT(return_effect_size=1)


def test_the_guides_metric(query, tiny):
    result = ExampleMetric().run_query(query, tiny)
    assert list(result) == ["query_name", "result", "em"]
    assert result["em"] == pytest.approx(BuiltIn().run_query(query, tiny)["em"], rel=1e-12)
    assert np.isnan(ExampleMetric().run_query(Query([["x"], ["t2a"]], [["a1a"]]), tiny)["result"])
    with raises(TypeError, "EM.run_query: got the unknown keyword 'lowercase'; did you mean 'preprocessor_args'?"):
        ExampleMetric().run_query(query, tiny, lowercase=True)
    with raises(ValueError, "query: 'T1 wrt A1' has 1 target sets, wanted 2 for the metric EM"):
        ExampleMetric().run_query(Query([["t1a"]], [["a1a"]], ["T1"], ["A1"]), tiny)
    with raises(NotImplementedError, "ExampleMetric defines no measure(self, *sets, **masks)"):
        ExampleMetric().update(torch.ones(1, 2), torch.ones(1, 2), torch.ones(1, 2))


def test_the_guides_example_on_its_vectors():
    wefe = importlib.util.find_spec("wefe")
    if wefe is None:
        pytest.skip("wefe is not installed")
    (path,) = Path(wefe.origin).parent.rglob("weat_w2v*.txt")
    model = WordEmbeddingModel(WordEmbeddingModel.from_word2vec(path), "weat_w2v", "")
    weat = json.loads((Path(__file__).parent / "golden_doors.json").read_text())["word_sets"]
    query = Query([weat["flowers"], weat["weapons"]], [weat["pleasant_5"]], ["Flowers", "Weapons"], ["Pleasant"])
    result = ExampleMetric().run_query(query, model)
    assert result["query_name"] == "Flowers and Weapons wrt Pleasant"
    assert result["result"] == pytest.approx(-0.10210, abs=1e-5)
    assert BuiltIn().run_query(query, model)["result"] == pytest.approx(result["result"], abs=1e-6)


def test_check_input_alone(query, tiny):
    metric = ExampleMetric()
    metric._check_input(query=query, model=tiny, lost_vocabulary_threshold=0.2, warn_not_found_words=False)
    with raises(TypeError, "query: got a NoneType, wanted a Query"):
        metric._check_input(query=None, model=tiny)


class Gap(BaseMetric):
    metric_template, metric_name, metric_short_name = (2, 1), "Gap", "GAP"

    def measure(self, *sets, **masks):
        score, by_word = rnd(*sets, per_word=True, **masks)
        return {"gap": score, "widest": by_word.abs().amax(-1)}


def test_a_metric_by_measure_alone(query, tiny):
    result = Gap().run_query(query, tiny)
    assert list(result) == ["query_name", "result", "gap", "widest"] and result["result"] == result["gap"]
    assert result["gap"] == RND().run_query(query, tiny)["rnd"]


def test_a_metric_of_neither(query, tiny):
    class Nothing(BaseMetric):
        metric_template, metric_name, metric_short_name = (2, 1), "Nothing", "N"

    with raises(NotImplementedError, "Nothing defines neither measure nor run_query"):
        Nothing().run_query(query, tiny)


def test_forward_keeps_leading_dimensions_and_gradients(tiny, query, device):
    index = tiny.index_query(query)
    short = tiny.index_query(Query([["t1a"], ["t2a"]], [["a1a", "a1b"]]))
    lost = tiny.index_query(Query([["x"], ["t2a"]], [["a1a", "a1b"]]))
    batch = IndexedQuery.stack([index, short, lost])
    for metric in (RND(), BuiltIn(), ECT(), RIPA(), WEAT()):
        metric.to(device)
        if isinstance(metric, WEAT):
            indices = [
                tiny.index_query(Query(i.query.target_sets, i.query.attribute_sets * 2)) for i in (index, short, lost)
            ]
            batch = IndexedQuery.stack(indices)
        elif metric.paired:
            batch = IndexedQuery.stack([tiny.index_query(i.query, paired=True) for i in (index, short, lost)])
        else:
            indices = [index, short, lost]
            batch = IndexedQuery.stack(indices)
        sets, masks = metric.arguments(batch, tiny.vectors)
        scores = metric(*sets, **masks)
        assert scores.shape == (3,) and scores[2].isnan() and scores[:2].isfinite().any()
        assert metric.compute().item() == pytest.approx(scores.nanmean().item(), rel=1e-12)


def test_scores_of_several_tables_at_once(tiny, query, device):
    index = tiny.index_query(query)
    tables = torch.stack([tiny.vectors, tiny.vectors.flip(0)])
    metric = RND().to(device)
    scores = metric(*index.sets(tables))
    assert scores.shape == (2,) and scores[0].item() == RND().run_query(query, tiny)["result"]
    assert metric.compute().item() == pytest.approx(scores.mean().item(), rel=1e-14)


def test_metrics_that_begin_alike_stay_apart_in_a_collection(device):
    collection = MetricCollection([RND(), ECT()]).to(device)
    empty = [torch.ones(2, 0, 3, device=device)] * 3
    collection.update(*empty)
    sets = [torch.randn(2, 4, 3, device=device) for _ in range(3)]
    collection.update(*sets)
    values = collection.compute()
    torch.testing.assert_close(values["RND"], rnd(*sets).mean())
    torch.testing.assert_close(values["ECT"], ect(*sets).mean())


def test_an_embedding_is_audited_as_it_trains(device):
    words = ["he", "him", "she", "her", "work", "wage", "home", "care"]
    query = Query([["he", "him"], ["she", "her"]], [["work", "wage"], ["home", "care"]])
    embedding = torch.nn.Embedding(len(words), 8, device=device)
    model = WordEmbeddingModel.from_tensor(embedding.weight, words)  # no copy
    audit, index = WEAT(return_effect_size=True).to(device), model.index_query(query)  # looked up once
    optimizer = torch.optim.SGD(embedding.parameters(), 1.0)
    together = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7]], device=device)
    sizes = []
    for _ in range(5):
        for _ in range(4):
            loss = -torch.nn.functional.cosine_similarity(*embedding(together), dim=-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        sizes.append(audit(*index.sets(model.vectors)).detach())
        assert sizes[-1].shape == () and sizes[-1] == WEAT().run_query(query, model)["effect_size"]
    assert sizes[-1] > sizes[0] and sizes[-1] > 1.5
    torch.testing.assert_close(audit.compute(), torch.stack(sizes).mean())


def test_a_score_can_be_a_penalty(device):
    embedding = torch.nn.Embedding(8, 4, device=device)
    model = WordEmbeddingModel.from_tensor(embedding.weight, list("abcdefgh"))
    index = model.index_query(Query([["a", "b"], ["c", "d"]], [["e", "f"], ["g", "h"]]))
    WEAT().to(device)(*index.sets(model.vectors)).square().backward()
    assert (embedding.weight.grad.abs().sum(1) > 0).all()


P_VALUES = [case for case in GOLDEN["cases"] if case["kind"] == "p_value"]
SIDES = {"right-sided": "p_right", "left-sided": "p_left", "two-sided": "p_two_sided"}


@pytest.mark.parametrize("side", SIDES)
def test_p_values_in_words(side, device):
    flips = [case["expected"]["sign_flip"] for case in CASES if "sign_flip" in case["expected"]]
    paired = [case | {"expected": flip} for case in CASES for flip in flips if case["id"] == "tiny/ripa"]
    assert P_VALUES and paired
    for case in P_VALUES + paired:
        query = Query(list(case["targets"].values()), list(case["attributes"].values()))
        metric = METRICS[case["metric"]](calculate_p_value=True, p_value_test_type=side)
        result = metric.run_query(query, table(case["model"], device), **case["options"])
        assert list(result)[-1] == "p_value"
        assert result["p_value"] == pytest.approx(case["expected"][SIDES[side]], rel=1e-12)


def test_p_value_of_each_word(tiny):
    query = Query([["t1a", "t1b"]], [["a1a", "a1b", "a1c"], ["a2a", "a2b"]])
    result = SCWEAT().run_query(query, tiny, calculate_p_value=True)
    alone = SCWEAT(calculate_p_value=True).run_query(Query([["t1b"]], query.attribute_sets), tiny)
    assert list(result["p_value_by_word"]) == ["t1a", "t1b"]
    assert result["p_value_by_word"]["t1b"] == alone["p_value_by_word"]["t1b"] in [i / 10 for i in range(1, 11)]


def test_p_value_keys_on_lost_vocabulary_and_verbose(tiny, capsys):
    lost = RIPA().run_query(Query([["x"], ["y"]], [["a1a"]]), tiny, calculate_p_value=True)
    assert list(lost) == ["query_name", "result", "ripa", "word_values", "p_value"] and np.isnan(lost["p_value"])
    query = Query([["t1a"], ["t2a"]], [["a1a"]], ["T", "U"], ["A"])
    RIPA().run_query(query, tiny, calculate_p_value=True, p_value_verbose=True)
    assert capsys.readouterr().out.startswith("RIPA, T and U wrt A, right-sided: {'p_value': ")


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"p_value_test_type": "both"},
            ValueError,
            "p_value_test_type: got 'both', wanted one of 'right-sided', 'left-sided', 'two-sided'",
        ),
        (
            {"p_value_method": "sampled"},
            ValueError,
            "p_value_method: got 'sampled', wanted one of 'auto', 'exact', 'approximate'",
        ),
        ({"p_value_iterations": 0}, ValueError, "p_value_iterations: got 0, wanted an integer >= 1"),
        ({"p_value_seed": -1}, ValueError, "p_value_seed: got -1, wanted an integer >= 0"),
        ({"calculate_p_value": 1}, TypeError, "calculate_p_value: got a int, wanted True or False"),
    ],
)
def test_errors_of_p_value_options(options, kind, message):
    with raises(kind, message):
        RIPA(**options)


@pytest.mark.parametrize("metric", KEYS, ids=lambda metric: metric.__name__)
def test_bootstrap_intervals(metric, tiny):
    targets, attributes = (n if isinstance(n, int) else 2 for n in metric.metric_template)
    sets = [["t1a", "t1b", "t1c"], ["t2a", "t2b", "t2c"], ["a1a", "a1b", "a1c"], ["a2a", "a2b", "a2c"]]
    query = Query(sets[:targets], sets[2 : 2 + attributes])
    result = metric(bootstrap_iterations=200, bootstrap_seed=1).run_query(query, tiny)
    assert list(result) == ["query_name", "result", *KEYS[metric], "ci_low", "ci_high"]
    assert result["ci_low"] < result["ci_high"]
    assert repr(result) == repr(metric().run_query(query, tiny, bootstrap_iterations=200, bootstrap_seed=1))
    narrow = metric(confidence=0.5).run_query(query, tiny, bootstrap_iterations=200, bootstrap_seed=1)
    assert result["ci_low"] <= narrow["ci_low"] <= narrow["ci_high"] <= result["ci_high"]
    lost = metric(bootstrap_iterations=200).run_query(Query([["x"]] * targets, [["y"]] * attributes), tiny)
    assert list(lost) == list(result) and np.isnan(lost["ci_low"])


def test_bootstrap_of_one_word_sets_is_the_score(tiny):
    query = Query([["t1a"], ["t2a"]], [["a1a"]])
    for metric in (RND, RIPA, BuiltIn):
        result = metric(bootstrap_iterations=9).run_query(query, tiny)
        assert result["ci_low"] == result["ci_high"] == pytest.approx(result["result"], rel=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bootstrap_iterations": -1}, "bootstrap_iterations: got -1, wanted an integer >= 0"),
        ({"confidence": 1}, "confidence: got 1, wanted a number between 0 and 1"),
        ({"bootstrap_seed": "x"}, "bootstrap_seed: got 'x', wanted an integer >= 0"),
    ],
)
def test_errors_of_bootstrap_options(options, message):
    with raises(ValueError, message):
        WEAT(**options)


def test_no_interval_without_a_score_function(query, tiny):
    message = "GAP.run_query: got the unknown keyword 'confidence'; did you mean 'model'?"
    with raises(TypeError, message):
        Gap().run_query(query, tiny, confidence=0.9)


def test_no_p_value_without_a_null(tiny):
    message = "MAC.run_query: got the unknown keyword 'calculate_p_value'; did you mean 'lost_vocabulary_threshold'?"
    with raises(TypeError, message):
        MAC().run_query(Query([["t1a"]], [["a1a"]]), tiny, calculate_p_value=True)
    with raises(NotImplementedError, "MAC has no p-value"):
        MAC().p_values()
