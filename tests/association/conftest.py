import pytest
from metric_cases import table

from tensormetrics.association import Query


@pytest.fixture
def tiny(device):
    return table("tiny", device)


@pytest.fixture
def query():
    return Query([["t1a", "t1b", "t1c"], ["t2a", "t2b", "t2c"]], [["a1a", "a1b", "a1c", "a1d"]], ["T1", "T2"], ["A1"])
