"""Custom metrics, and metrics as modules in training."""

import pytest
import torch
from metric_cases import Gap, OwnQuery, answer
from raising import raises
from torchmetrics import MetricCollection

from tensormetrics.association import ECT, RIPA, RND, WEAT, Query, WordEmbeddingModel
from tensormetrics.association.extend import IndexedQuery
from tensormetrics.association.functional import ect, rnd


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
        assert sizes[-1].shape == () and sizes[-1] == answer(WEAT(), query, model)["effect_size"]
    assert sizes[-1] > sizes[0] and sizes[-1] > 1.5
    torch.testing.assert_close(audit.compute(), torch.stack(sizes).mean())


def test_weat_module_as_penalty_has_gradients(device):
    embedding = torch.nn.Embedding(8, 4, device=device)
    model = WordEmbeddingModel.from_tensor(embedding.weight, list("abcdefgh"))
    index = model.index_query(Query([["a", "b"], ["c", "d"]], [["e", "f"], ["g", "h"]]))
    WEAT().to(device)(*index.sets(model.vectors)).square().backward()
    assert (embedding.weight.grad.abs().sum(1) > 0).all()
