"""Custom metrics, and metrics as modules in training."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from metric_cases import GOLDEN, ExampleMetric, Gap, table
from raising import raises
from torchmetrics import MetricCollection

from tensormetrics.association import (
    ECT,
    RIPA,
    RND,
    WEAT,
    BaseMetric,
    IndexedQuery,
    Query,
    WordEmbeddingModel,
    ect,
    rnd,
)


def test_guides_metric_run_query_returns_result_or_raises(query, tiny):
    result = ExampleMetric().run_query(query, tiny)
    assert list(result) == ["query_name", "result", "em"]
    assert np.isnan(ExampleMetric().run_query(Query([["x"], ["t2a"]], [["a1a"]]), tiny)["result"])
    with raises(TypeError, "EM.run_query: got the unknown keyword 'lowercase'; did you mean 'preprocessors'?"):
        ExampleMetric().run_query(query, tiny, lowercase=True)
    with raises(ValueError, "query: 'T1 wrt A1' has 1 target sets, wanted 2 for the metric EM"):
        ExampleMetric().run_query(Query([["t1a"]], [["a1a"]], ["T1"], ["A1"]), tiny)
    with raises(NotImplementedError, "ExampleMetric defines no measure(self, *sets)"):
        ExampleMetric().update(torch.ones(1, 2), torch.ones(1, 2), torch.ones(1, 2))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)], ids=str)
def test_run_query_of_guides_metric_gives_golden_score(dtype, tolerance, device):
    (case,) = (case for case in GOLDEN["cases"] if case["id"] == "tiny/example")
    query_parts = [case["targets"], case["attributes"]]
    query = Query(
        *(list(named_sets.values()) for named_sets in query_parts), *(list(named_sets) for named_sets in query_parts)
    )
    result = ExampleMetric().run_query(query, table(case["model"], device, dtype))
    assert result["query_name"] == query.query_name
    assert result["result"] == result["em"] == pytest.approx(case["expected"]["em"], rel=tolerance)


def test_guides_metric_on_published_vectors_gives_published_result():
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


def test_check_input_without_a_query_raises(query, tiny):
    metric = ExampleMetric()
    metric._check_input(query=query, model=tiny, lost_vocabulary_threshold=0.2, warn_not_found_words=False)
    with raises(TypeError, "query: got a NoneType, wanted a Query"):
        metric._check_input(query=None, model=tiny)


def test_custom_metric_with_measure_only_runs_queries(query, tiny):
    result = Gap().run_query(query, tiny)
    assert list(result) == ["query_name", "result", "gap", "widest"] and result["result"] == result["gap"]
    assert result["gap"] == RND().run_query(query, tiny)["rnd"]


def test_custom_metric_without_measure_and_run_query_raises(query, tiny):
    class Nothing(BaseMetric):
        metric_template, metric_name, metric_short_name = (2, 1), "Nothing", "N"

    with raises(NotImplementedError, "Nothing defines neither measure nor run_query"):
        Nothing().run_query(query, tiny)


def test_forward_keeps_leading_dimensions_and_gradients(tiny, query, device):
    index = tiny.index_query(query)
    short = tiny.index_query(Query([["t1a"], ["t2a"]], [["a1a", "a1b"]]))
    lost = tiny.index_query(Query([["x"], ["t2a"]], [["a1a", "a1b"]]))
    batch = IndexedQuery.stack([index, short, lost])
    for metric in (RND(), ECT(), RIPA(), WEAT()):
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
        scores = metric(*metric.arguments(batch, tiny.vectors))
        assert scores.shape == (3,) and scores[2].isnan() and scores[:2].isfinite().any()
        assert metric.compute().item() == pytest.approx(scores.nanmean().item(), rel=1e-12)


def test_forward_batch_of_tables_scores_each_table(tiny, query, device):
    index = tiny.index_query(query)
    tables = torch.stack([tiny.vectors, tiny.vectors.flip(0)])
    metric = RND().to(device)
    scores = metric(*index.sets(tables))
    assert scores.shape == (2,) and scores[0].item() == RND().run_query(query, tiny)["result"]
    assert metric.compute().item() == pytest.approx(scores.mean().item(), rel=1e-14)


def test_metric_collection_equal_first_states_are_not_merged(device):
    collection = MetricCollection([RND(), ECT()]).to(device)
    empty = [torch.ones(2, 0, 3, device=device)] * 3
    collection.update(*empty)
    sets = [torch.randn(2, 4, 3, device=device) for _ in range(3)]
    collection.update(*sets)
    values = collection.compute()
    torch.testing.assert_close(values["RND"], rnd(*sets).mean())
    torch.testing.assert_close(values["ECT"], ect(*sets).mean())


def test_weat_module_in_training_loop_tracks_effect_size(device):
    words = ["he", "him", "she", "her", "work", "wage", "home", "care"]
    query = Query([["he", "him"], ["she", "her"]], [["work", "wage"], ["home", "care"]])
    embedding = torch.nn.Embedding(len(words), 8, device=device)
    model = WordEmbeddingModel.from_tensor(embedding.weight, words)  # no copy
    audit, index = WEAT(return_effect_size=True).to(device), model.index_query(query)  # looked up once
    optimizer = torch.optim.SGD(embedding.parameters(), 1.0)
    cooccurring = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7]], device=device)
    sizes = []
    for _ in range(5):
        for _ in range(4):
            loss = -torch.nn.functional.cosine_similarity(*embedding(cooccurring), dim=-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        sizes.append(audit(*index.sets(model.vectors)).detach())
        assert sizes[-1].shape == () and sizes[-1] == WEAT().run_query(query, model)["effect_size"]
    assert sizes[-1] > sizes[0] and sizes[-1] > 1.5
    torch.testing.assert_close(audit.compute(), torch.stack(sizes).mean())


def test_weat_module_as_penalty_has_gradients(device):
    embedding = torch.nn.Embedding(8, 4, device=device)
    model = WordEmbeddingModel.from_tensor(embedding.weight, list("abcdefgh"))
    index = model.index_query(Query([["a", "b"], ["c", "d"]], [["e", "f"], ["g", "h"]]))
    WEAT().to(device)(*index.sets(model.vectors)).square().backward()
    assert (embedding.weight.grad.abs().sum(1) > 0).all()
