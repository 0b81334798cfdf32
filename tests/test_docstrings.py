"""Every public name says what it is."""

import inspect
from importlib import import_module

import pytest

import tensormetrics


def public_names() -> list[tuple[str, str]]:
    domains = ((domain, import_module(f"tensormetrics.{domain}")) for domain in tensormetrics.__all__)
    return [
        (domain, name)
        for domain, module in domains
        for name, value in vars(module).items()
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value))
    ]


@pytest.mark.parametrize(("domain", "name"), public_names(), ids=str)
def test_has_a_docstring_of_its_own(domain, name):
    value = getattr(import_module(f"tensormetrics.{domain}"), name)
    text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    assert text and not text.startswith(f"{name}(")  # which is what a dataclass without one has
