import builtins
import pickle

import numpy as np
import pytest
import torch

from tensormetrics.retrieval import EmbeddingClusterAccuracy, FaissKMeans


def test_without_faiss(monkeypatch):
    def refuse(name, *arguments, real=builtins.__import__, **options):
        if name == "faiss":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"^FaissKMeans needs faiss: pip install 'tensormetrics\[faiss\]'$"):
        FaissKMeans()


def test_what_faiss_finds(device):
    faiss = pytest.importorskip("faiss")
    x = torch.randn(600, 8, device=device)
    kmeans = FaissKMeans(niter=7, seed=5)
    clusters = kmeans(x.double(), 12)
    theirs = faiss.Kmeans(8, 12, niter=7, seed=5)
    theirs.train(x.cpu().numpy())
    assert clusters.dtype == torch.int64 and clusters.device.type == device.type
    np.testing.assert_array_equal(clusters.cpu(), theirs.index.search(x.cpu().numpy(), 1)[1][:, 0])
    np.testing.assert_array_equal(kmeans.centroids.cpu(), theirs.centroids)
    assert torch.equal(clusters, pickle.loads(pickle.dumps(kmeans))(x, 12))


def test_in_a_metric(device):
    pytest.importorskip("faiss")
    labels = torch.arange(300, device=device) % 2
    metric = EmbeddingClusterAccuracy(kmeans_func=FaissKMeans())
    metric.update(torch.eye(2, device=device)[labels] * 50 + torch.randn(300, 2, device=device), labels)
    assert float(metric.compute()) == 1


@pytest.mark.parametrize(("n_clusters", "message"), [(0, "an integer >= 1"), (4, "at most the number of rows of x, 3")])
def test_bad_input(n_clusters, message):
    pytest.importorskip("faiss")
    with pytest.raises(ValueError, match=f"^n_clusters: got {n_clusters}, wanted {message}$"):
        FaissKMeans()(torch.zeros(3, 2), n_clusters)
