"""The state of a metric: running sums, stored rows, and their merging, loading and moving."""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypedDict, TypeVar, cast

import torch
import torchmetrics
from torch import Tensor
from torchmetrics.utilities.data import dim_zero_cat, dim_zero_sum
from typing_extensions import Unpack  # torch brings it

from ..arguments import checks
from ..arguments.repr import RecordedArguments
from .distributed import constructor_options, gather, options_of
from .states import States

Owner = TypeVar("Owner")
Answer = TypeVar("Answer")
P = ParamSpec("P")

MERGED = "is merged"  # marks a state that is no batch of `forward`


class Lock(type(threading.RLock())):  # type: ignore[misc]  # the class of these locks has no public name
    """A re-entrant lock; a pickle or a copy of its owner gets a new, free lock."""

    def __reduce__(self) -> tuple[type, tuple]:
        return Lock, ()


def one_at_a_time(method: Callable[Concatenate[Owner, P], Answer]) -> Callable[Concatenate[Owner, P], Answer]:
    """Make threads run a method one after the other: it holds the `_lock` of its object."""

    @functools.wraps(method)
    def locked(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        with cast(Any, self)._lock:
            return method(self, *args, **kwargs)

    return locked


State = dict[str, Tensor] | torchmetrics.Metric  # an argument of `merge_state`
LOCKED = "reset", "_apply", "_load_from_state_dict"  # a subclass that overrides one writes several states there


class Options(TypedDict, total=False):
    """Keyword arguments of torchmetrics' `Metric`, and so of every metric."""

    compute_on_cpu: bool
    dist_sync_on_step: bool
    process_group: Any
    dist_sync_fn: Callable[..., Any]
    distributed_available_fn: Callable[[], bool]
    sync_on_compute: bool
    compute_with_cache: bool


class StateMetric(RecordedArguments, torchmetrics.Metric):
    """Base of `Metric` with its state: `update` changes it completely or not at all, `merge_state` adds others.

    Args:
        **kwargs: Options of torchmetrics' `Metric`, such as ``sync_on_compute=False``.

    Raises:
        ValueError: If an option, or a tensor of an update, has a wrong value, shape or dtype.
        TypeError: If an option is unknown, or something is no tensor or array.
    """

    num_invalid: Tensor
    unwarned: Tensor
    full_state_update = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in LOCKED:
            if name in vars(cls):
                setattr(cls, name, one_at_a_time(vars(cls)[name]))

    def __init__(self, **kwargs: Unpack[Options]) -> None:
        checks.check_unknown_kwargs(type(self), kwargs.keys() - Options.__annotations__.keys())
        kwargs.setdefault("dist_sync_fn", gather)
        super().__init__(**kwargs)
        self._lock = Lock()
        # Set by the `compute` of a metric that keeps rows: the columns of items for intervals. It goes with
        # `_computed`.
        self._items: Any = None
        self._kind: int | None = None  # how a `SumMetric` identified its latest items
        self._stores: dict[str, Tensor] = {}  # rows state -> the larger tensor whose beginning it is

    @property
    def _computed(self) -> Any:  # type: ignore[override]  # an attribute of torchmetrics' Metric
        return self.__dict__.get("_computed")

    @_computed.setter
    def _computed(self, value: Any) -> None:
        # torchmetrics and its collections forget a value by assigning None, whatever changed the state: the items of
        # the value are forgotten with it, only here.
        self.__dict__["_computed"] = value
        if value is None:
            self.__dict__["_items"] = None

    @property  # type: ignore[override]
    def _defaults(self) -> States:  # an attribute of torchmetrics' Metric
        return States(self.__dict__["_defaults"], self)

    @_defaults.setter
    def _defaults(self, defaults: dict[str, Any]) -> None:
        self.__dict__["_defaults"] = defaults

    def update_options(self) -> dict[str, Any]:
        """Return what `update` reads besides its arguments, by name: by default the class and all options.

        Metrics of a torchmetrics collection where this is equal keep one state for all, and `update` runs once.
        """
        return {"class": type(self), **constructor_options(self)}

    def add_rows(self, name: str) -> None:
        """Declare a state that keeps every row given to `append_rows`, in order; (0,) until the first."""
        self.add_state(name, torch.empty(0), dist_reduce_fx="cat")

    def add_invalid(self, kind: str) -> None:
        """Declare `num_invalid`, the number of values of a kind that `update` cannot check without waiting for a GPU.

        Where it is not 0, every method that reads the state raises a ValueError, on every rank.
        """
        self.add_state("num_invalid", torch.zeros((), dtype=torch.int64), "sum")
        self._invalid_kind = kind

    def add_unwarned(self, size: int) -> None:
        """Declare `unwarned`, counts of what a GPU's `update` cannot warn of; `compute` gives them to `warn_of`."""
        self.add_state("unwarned", torch.zeros(size, dtype=torch.int64), "sum")

    def warn_of(self, counts: list[int]) -> None:
        """Warn of the counts `unwarned`, some of which are not 0."""

    def invalid_error(self, problem: str, remedy: str = "leave them out") -> ValueError:
        return ValueError(f"{type(self).__name__}: {problem}, of an earlier update; call reset() and {remedy}")

    def check_invalid(self, warns: bool = False) -> None:
        """Raise a ValueError for values that an earlier update could not check, and warn of what it could not."""
        names = [name for name in ("num_invalid", "unwarned")[: 1 + warns] if name in self._defaults]
        states = [getattr(self, name).flatten() for name in names]
        counts = (torch.cat(states) if len(states) > 1 else states[0]).tolist() if states else []  # one wait
        if "num_invalid" in names and (num_invalid := counts.pop(0)):
            raise self.invalid_error(f"got {num_invalid} {self._invalid_kind}")
        if any(counts):
            self.warn_of(counts)

    def rows_of_items(self) -> list[tuple[str, ...]]:
        """Return the states that have a row for each of the same items, or none; by default all are one group."""
        return [tuple(name for name, reduction in self._reductions.items() if reduction is dim_zero_cat)]

    def append_rows(self, name: str, rows: Tensor, room: int = 0) -> None:
        """Append `rows` (n, ...) to state `name`, on the device of the first rows of any state.

        The storage doubles, so that appending N rows copies O(N) rows in total; a new one has `room` or more rows.
        """
        rows, held = rows.detach(), getattr(self, name)
        home = held.device if held.shape[0] else self._device_of_rows()
        if home is None:
            self._settle(rows.device)
            held = getattr(self, name)
        else:
            rows = rows.to(home)
        if held.shape == (0,):  # no row so far: these give shape and dtype
            held = rows.new_empty(0, *rows.shape[1:])
        if held.shape[1:] != rows.shape[1:] or held.dtype.is_floating_point != rows.dtype.is_floating_point:
            raise ValueError(
                f"{name}: got rows of shape {tuple(rows.shape[1:])} and {rows.dtype} after rows of shape "
                f"{tuple(held.shape[1:])} and {held.dtype}; call reset() before changing the kind of input"
            )
        start, stop = held.shape[0], held.shape[0] + rows.shape[0]
        dtype = torch.promote_types(held.dtype, rows.dtype)
        store = self._stores.get(name)
        # After a load, or with a state shared in a MetricCollection, the storage after the state is not ours.
        is_ours = store is not None and store.data_ptr() == held.data_ptr() and store.dtype == dtype
        if store is None or not is_ours or store.shape[0] < stop:
            with torch.inference_mode(False):  # a store made in inference mode could not be written to outside it
                store = torch.empty(max(2 * start, stop, room), *rows.shape[1:], dtype=dtype, device=rows.device)
            store[:start] = held
            self._stores[name] = store
        store[start:stop] = rows
        setattr(self, name, store[:stop])

    def _device_of_rows(self) -> torch.device | None:
        """Return the device of the rows so far; None without rows."""
        states = (getattr(self, name) for name, reduction in self._reductions.items() if reduction is dim_zero_cat)
        return next((rows.device for rows in states if rows.shape[0]), None)

    def _settle(self, device: torch.device | None) -> None:
        """Move the empty states of rows to the device of the first rows."""
        for name, reduction in self._reductions.items():
            if reduction is dim_zero_cat and device is not None:
                setattr(self, name, getattr(self, name).to(device))

    @torch.no_grad()
    def merge_state(self, incoming_state: State | Sequence[State]) -> None:
        """Add another metric's state (or its `metric_state`, or several) to this one, as if they came after ours.

        All are added or none. ValueError for a metric of another class or other options.
        """
        several = incoming_state if isinstance(incoming_state, Sequence) else [incoming_state]
        self._merge(several, check=True)

    def _merge(self, several: Sequence[State], check: bool = False) -> None:
        states = [self._state_of(state) for state in several]
        if check:
            self._check_mergeable([state for _, state in states])
        with self._lock, self._all_or_nothing():
            for updates, state in states:
                self._add_state(state)
                self._update_count += updates
            for incoming in several if check else ():  # last, since errors of states say more
                self._check_options(incoming)
            self._computed = None

    def _check_options(self, incoming: State) -> None:
        """Raise a ValueError for a metric of other options; a `metric_state` has none."""
        if not isinstance(incoming, StateMetric):
            return
        options, incoming_options = self.rank_options(), incoming.rank_options()
        for name in dict.fromkeys((*options, *incoming_options)):
            expected, value = options.get(name, "nothing"), incoming_options.get(name, "nothing")
            if value != expected:
                raise ValueError(f"{name}: got {value} of the incoming metric, wanted {expected}; merge equal options")

    def _check_mergeable(self, states: list[dict[str, Tensor]]) -> None:
        """Raise a ValueError if these states must not be added to this one."""

    def _state_of(self, incoming: State) -> tuple[int, dict[str, Tensor]]:
        # ->  its updates, its state
        updates = 1
        if isinstance(incoming, dict):
            state = incoming
        elif isinstance(incoming, StateMetric) and type(incoming) is type(self):
            with incoming._lock:
                updates, state = incoming.update_count, incoming.metric_state
        else:
            got, expected = type(incoming).__name__, type(self).__name__
            raise ValueError(f"incoming_state: got {got}, wanted {expected}, its metric_state, or a list of these")
        if missing := self._defaults.keys() - state.keys():
            raise ValueError(f"incoming_state: lacks {sorted(missing)}; pass a metric or its metric_state")
        return updates, state if getattr(incoming, "_is_batch", False) else {**state, MERGED: torch.Tensor()}

    def _add_state(self, state: dict[str, Tensor]) -> None:
        for name, reduction in self._reductions.items():
            incoming = state[name].to(getattr(self, name).device)
            if reduction is dim_zero_sum:
                got, expected = tuple(incoming.shape), tuple(getattr(self, name).shape)
                if got != expected:
                    advice = "merge metrics of equal options"
                    raise ValueError(f"incoming_state: got {name} of shape {got}, wanted {expected}; {advice}")
                setattr(self, name, getattr(self, name) + incoming.detach())
            elif reduction is not dim_zero_cat:
                raise TypeError(f"{type(self).__name__}.{name}: a state is made by add_rows or reduced by 'sum'")
            elif incoming.shape != (0,):
                self.append_rows(name, incoming)

    @property
    @one_at_a_time
    def metric_state(self) -> dict[str, Tensor]:  # type: ignore[override]  # no state is a list
        return {name: getattr(self, name) for name in self._defaults}

    @one_at_a_time
    def reset(self) -> None:
        """Reset all states and free the memory of stored rows."""
        super().reset()
        self._stores, self._kind = {}, None

    def rank_options(self) -> dict[str, str]:
        """Return descriptions of the options that have to be the same on all ranks, by name."""
        return options_of(self)

    def _copy_state_dict(self) -> dict[str, Tensor | list[Any]]:
        return {**self.metric_state}  # references suffice: state tensors are never changed in place

    def _wrap_update(self, update: Callable) -> Callable:
        wrapped = super()._wrap_update(update)

        @functools.wraps(update)
        def guarded(*args: Any, **kwargs: Any) -> None:
            args = tuple(map(checks.array_as_tensor, args))
            kwargs = {name: checks.array_as_tensor(argument) for name, argument in kwargs.items()}
            with self._lock, self._all_or_nothing():
                wrapped(*args, **kwargs)

        return guarded

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        before = {name: getattr(self, name) for name in (*self._defaults, "_update_count", "_computed", "_items")}
        try:
            yield
        except BaseException:
            for name, value in before.items():
                setattr(self, name, value)
            raise

    @one_at_a_time
    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        new = cast("dict[str, Tensor]", self._defaults)  # torchmetrics has lists too
        names = [name for name in new if prefix + name in state_dict]
        for name in names:
            got, expected = tuple(state_dict[prefix + name].shape), tuple(new[name].shape)
            if self._reductions[name] is not dim_zero_cat and got != expected:
                args[-1].append(f"size mismatch for {prefix}{name}: got {got}, wanted {expected}")
                del state_dict[prefix + name]
        for group in self.rows_of_items():
            # `ids` and `groups` are checked where they are read.
            checked = (name for name in group if not name.endswith(("ids", "groups")))
            rows = {name: len(state_dict[prefix + name]) for name in checked if prefix + name in state_dict}
            if len({count for count in rows.values() if count}) > 1:
                got = ", ".join(f"{count} of {prefix}{name}" for name, count in rows.items())
                args[-1].append(f"rows of one item in each state: got {got}, wanted equally many or none")
                for name in rows:
                    del state_dict[prefix + name]
                    names.remove(name)
        super()._load_from_state_dict(state_dict, prefix, *args)
        for name in names:  # as of any module, the state goes where the metric is
            setattr(self, name, getattr(self, name).to(self.device))
        if names:
            # A state that differs from that of a new metric counts as one update.
            self._update_count = int(any(not _equal(getattr(self, name), x) for name, x in new.items()))
            self._computed = None

    @one_at_a_time
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return super().state_dict(*args, **kwargs)

    @one_at_a_time
    def _apply(self, fn: Callable, exclude_state: Any = "") -> torch.nn.Module:
        before = {name: (getattr(self, name), default) for name, default in self._defaults.items()}
        module = super()._apply(fn, exclude_state)
        for name, states in before.items():
            device, dtype = getattr(self, name).device, getattr(self, name).dtype
            if dtype != states[0].dtype and not self._dtype_convert:  # `.to(torch.bfloat16)` of a model around it
                state, self._defaults[name] = (state.to(device) for state in cast("tuple[Tensor, Tensor]", states))
                setattr(self, name, state)
        self._stores, self._computed = {}, None  # the states may live elsewhere now
        return module

    @one_at_a_time
    def __getstate__(self) -> dict[str, Any]:
        # Pickles and copies hold the rows, not the unused capacity after them, and a new, free lock.
        state = super().__getstate__()
        rows = {name: getattr(self, name).clone() for name in self._stores}
        dropped = {} if self._items is None else {"_items": None, "_computed": None}
        return {**state, **rows, **dropped, "_stores": {}, "_lock": Lock()}


def _equal(a: Tensor, b: Tensor) -> bool:
    """Return whether tensors are equal; NaN equals NaN."""
    return a.shape == b.shape and torch.allclose(a, b.to(a), 0, 0, equal_nan=True)
