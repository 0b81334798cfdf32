"""Matched components: paths into objects, matches, and hooks that are called for matches."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple, Protocol

MAX_SHOWN = 5  # matches in a `repr`
COMPONENT = re.compile(r"\[(\d+|\*)\]|(?:^|\.)([^.\[\]@]+)")


class Path(tuple):
    """Path of a component: names of fields and indices of items. Text: `@`, `a.b[1].c`, wildcards `[*]` and `*`.

    Texts may begin at the root: `@.a.b`, `@[1]`, `.a`.
    """

    ANY_ITEM, ANY_FIELD = -1, "*"

    def __new__(cls, components: Any = ()) -> "Path":
        return super().__new__(cls, components)

    @classmethod
    def parse(cls, text: str) -> "Path":
        """Parse a path; raise a ValueError with the position of the first error."""
        if text == "@":
            return cls()
        components: list[str | int] = []
        end = int(text[:2] in ("@.", "@["))
        while end < len(text) or not components:
            match = COMPONENT.match(text, end)
            if match is None or (match[2] and end and text[end] != "."):
                got = f"got {text!r}, which cannot be read at position {end}"
                raise ValueError(f"path: {got}; wanted a path such as a.b[1].c")
            if match[2] is not None:
                components.append(match[2])
            else:
                components.append(cls.ANY_ITEM if match[1] == "*" else int(match[1]))
            end = match.end()
        return cls(components)

    def __str__(self) -> str:
        text = "".join(f".{c}" if isinstance(c, str) else "[*]" if c == self.ANY_ITEM else f"[{c}]" for c in self)
        return text.removeprefix(".") or "@"

    def __repr__(self) -> str:
        return f"Path({str(self)!r})"

    def __getitem__(self, index: Any) -> Any:
        component = super().__getitem__(index)
        return Path(component) if isinstance(index, slice) else component

    @property
    def components(self) -> tuple[str | int, ...]:
        return tuple(self)

    def is_root(self) -> bool:
        return not self

    def append(self, *components: str | int) -> "Path":
        return Path((*self, *components))

    def prepend(self, *components: str | int) -> "Path":
        return Path((*components, *self))

    def selects(self, other: "Path") -> bool:
        """Return whether this path, in which a wildcard matches one component of its kind, matches another path."""
        return len(self) == len(other) and all(
            pattern == component
            or (pattern == self.ANY_FIELD and isinstance(component, str))
            or (pattern == self.ANY_ITEM and isinstance(component, int))
            for pattern, component in zip(self, other, strict=True)
        )


class Match(NamedTuple):
    """Pair of a predicted and a reference component that are matched, and their similarity."""

    pred_path: Path
    pred: Any
    ref_path: Path
    ref: Any
    score: float

    def __str__(self) -> str:
        return f"{self.pred_path} -> {self.ref_path} ({self.score:g})"


class Hook(Protocol):
    """Function that is called for each match."""

    def __call__(self, data_id: int, pred_path: str, pred: Any, ref_path: str, ref: Any, score: float) -> None: ...


class Matching:
    """Matches of one pair of objects: the pair itself, then its parts in order, to any depth. Built at first access.

    Example:
        >>> from dataclasses import dataclass
        >>> @metametric(normalizer="f1")
        ... @dataclass
        ... class Bag:
        ...     items: list[str]
        >>> score, matching = metric_of(Bag).compute(Bag(["a"]), Bag(["b", "a"]))
        >>> [(str(match.pred_path), str(match.ref_path)) for match in matching]
        [('@', '@'), ('items', 'items'), ('items[0]', 'items[1]')]
    """

    def __init__(self, find: Callable[[], Iterator[Match]]) -> None:
        self._find = find

    @cached_property
    def matches(self) -> list[Match]:
        return list(self._find())

    def __iter__(self) -> Iterator[Match]:
        return iter(self.matches)

    def __len__(self) -> int:
        return len(self.matches)

    def __repr__(self) -> str:
        shown = [*map(str, self.matches[:MAX_SHOWN]), *(["..."] if len(self) > MAX_SHOWN else [])]
        return f"Matching({len(self)} matches: {', '.join(shown)})"

    def run_with_hooks(self, hooks: Mapping[Path | str, Hook], data_id: int = 0) -> None:
        """Call, for every match in order, each hook whose key selects the path of the prediction."""
        selectors = [(key if isinstance(key, Path) else Path.parse(key), hook) for key, hook in hooks.items()]
        for selector, hook in selectors:
            if not callable(hook):
                got = f"hooks[{str(selector)!r}]: got {hook!r:.60}, wanted a function"
                raise TypeError(f"{got}; hooks with on_match derive from tensormetrics.compat.metametric.Hook")
        for match in self if selectors else ():
            for selector, hook in selectors:
                if selector.selects(match.pred_path):
                    hook(data_id, str(match.pred_path), match.pred, str(match.ref_path), match.ref, match.score)
