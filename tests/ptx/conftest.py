import sys
from collections.abc import Iterator
from pathlib import Path

import library
import pytest
import torch

from tensormetrics.assignment import _op as solver_op
from tensormetrics.posterior import _op as sampler_op

sys.path.append(str(Path(__file__).parents[1] / "assignment"))  # whose families of cases are solved here too
SCHEMAS = {
    "lsa": {"lsa": solver_op.SCHEMA},
    "dirichlet": {
        "dirichlet_sums": sampler_op.SUMS,
        "log_gamma": "(Tensor(a!) out, Tensor alpha, Tensor keys, int start) -> ()",
        "item_sums": "(Tensor(a!) out, Tensor cells, Tensor key, int start) -> ()",
        "uniforms": "(Tensor(a!) out, Tensor key, int draw) -> ()",
    },
}


def compiled(name: str, config: pytest.Config, **how) -> library.Ptx:
    if reason := library.missing():
        pytest.skip(reason)
    return library.loaded(library.built(name, config.cache.mkdir("ptx"), **how), SCHEMAS[name])


@pytest.fixture(scope="session")
def lsa(pytestconfig: pytest.Config) -> library.Ptx:
    return compiled("lsa", pytestconfig)


@pytest.fixture(scope="session")
def dirichlet(pytestconfig: pytest.Config) -> library.Ptx:
    return compiled("dirichlet", pytestconfig)


@pytest.fixture(autouse=True)
def results_that_nothing_wrote_are_nan() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)  # fills what torch.empty gives
    yield
    torch.use_deterministic_algorithms(False)
