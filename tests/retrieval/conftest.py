import pytest
import torch
from rank_processes import run_rank


@pytest.fixture(scope="session")
def rank_results(tmp_path_factory):
    """Run three ranks once and return the results of each rank by test module."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(run_rank, args=(str(folder),), nprocs=3)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(3)]
