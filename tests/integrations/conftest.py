from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import trainers, which takes seconds, only where their tests run."""
    return True if "not full" in config.option.markexpr else None


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("full")
    for category in ("UserWarning", "DeprecationWarning", "FutureWarning"):  # the trainers' own
        item.add_marker(pytest.mark.filterwarnings(f"ignore::{category}"))
