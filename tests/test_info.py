"""Install commands that `info` prints for missing packages."""

from email.message import Message
from importlib import metadata

import pytest

from tensormetrics._cli.machine import info

ABOUT = """Requires-Dist: torch>=2.11
Provides-Extra: keops
Requires-Dist: pykeops; extra == "keops"
Provides-Extra: trainers
Requires-Dist: absent>=1,<2; extra == "trainers"
Requires-Dist: ignite[all]==0.5; extra == "trainers"
Requires-Dist: torchmetrics; extra == "trainers"
Provides-Extra: all
Requires-Dist: tensormetrics[keops,trainers]; extra == "all"
Provides-Extra: plot
Requires-Dist: torchmetrics; extra == "plot"
"""


@pytest.fixture
def extras(monkeypatch):
    headers = Message()
    for line in ABOUT.splitlines():
        headers.add_header(*line.split(": ", 1))
    monkeypatch.setattr(metadata, "metadata", lambda name: headers)
    return [line.split(maxsplit=1) for line in info.report().split("\nextras\n")[1].splitlines()]


def test_hints_for_extras_omit_tensormetrics_itself(extras):
    assert extras == [
        ["keops", "lacks pykeops: pip install pykeops"],
        ["trainers", "lacks absent, ignite: pip install 'absent<2,>=1' 'ignite[all]==0.5'"],
        ["all", "lacks absent, ignite, pykeops: pip install 'absent<2,>=1' 'ignite[all]==0.5' pykeops"],
        ["plot", "there"],
    ]


def test_extras_of_uninstalled_sources_hint_at_install(monkeypatch):
    def raise_not_found(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "metadata", raise_not_found)
    assert info.report().endswith(
        "\n\nextras: not known, for tensormetrics is not installed; in a copy of the sources type: "
        "pip install --no-build-isolation -e ."
    )
