import pickle

import numpy as np
import pytest
import torch
from retrieval_oracle import neighbors

from tensormetrics.retrieval import FaissKMeans, FaissKNN, TorchKNN
from tensormetrics.retrieval.search.backends import faiss_knn

faiss = pytest.importorskip("faiss")


@pytest.fixture
def rows():
    return torch.randn(60, 4)


def error_message(error_type, call, *args, **kwargs):
    with pytest.raises(error_type) as error:
        call(*args, **kwargs)
    return str(error.value)


def test_faiss_knn_train_add_save_load_reset_keep_rows(rows, tmp_path):
    knn = FaissKNN(reset_after=False)
    assert knn.index is None
    knn.add(rows[:20])
    knn.add(rows[20:].double().int().float())
    rows = torch.cat([rows[:20], rows[20:].int().float()])
    assert knn.index.ntotal == 60
    expected = TorchKNN()(rows, 1, rows, True)[1]
    assert torch.equal(knn(rows[:5], 1, None, True)[1], expected[:5])
    assert torch.equal(knn(rows, 1)[0], torch.zeros(60, 1))
    knn.save(tmp_path / "index")
    other = FaissKNN()
    other.load(tmp_path / "index")
    assert torch.equal(other(rows[:5], 1, ref_includes_query=True)[1], expected[:5])
    assert other.index is None  # reset_after is True by default
    knn.train(rows[:3])
    assert knn.index.ntotal == 3
    knn.reset()
    assert knn.index is None


def test_faiss_knn_references_require_new_or_empty_index(rows):
    knn = FaissKNN(reset_after=False)
    for reference in (rows[:30], rows[30:]):
        indices = knn(rows[:4], 3, reference, False)[1]
        assert torch.equal(indices, TorchKNN()(rows[:4], 3, reference, False)[1])
    assert knn.index.ntotal == 30
    knn = FaissKNN(reset_before=False)
    for _ in range(2):
        assert knn(rows[:4], 3, rows, True)[1].shape == (4, 3)  # reset_after empties the index
    knn = FaissKNN(reset_before=False, reset_after=False)
    knn(rows, 3, rows, True)
    assert error_message(ValueError, knn, rows, 3, rows, True) == (
        "reference: got 60 rows while the index holds 60; search these with reference=None, or reset() first"
    )
    assert knn(rows, 3)[1][:, 0].tolist() == list(range(60))


@pytest.mark.parametrize("index_init_fn", ["IVF4,Flat", lambda d: faiss.IndexIVFFlat(faiss.IndexFlatL2(d), d, 4)])
def test_faiss_knn_untrained_index_is_trained_first(index_init_fn):
    rows = torch.randn(200, 4)
    knn = FaissKNN(reset_after=False, index_init_fn=index_init_fn)
    indices = knn(rows, 3, rows, True)[1]
    assert knn.index.is_trained and knn.index.ntotal == 200
    assert (indices != torch.arange(200)[:, None]).all()
    knn.index.nprobe = 4  # now the search is exhaustive
    assert torch.equal(knn(rows, 3, None, True)[1], TorchKNN()(rows, 3, rows, True)[1])


def test_faiss_knn_more_ties_than_k_keep_index_order():
    for n in (12, 200):
        x = torch.zeros(n, 3)
        expected, _ = neighbors(x, x, 5, "l2", self_index=range(n))
        assert np.array_equal(FaissKNN()(x, 5, x, True)[1], expected)


def test_faiss_knn_passes_inputs_without_copy(rows):
    pointers = []

    class Index(faiss.IndexFlatL2):
        def add(self, x):
            pointers.append(x.data_ptr())
            super().add(x)

        def search(self, x, k):
            pointers.append(x.data_ptr())
            return super().search(x, k)

    FaissKNN(index_init_fn=Index)(rows[:7], 2, rows, True)
    assert pointers == [rows.data_ptr(), rows.data_ptr()]


def test_faiss_knn_float64_input_warns_of_cast(rows):
    wide = rows.double() + 1e-12
    with pytest.warns(UserWarning) as caught:
        distances, indices = FaissKNN()(wide, 3, wide, True)
    assert [str(warning.message) for warning in caught] == [
        f"{name}: got torch.float64, which faiss searches as float32" for name in ("reference", "query")
    ]
    assert distances.dtype == torch.float32 and torch.equal(indices, FaissKNN()(rows, 3, rows, True)[1])


def test_faiss_knn_cosine_of_zero_and_tiny_rows_equals_torch():
    x = torch.tensor([[0.0, 0.0], [1e-20, 0.0], [2e20, 1e15], [0.0, 3.0]])
    distances, indices = FaissKNN(distance="cosine")(x, 3, x, True)
    expected = TorchKNN("cosine")(x, 3, x, True)
    assert torch.equal(indices, expected[1])
    torch.testing.assert_close(distances, expected[0], rtol=0, atol=1e-6)


def test_faiss_knn_invalid_input_raises(rows):
    assert error_message(TypeError, FaissKNN, gpus=0) == "gpus: got 0, wanted a list or tuple of GPU numbers"
    assert error_message(ValueError, FaissKNN, gpus=[]) == (
        "gpus: got [], wanted at least one GPU number; None is the GPU of the tensors"
    )
    assert error_message(ValueError, FaissKNN(), rows, 1) == (
        "reference: got None while the index holds no rows; pass references, or train() or load(), with "
        "FaissKNN(reset_after=False) for several searches"
    )
    assert error_message(ValueError, FaissKNN().save, "index") == "save: got no index to write; train() first"
    knn = FaissKNN(index_init_fn=faiss.IndexFlatIP)
    assert error_message(ValueError, knn.train, rows) == (
        "index: got one of faiss metric 0, wanted 1 for distance='l2'; pass the distance that the index has"
    )
    knn = FaissKNN()
    knn.train(rows)
    assert error_message(ValueError, knn.add, rows[:, :3]) == "embeddings: got shape (60, 3), wanted (N, 4)"
    assert error_message(ValueError, knn, rows[:, :3], 1) == (
        "query and reference: got shapes (60, 3) and (60, 4), wanted the same number of columns"
    )
    assert "could not parse index string Nope" in error_message(
        RuntimeError, FaissKNN(index_init_fn="Nope").train, rows
    )


# The branch for GPUs is tested with fake GPU indexes that are searched on the CPU.


class GpuIndex:
    def __init__(self, index, gpu):
        self.flat, self.gpu = faiss.clone_index(index), gpu
        self.searched = []

    def getDevice(self):
        return self.gpu

    def add(self, x):
        self.flat.add(x)

    def search(self, x, k):
        self.searched.append(len(x))
        return self.flat.search(x, k)

    def __getattr__(self, name):
        return getattr(self.flat, name)


@pytest.fixture
def gpus(monkeypatch):
    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "index_gpu_to_cpu", lambda index: index.flat, raising=False)
    monkeypatch.setattr(faiss_knn, "_to_gpu", GpuIndex)
    monkeypatch.setattr(faiss_knn, "_device", lambda index: torch.device("cpu"))


def test_faiss_knn_queries_are_split_over_gpus(rows, gpus, tmp_path):
    knn = FaissKNN(gpus=(0, 2), reset_after=False)
    result = knn(rows[:7], 3, rows, True)
    for actual, expected in zip(result, FaissKNN()(rows[:7], 3, rows, True), strict=True):
        assert torch.equal(actual, expected)
    assert [(index.gpu, index.ntotal, index.searched) for index in knn._indexes] == [(0, 60, [4]), (2, 60, [3])]
    knn.add(rows)
    assert knn.index.ntotal == 120
    knn.save(tmp_path / "index")
    knn.load(tmp_path / "index")
    assert isinstance(knn.index, faiss.Index)  # moved to the GPUs on first use
    assert torch.equal(knn(rows[:1], 2)[1], torch.tensor([[0, 60]]))
    assert [index.gpu for index in knn._indexes] == [0, 2]


def test_faiss_knn_unsupported_search_falls_back_to_torch_with_warning(rows, gpus, monkeypatch):
    def check(reason, k, rows=rows):
        with pytest.warns(UserWarning) as caught:
            result = FaissKNN(gpus=[0])(rows[:5], k, rows, True)
        assert [str(warning.message) for warning in caught] == [f"{reason}: TorchKNN searches instead"]
        for actual, expected in zip(result, TorchKNN()(rows[:5], k, rows, True), strict=True):
            assert torch.equal(actual, expected)

    large = torch.randn(2050, 2)
    check("faiss finds at most 2048 neighbors on a GPU, not 2049", 2048, large)
    assert FaissKNN(gpus=[0])(large[:5], 2047, large, True)[1].shape == (5, 2047)

    def raise_out_of_memory(*args):
        raise RuntimeError("StandardGpuResources: alloc fail (cudaMalloc error out of memory [2])")

    monkeypatch.setattr(GpuIndex, "add", raise_out_of_memory)
    check("faiss ran out of GPU memory", 3)
    monkeypatch.setattr(GpuIndex, "add", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        FaissKNN(gpus=[0])(rows, 3, rows, True)
    monkeypatch.delattr(faiss, "StandardGpuResources")
    check("the installed faiss does not support cuda", 3)
    check("the installed faiss does not support cuda", 3, rows.double())


def test_faiss_knn_stored_rows_raise_instead_of_torch_fallback(rows, gpus, monkeypatch):
    knn = FaissKNN(gpus=[0], reset_after=False)
    knn.train(torch.randn(2050, 2))
    assert error_message(RuntimeError, knn, torch.randn(3, 2), 2049) == (
        "faiss finds at most 2048 neighbors on a GPU, not 2049; pass the references, for TorchKNN to search them"
    )
    assert knn(torch.randn(3, 2), 2048)[1].shape == (3, 2048)  # the rows are still stored
    monkeypatch.delattr(faiss, "StandardGpuResources")
    assert error_message(RuntimeError, FaissKNN(gpus=[0]).train, rows) == (
        "the installed faiss does not support cuda; move the tensors with .cpu(), or use TorchKNN"
    )


def test_faiss_kmeans_equals_faiss_clusters(device):
    x = torch.randn(600, 8, device=device)
    for options, of_faiss in (({"niter": 7, "seed": 5},) * 2, ({}, {"niter": 20, "seed": 1234})):
        kmeans = FaissKMeans(**options)
        clusters = kmeans(x.double(), 12)
        expected = faiss.Kmeans(8, 12, **of_faiss)
        expected.train(x.cpu().numpy())
        assert clusters.dtype == torch.int64 and clusters.device.type == device.type
        np.testing.assert_array_equal(clusters.cpu(), expected.index.search(x.cpu().numpy(), 1)[1][:, 0])
        np.testing.assert_array_equal(kmeans.centroids.cpu(), expected.centroids)
        assert torch.equal(clusters, pickle.loads(pickle.dumps(kmeans))(x, 12))


@pytest.mark.parametrize(("n_clusters", "message"), [(0, "an integer >= 1"), (4, "at most the number of rows of x, 3")])
def test_faiss_kmeans_invalid_n_clusters_raises(n_clusters, message):
    with pytest.raises(ValueError, match=f"^n_clusters: got {n_clusters}, wanted {message}$"):
        FaissKMeans()(torch.zeros(3, 2), n_clusters)
