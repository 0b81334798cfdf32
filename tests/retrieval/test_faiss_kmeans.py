import builtins
import pickle

import numpy as np
import pytest
import torch

from tensormetrics.retrieval import EmbeddingClusterAccuracy, FaissKMeans


def test_faiss_kmeans_without_faiss_raises(monkeypatch):
    def import_without_faiss(name, *arguments, real=builtins.__import__, **options):
        if name == "faiss":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", import_without_faiss)
    with pytest.raises(ImportError, match=r"^FaissKMeans needs faiss: pip install 'tensormetrics\[faiss\]'$"):
        FaissKMeans()


def test_faiss_kmeans_equals_faiss_clusters(device):
    faiss = pytest.importorskip("faiss")
    x = torch.randn(600, 8, device=device)
    kmeans = FaissKMeans(niter=7, seed=5)
    clusters = kmeans(x.double(), 12)
    expected = faiss.Kmeans(8, 12, niter=7, seed=5)
    expected.train(x.cpu().numpy())
    assert clusters.dtype == torch.int64 and clusters.device.type == device.type
    np.testing.assert_array_equal(clusters.cpu(), expected.index.search(x.cpu().numpy(), 1)[1][:, 0])
    np.testing.assert_array_equal(kmeans.centroids.cpu(), expected.centroids)
    assert torch.equal(clusters, pickle.loads(pickle.dumps(kmeans))(x, 12))


def test_faiss_kmeans_in_metric_finds_separate_clusters(device):
    pytest.importorskip("faiss")
    labels = torch.arange(300, device=device) % 2
    metric = EmbeddingClusterAccuracy(kmeans_func=FaissKMeans())
    metric.update(torch.eye(2, device=device)[labels] * 50 + torch.randn(300, 2, device=device), labels)
    assert float(metric.compute()) == 1


@pytest.mark.parametrize(("n_clusters", "message"), [(0, "an integer >= 1"), (4, "at most the number of rows of x, 3")])
def test_faiss_kmeans_invalid_n_clusters_raises(n_clusters, message):
    pytest.importorskip("faiss")
    with pytest.raises(ValueError, match=f"^n_clusters: got {n_clusters}, wanted {message}$"):
        FaissKMeans()(torch.zeros(3, 2), n_clusters)
