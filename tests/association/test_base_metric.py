"""Custom metrics, and metrics as modules in training."""

import pytest
import torch
from metric_cases import Gap, OwnQuery, answer
from raising import raises

from tensormetrics.association import ECT, RIPA, RND, WEAT, Query, WordEmbeddingModel
from tensormetrics.association.extend import IndexedQuery


def test_metric_with_its_own_run_query_needs_no_measure(query, tiny):
    assert OwnQuery().run_query(query, tiny).value == RND(distance="cos").run_query(query, tiny).value
    with raises(NotImplementedError, "OwnQuery defines no measure(self, *sets)"):
        OwnQuery().update(torch.ones(1, 2), torch.ones(1, 2), torch.ones(1, 2))


def test_custom_metric_with_measure_only_runs_queries(query, tiny):
    result = answer(Gap(), query, tiny)
    assert list(result)[4:] == ["gap", "widest"] and result["result"] == result["gap"]
    assert result["gap"] == answer(RND(), query, tiny)["rnd"]


@pytest.mark.parametrize("kind", [RND, ECT, RIPA, WEAT], ids=lambda kind: kind.__name__)
def test_forward_keeps_leading_dimensions(kind, tiny, query, device):
    metric, attributes = kind().to(device), [["a1a", "a1b"]] * kind.metric_template[1]
    queries = (
        Query(query.target_sets, query.attribute_sets * len(attributes)),
        Query([["t1a"], ["t2a"]], attributes),
        Query([["x"], ["t2a"]], attributes),  # a word is lost
    )
    batch = IndexedQuery.stack([tiny.index_query(query, paired=metric.paired) for query in queries])
    scores = metric(*metric.arguments(batch, tiny.vectors))
    assert scores.shape == (3,) and scores[2].isnan() and scores[:2].isfinite().any()
    assert metric.compute().item() == pytest.approx(scores.nanmean().item(), rel=1e-12)


def test_forward_batch_of_tables_scores_each_table(tiny, query, device):
    index = tiny.index_query(query)
    tables = torch.stack([tiny.vectors, tiny.vectors.flip(0)])
    metric = RND().to(device)
    scores = metric(*index.sets(tables))
    assert scores.shape == (2,) and scores[0].item() == answer(RND(), query, tiny)["result"]
    assert metric.compute().item() == pytest.approx(scores.mean().item(), rel=1e-14)


def test_weat_module_as_penalty_has_gradients(device):
    embedding = torch.nn.Embedding(8, 4, device=device)
    model = WordEmbeddingModel.from_tensor(embedding.weight, list("abcdefgh"))
    index = model.index_query(Query([["a", "b"], ["c", "d"]], [["e", "f"], ["g", "h"]]))
    WEAT().to(device)(*index.sets(model.vectors)).square().backward()
    assert (embedding.weight.grad.abs().sum(1) > 0).all()
