"""Context manager `raises`, which compares the full message of an error."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def raises(kind: type[Exception], message: str) -> Iterator[None]:
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.args[0] == message
