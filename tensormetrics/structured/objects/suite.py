"""Several families of scores as one metric."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import Self, Unpack

from ...core.arguments import checks
from ...core.metric.base import Options
from ...core.metric.distributed import options_of
from ...core.resampling.resampling import Joined, combine
from ...core.resampling.weights import ResamplingUnits
from .family import Corpus, Family, join_key
from .values.columns import shared_columns


class Suite(Corpus):
    """Families and suites by name, updated with the same objects; the names are the first part of the keys.

    Args:
        members: Families and suites by name.

    Raises:
        TypeError: If a member is neither a family nor a suite.
        ValueError: If two states would have the same name.

    Example:
        >>> from dataclasses import dataclass
        >>> @metametric(normalizer="f1")
        ... @dataclass
        ... class Bag:
        ...     items: list[str]
        >>> suite = Suite({"all": Family(metric_of(Bag), micro_average(["recall"]))})
        >>> suite.update([Bag(["a"])], [Bag(["a", "b"])])
        >>> suite.compute()
        {'all-recall': tensor(0.5000, dtype=torch.float64)}
    """

    _members: dict[str, "Family | Suite"]
    _homes: dict[str, tuple[str, str]]  # state -> member, name of the state in the member

    def __init__(self, members: Mapping[str, "Family | Suite"], **kwargs: Unpack[Options]) -> None:
        super().__init__(**kwargs)
        for name, member in members.items():
            if not isinstance(member, Corpus):
                raise TypeError(f"member {name!r}: got a {type(member).__name__}, wanted a Family or a Suite")
        self._members, self._homes = dict(members), {}
        for name, member in members.items():
            for state, default in member._defaults.items():
                full_name = f"{name}-{state}"
                if full_name in self._homes:
                    raise ValueError(
                        f"member {name!r}: got two states named {full_name!r}, wanted other names of members"
                    )
                self._homes[full_name] = name, state
                self._defaults[full_name] = default
                self._reductions[full_name], self._persistent[full_name] = member._reductions[state], False
        self._update_count = max((member._update_count for member in members.values()), default=0)

    @property
    def members(self) -> dict[str, "Family | Suite"]:
        """Families and suites by name, which hold what the suite was updated with."""
        return dict(self._members)

    # The states are those of the members, which are not registered as submodules, so that each state is moved, saved
    # and synchronized once.

    def __getattr__(self, name: str) -> Any:
        homes = self.__dict__.get("_homes", {})
        if name not in homes:
            return super().__getattr__(name)
        member, state = homes[name]
        return getattr(self._members[member], state)

    def __setattr__(self, name: str, value: Any) -> None:
        homes = self.__dict__.get("_homes", {})
        if name in homes:
            member, state = homes[name]
            return setattr(self._members[member], state, value)
        super().__setattr__(name, value)
        if name == "_update_count" or (name == "_computed" and value is None):
            for part in self.__dict__.get("_members", {}).values():
                setattr(part, name, value)

    @property
    def _kind(self) -> Any:  # type: ignore[override]  # an attribute of Metric
        return {name: member._kind for name, member in self.__dict__.get("_members", {}).items()}

    @_kind.setter
    def _kind(self, kinds: Any) -> None:
        for name, member in self.__dict__.get("_members", {}).items():
            member._kind = kinds and kinds[name]

    def _prepared(self, preds: Sequence[Any], refs: Sequence[Any]) -> dict[str, Any]:
        checks.check_consistent_length(preds=preds, refs=refs)
        with shared_columns():
            return {name: member._prepared(preds, refs) for name, member in self._members.items()}

    def _add(self, batch: dict[str, Any], **items: Unpack[ResamplingUnits]) -> None:
        for name, member in self._members.items():
            member._add(batch[name], **items)

    def check_invalid(self, warns: bool = False) -> None:
        for member in self._members.values():
            member.check_invalid(warns)

    def compute(self) -> dict[str, Tensor]:
        """Compute all scores: key -> () float64."""
        values = {name: type(member).compute(cast(Any, member)) for name, member in self._members.items()}
        return self.extended(self._named(values))

    def _resampled_sums(self, replicates: int | None, seed: int | None) -> Joined:
        parts = [member._resampled_sums(replicates, seed) for member in self._members.values()]

        def named(parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
            return self._named(dict(zip(self._members, parts, strict=True)))

        return combine(parts, named)

    def scoring_options(self) -> dict[str, Any]:
        """Return the names of the members and their scoring options."""
        options: dict[str, Any] = {"members": list(self._members)}
        for name, member in self._members.items():
            options |= {f"{name}: {option}": value for option, value in member.scoring_options().items()}
        return options

    def rank_options(self) -> dict[str, str]:
        options = {"the metric": options_of(self)["the metric"], "members": f"{list(self._members)}"}
        for name, member in self._members.items():
            options |= {f"{name}: {option}": value for option, value in member.rank_options().items()}
        return options

    def update_options(self) -> dict[str, Any]:
        return {"class": type(self)} | {name: member.update_options() for name, member in self._members.items()}

    def per_document(self, preds: Sequence[Any], refs: Sequence[Any]) -> dict[str, Tensor]:
        """Compute the scores of each document without changing the state: key -> (B,) float64."""
        with shared_columns():
            return self._named({name: member.per_document(preds, refs) for name, member in self._members.items()})

    def reset(self) -> None:
        """Forget all documents."""
        super().reset()
        for member in self._members.values():
            member.reset()

    def _named(self, scores: Mapping[str, dict[str, Tensor]]) -> dict[str, Tensor]:
        return {join_key(name, key): value for name, part in scores.items() for key, value in part.items()}

    def _part(self, name: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the state of a member from the state of the suite."""
        return {inner: state[full_name] for full_name, (member, inner) in self._homes.items() if member == name}

    def _batch(self, **kwargs: Any) -> Self:
        return super()._batch(_members={name: member._batch() for name, member in self._members.items()})

    def _number_after(self, state: dict[str, Any]) -> None:
        for name, member in self._members.items():
            member._number_after(vars(state["_members"][name]))

    def _check_mergeable(self, states: list[dict[str, Tensor]]) -> None:
        for name, member in self._members.items():
            member._check_mergeable([self._part(name, state) for state in states])

    def _add_state(self, state: dict[str, Tensor]) -> None:
        for name, member in self._members.items():
            member._add_state(self._part(name, state))

    def _apply(self, fn: Any, exclude_state: Any = "") -> torch.nn.Module:
        for member in self._members.values():
            member._apply(fn, exclude_state)
        return super()._apply(fn, exclude_state)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        loaded = False
        for name, member in self._members.items():
            inner = f"{prefix}{name}-"
            names = [inner + state for state in member._defaults if inner + state in state_dict]
            member_state = {name: state_dict.pop(name) for name in names}
            loaded |= bool(member_state)
            member._load_from_state_dict(member_state, inner, *args)
        if loaded:
            self._update_count = max(member._update_count for member in self._members.values())
            self._computed = None
        super()._load_from_state_dict(state_dict, prefix, *args)
