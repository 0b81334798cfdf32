import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait spinning are many times slower on busy cores

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(params=["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def seeds() -> None:
    torch.manual_seed(0)
    np.random.seed(0)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
