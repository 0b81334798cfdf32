import sys
from collections.abc import Iterator
from pathlib import Path

import library
import pytest
import torch

for domain in "assignment", "posterior":  # whose cases and oracles serve here too
    sys.path.append(str(Path(__file__).parents[1] / domain))


def compiled(name: str, config: pytest.Config, **how) -> library.Ptx:
    if reason := library.missing():
        pytest.skip(reason)
    return library.loaded(library.built(name, config.cache.mkdir("ptx"), **how), library.SCHEMAS[name])


@pytest.fixture(scope="session")
def lsa(pytestconfig: pytest.Config) -> library.Ptx:
    return compiled("lsa", pytestconfig)


@pytest.fixture(scope="session")
def lsa_without_reductions(pytestconfig: pytest.Config) -> library.Ptx:
    """As for cards before sm_80, whose warps exchange what others reduce by an instruction."""
    return compiled("lsa", pytestconfig, architecture=75)


@pytest.fixture(scope="session")
def dirichlet(pytestconfig: pytest.Config) -> library.Ptx:
    return compiled("dirichlet", pytestconfig)


@pytest.fixture(autouse=True)
def results_that_nothing_wrote_are_nan() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)  # fills what torch.empty gives
    yield
    torch.use_deterministic_algorithms(False)
