"""Docstrings of classes that also show what their bases say about arguments of the constructor, shapes and errors."""

import inspect
import re
import sys
from typing import Any

from .checks import constructors

HEADINGS = "Args", "Shape", "Returns", "Raises", "Example", "References"
HEADING = re.compile(rf"^({'|'.join(HEADINGS)}):\n|(?<=\n\n)(?=>>> )", re.MULTILINE)
ENTRY = re.compile(r"^    ([\w*, ]+): .*\n(?:     .*\n|\n)*", re.MULTILINE)


class Docstring:
    """Docstring of a class as it is written; read, it has the sections of its bases too."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __get__(self, instance: Any, owner: type) -> str:
        return completed(owner)


def completed(owner: type) -> str:
    """Return the docstring of a class with the entries of its bases for arguments that it does not describe."""
    written = [vars(base).get("__doc__") for base in owner.__mro__]
    own, *inherited = (sections(doc.text) for doc in written if isinstance(doc, Docstring))
    entries = arguments(own)
    parameters = [parameter for parameters in constructors(owner) for parameter in parameters]
    names = [parameter.name for parameter in sorted(parameters, key=lambda p: p.kind is p.VAR_KEYWORD)]
    for base in inherited:
        entries = {name: text for name, text in arguments(base).items() if name.strip("*") in names} | entries
        own = {name: base[name] for name in ("Shape", "Raises") if name in base} | own
    if "Example" not in own and (twin := re.search(r"(?:see|ormula:) `(\w+)`", own[""])):
        function = getattr(sys.modules[owner.__module__], twin[1], None)
        example = sections(function.__doc__ or "").get("Example", "")
        own["Example"] = re.sub(rf"\b{twin[1]}\(", f"{owner.__name__}()(", example)
    order = [*names, *(name.strip("*") for name in entries)]
    texts = dict.fromkeys(entries[name] for name in sorted(entries, key=lambda name: order.index(name.strip("*"))))
    own |= {"Args": "".join(texts)} if texts else {}
    parts = (f"{name}:\n{own[name].rstrip()}\n" for name in HEADINGS if own.get(name))
    return "\n".join([own[""].rstrip() + "\n", *parts]).rstrip()


def sections(text: str) -> dict[str, str]:
    """Return the sections of a docstring by heading; its beginning has the heading ""."""
    start, *rest = HEADING.split(inspect.cleandoc(text) + "\n")
    found = {"": start}
    for name, body in zip(rest[::2], rest[1::2], strict=True):
        found[name or "Example"] = body if name else "    " + body.replace("\n", "\n    ")
    return found


def arguments(found: dict[str, str]) -> dict[str, str]:
    """Return the entries of the section Args by name; of an entry for several names the same for each."""
    entries = ((match[1].split(", "), match[0].rstrip() + "\n") for match in ENTRY.finditer(found.get("Args", "")))
    return {name: text for names, text in entries for name in names}
