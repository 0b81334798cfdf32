import pytest
import torch
from rank_processes import run_rank


@pytest.fixture(scope="session")
def rank_results(tmp_path_factory):
    """What each of three ranks found, by the module that asked for it."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(run_rank, args=(str(folder),), nprocs=3)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(3)]
