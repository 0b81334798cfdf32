import pytest
import torch
from rank_processes import run_rank

from tensormetrics.core.native import native


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items):
    for item in items:
        if "ranks" in getattr(item, "fixturenames", ()) and "retrieval" in item.path.parts:
            item.add_marker("full")


@pytest.fixture(scope="session")
def rank_results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(run_rank, args=(str(folder),), nprocs=5)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(5)]


@pytest.fixture(scope="module")
def ranks(request, rank_results):
    """Return what `results_of` of the module returned on each rank."""
    name = request.module.__name__
    return [results[name] for results in rank_results if name in results]


@pytest.fixture(params=["native", "torch"])
def implementation(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(native, "can_use_kernel", lambda name, device: False)
