"""The state of a metric on several ranks: `compute` reads that of all ranks, whichever of them fails."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torchmetrics.utilities.data import dim_zero_cat

from .distributed import (
    TensorMeta,
    all_gather_cat,
    all_gather_status,
    check_same_options,
    gather,
    raise_on_all_ranks,
    tensor_meta,
)
from .state_metric import StateMetric


class NoDataError(RuntimeError, ValueError):
    """Error of `compute()` before any `update()`."""


class ExchangedMetric(StateMetric):
    """Base of `Metric` whose `compute` gathers the states of all ranks, and caches its value."""

    _is_batch = False  # of `forward`
    nan_without_data = False  # the result of `compute` before the first update; else a NoDataError

    def _sync_to_compute(self) -> None:
        self.sync(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync)

    def _sync_dist(self, dist_sync_fn: Callable[..., Any] = gather, process_group: Any = None) -> None:
        group = process_group or self.process_group
        kinds = self._agreed_kinds(group) if dist_sync_fn is gather else {}
        merged = {}
        for name, reduction in self._reductions.items():
            state = getattr(self, name)
            if reduction is dim_zero_cat:
                metas = kinds.get(name)
                merged[name] = (
                    all_gather_cat(state, group, metas) if metas else torch.cat(dist_sync_fn(state, group=group))
                )
            else:
                metas = [((1, *shape), dtype, device) for shape, dtype, device in kinds.get(name, ())]
                parts = all_gather_cat(state[None], group, metas) if metas else dist_sync_fn(state, group=group)
                merged[name] = functools.reduce(torch.add, parts)
        for name, state in merged.items():
            setattr(self, name, state)

    def _agreed_kinds(self, group: Any) -> dict[str, list[TensorMeta]]:
        """Return the kinds of all states on every rank; ValueError on all ranks if their options differ."""
        local = self.rank_options(), {name: tensor_meta(getattr(self, name)) for name in self._defaults}
        options, kinds = zip(*all_gather_status(local, group), strict=True)
        check_same_options(options)
        return {name: [kind[name] for kind in kinds] for name in self._defaults}

    def _wrap_compute(self, compute: Callable) -> Callable:
        # Instead of torchmetrics' wrapper, which warns on ranks without data, stays synced when compute raises
        # and squeezes results of one element.
        @functools.wraps(compute)
        def cached(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                if self._computed is not None:
                    return self._computed
                with self._whole_state("compute"):
                    value = tree_map_only(Tensor, torch.clone, compute(*args, **kwargs))
                if self.compute_with_cache:
                    self._computed = value
                return value

        return cached

    @contextmanager
    def _whole_state(self, method: str) -> Iterator[None]:
        """Hold the state of all ranks in this context. NoDataError, which names `method`, if it is empty."""
        syncs = self._to_sync and self.dist_sync_fn is gather and self.distributed_available_fn()
        with self._lock, raise_on_all_ranks(self.process_group) if syncs else nullcontext():
            self._sync_to_compute()
            try:
                may_be_empty = method == "compute" and self.nan_without_data
                if not (self.update_called or self._is_synced or may_be_empty):
                    raise NoDataError(f"{type(self).__name__}.{method}() was called before update(); update it first")
                self.check_invalid(warns=method == "compute" and not self._is_batch)
                yield
            finally:
                if self._is_synced and self._should_unsync:
                    self.unsync()
