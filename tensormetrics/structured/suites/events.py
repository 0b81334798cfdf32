"""Events: triggers with types, and arguments with roles."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.resampling.weights import ResamplingUnits
from ..comparators.base import code_table
from ..tensors import _lengths
from ..tensors._groups import group_rows
from ..tensors._lengths import Cells, in_chunks, read_tables, total
from ..tensors.normalizers import normalize
from ..tensors.overlap import Overlap, overlap_of_groups, set_overlap
from ..tensors.policy import Policy
from ..tensors.reduction import CountMetric
from ._tables import items_of, numbered_rows, sizes
from .structures import Argument, Event, EventSet, Trigger

METRICS = ("trigger_identification", "trigger_classification", "argument_identification", "argument_classification")
SCORES = ("precision", "recall", "f1")


class EventScores(CountMetric):
    """Precision, recall and F1 of events, keys `<metric>-precision` and so on, in [0, 1]; higher is better.

    `trigger_identification`: spans of triggers; `trigger_classification`: also their types; `argument_identification`:
    spans of arguments; `argument_classification`: also their roles.

    Args:
        link: "trigger": an argument must belong to an event of the same trigger span and type, and events are matched
            one-to-one to maximize the number of arguments; "type": it may belong to any event of the same type.
        policy: "conventional", "agree" or "metametric", or a `Policy`: values of empty documents and of repeats.

    >>> attack = Event(Trigger(Mention(3, 3), "attack"), [Argument(Mention(0, 1), "agent")])
    >>> other = Event(Trigger(Mention(3, 3), "attack"), [Argument(Mention(0, 1), "place")])
    >>> metric = EventScores()
    >>> metric.update_events([[attack]], [[other]])
    >>> [float(metric.compute()[f"argument_{kind}-f1"]) for kind in ("identification", "classification")]
    [1.0, 0.0]
    """

    def __init__(
        self, link: str = "trigger", average: str = "micro", policy: str | Policy = "conventional", **kwargs: Any
    ) -> None:
        checks.check_choice("link", link, ("trigger", "type"))
        self.link, self.policy = link, Policy.parse(policy)
        super().__init__(3 * len(METRICS), average, **kwargs)

    update_of_lists = "update_events"

    def update(
        self,
        pred_triggers: Tensor,
        ref_triggers: Tensor,
        pred_args: Tensor,
        ref_args: Tensor,
        n_pred: Tensor | None = None,
        n_ref: Tensor | None = None,
        n_pred_args: Tensor | None = None,
        n_ref_args: Tensor | None = None,
        **items: Unpack[ResamplingUnits],
    ) -> None:
        """Add documents.

        Shapes: pred_triggers: (..., N, 3) int (type, first, last); ref_triggers: (..., M, 3) int; pred_args: (..., A,
        4) int (number of the event, role, first, last); ref_args: (..., C, 4) int; n_pred (triggers), n_ref,
        n_pred_args, n_ref_args: (...). Arguments of an event that does not exist do not count. Lists of events go to
        `update_events`.
        """
        triggers = {"pred_triggers": pred_triggers, "ref_triggers": ref_triggers}
        args = {"pred_args": pred_args, "ref_args": ref_args}
        trigger_tables, n_triggers = read_tables([3], {"n_pred": n_pred, "n_ref": n_ref}, **triggers)
        checks.shape("pred_args", pred_args, *pred_triggers.shape[:-2], "A", 4)
        arg_tables, n_args = read_tables([4], {"n_pred_args": n_pred_args, "n_ref_args": n_ref_args}, **args)
        for name, tensor in (triggers | args).items():
            checks.integral(name, tensor)
        checks.same_device(pred_triggers=pred_triggers, pred_args=pred_args)
        counts = in_chunks(self._count, trigger_tables + arg_tables, n_triggers + n_args, self._cells)
        self.add_documents(counts, **items)

    def update_events(
        self,
        preds: Sequence[EventSet | Iterable[Event]],
        refs: Sequence[EventSet | Iterable[Event]],
        **items: Unpack[ResamplingUnits],
    ) -> None:
        """Add documents as `EventSet`s or collections of `Event`s."""
        checks.check_consistent_length(preds=preds, refs=refs)
        types, roles = code_table(), code_table()

        def read_triggers(events: Sequence[Event]) -> list[list[int]]:
            heads = [event.trigger for event in events]
            return [[types[head.type] for head in heads], *_ends(heads)]

        def read_arguments(events: Sequence[Event]) -> list[list[int]]:
            arguments = [argument for event in events for argument in event.args]
            return [[roles[argument.role] for argument in arguments], *_ends(arguments)]

        triggers, args = [], []
        for name, collection in (("preds", preds), ("refs", refs)):
            owners = items_of(collection, "events", Event, name)
            where = f"{name}[{{}}].events[{{}}]"
            triggers.append((numbered_rows(owners, read_triggers, where), sizes(owners)))
            table = numbered_rows(owners, read_arguments, where)
            counts = [[len(event.args) for event in document] for document in owners]
            owner = [event_index for row in counts for event_index, count in enumerate(row) for _ in range(count)]
            table = torch.cat([torch.tensor(owner, dtype=torch.int64, device="cpu")[:, None], table], 1)
            args.append((table, torch.tensor(list(map(sum, counts)), dtype=torch.int64, device="cpu")))
        tables, lengths = zip(*triggers, *args, strict=True)
        self.add_update(in_chunks(self._count, tables, lengths, self._cells, flat=True, device=self.device), **items)

    def read_scores(self, counts: Tensor) -> dict[str, Tensor]:
        # counts: (..., 12)  ->  name: (...)
        overlaps = (part.unbind(-1) for part in counts.unflatten(-1, (len(METRICS), 3)).unbind(-2))
        return {
            f"{metric}-{score}": normalize(cross, pred, ref, score, self.policy.zero_division)
            for metric, (cross, pred, ref) in zip(METRICS, overlaps, strict=True)
            for score in SCORES
        }

    def _count(self, *tables: Tensor) -> Tensor:
        # triggers (D, N, 3), (D, M, 3), arguments (D, A, 4), (D, C, 4), then their numbers (D,) each  ->  (D, 12)
        triggers, args, n_events, n_args = tables[:2], tables[2:4], tables[4:6], tables[6:]
        ids = group_rows(_twice(*triggers)).ids  # (2, D, N + M)
        overlaps = [self._counted(ids, triggers, n_events)]
        if self.link == "type":  # `_nested` leaves them out by itself
            args, n_args = zip(*map(_with_events, args, n_args, n_events), strict=True)
        owner = [table[..., 0].long() for table in args]
        ids = group_rows(_twice(*(table[..., 1:] for table in args))).ids  # (2, D, A + C)
        if self.link == "type":
            kinds = [torch.nn.functional.pad(table[..., 0], (0, 1)) for table in triggers]  # 0 without such an event
            types = [kind.gather(-1, o.clamp(0, kind.shape[-1] - 1)) for kind, o in zip(kinds, owner, strict=True)]
            both = torch.cat(types, -1)
            ids = group_rows(torch.stack([both.expand_as(ids), ids], -1)).ids
            overlaps.append(self._counted(ids, args, n_args))
        else:
            keys = ids.split([table.shape[-2] for table in args], -1)
            overlaps.append(self._nested(triggers, owner, keys, n_events, n_args))
        parts = [torch.broadcast_tensors(*(x.double() for x in overlap)) for overlap in overlaps]
        counts = torch.cat([torch.stack(part, -1) for part in parts])
        return counts.movedim(0, 1).flatten(1)  # from (4, D, 3)

    @property
    def _cells(self) -> Cells:
        return total if self.link == "type" else lambda n, m, a, c: n * m + n * c + a * c

    def _counted(self, ids: Tensor, tables: Sequence[Tensor], lengths: Sequence[Tensor]) -> Overlap:
        # ids: (2, D, N + M)  tables: (D, N, F), (D, M, F)  lengths: (D,) each  ->  (2, D) each
        sizes = [table.shape[-2] for table in tables]
        counted = _lengths.mask_of_both(lengths, sizes)
        overlap = overlap_of_groups(ids, counted, sizes[0], duplicates=self._duplicates)
        return Overlap(*self.policy.count_empty(*overlap, *lengths))

    def _nested(
        self,
        triggers: Sequence[Tensor],  # (D, N, 3), (D, M, 3)
        owner: Sequence[Tensor],  # (D, A), (D, C) the events of the arguments
        args: Sequence[Tensor],  # (2, D, A), (2, D, C) in [0, A + C): ids, the same for equal arguments
        n_events: Sequence[Tensor],  # (D,), (D,)
        n_args: Sequence[Tensor],  # (D,), (D,)
    ) -> Overlap:  # (2, D) each
        """Compute overlaps of events; the similarity of events of equal trigger is their number of common arguments."""
        sizes = [table.shape[-2] for table in triggers]
        owner = [
            events.where(_lengths.mask(n, events.shape[-1]) & (events >= 0), size).clamp(max=size)
            for events, n, size in zip(owner, n_args, sizes, strict=True)
        ]  # an extra last event has the arguments that do not count
        width = sum(a.shape[-1] for a in args)
        repeats = [group_rows((o * width + a)[..., None]).earlier for o, a in zip(owner, args, strict=True)]
        if self._duplicates == "set":
            owner = [o.where(r == 0, size) for o, r, size in zip(owner, repeats, sizes, strict=True)]
        # The n-th of equal arguments of an event is a separate key: two events share it once or not at all.
        keys = [a * width + n for a, n in zip(args, repeats, strict=True)]
        same = (keys[0][..., :, None] == keys[1][..., None, :]).float()  # (..., A, C); exact counts up to 2**24
        shared = _by_event(_by_event(same, owner[0], sizes[0]).mT, owner[1], sizes[1]).mT  # (..., N, M)
        ones = (torch.ones_like(o, dtype=same.dtype)[..., None] for o in owner)
        n_pred, n_ref = map(_by_event, ones, owner, sizes)  # (..., N, 1), (..., M, 1)
        n_ref = n_ref.mT
        cross, pred, ref = self.policy.count_empty(shared, n_pred, n_ref, n_pred, n_ref)
        equal = (triggers[0][..., :, None, :] == triggers[1][..., None, :, :]).all(-1)
        similarity = cross * equal
        batch = similarity.shape[:-2]
        valid = [_lengths.mask(n, size) for n, size in zip(n_events, sizes, strict=True)]
        overlap = Overlap(
            set_overlap(similarity, n_events[0].expand(batch), n_events[1].expand(batch)),
            (pred[..., :, 0] * valid[0]).sum(-1),
            (ref[..., 0, :] * valid[1]).sum(-1),
        )
        return Overlap(*self.policy.count_empty(*overlap, *n_events))

    @property
    def _duplicates(self) -> str:
        # "set_cross" concerns plain values, not triggers and arguments
        return "set" if self.policy.duplicates == "set" else "multiset"


def _ends(items: Iterable[Trigger | Argument]) -> tuple[list[int], list[int]]:
    mentions = [item.mention for item in items]
    return [mention.left for mention in mentions], [mention.right for mention in mentions]


def _twice(pred: Tensor, ref: Tensor) -> Tensor:
    # pred: (D, N, F)  ref: (D, M, F)  ->  (2, D, N + M, F)
    """Return the rows without their first column, which is 0 instead, and with it."""
    rows = torch.cat([pred, ref], -2).long().repeat(2, 1, 1, 1)
    rows[0, ..., 0].zero_()
    return rows


def _with_events(args: Tensor, n_args: Tensor, n_events: Tensor) -> tuple[Tensor, Tensor]:
    # args: (..., A, 4)  n_args, n_events: (...)  ->  (..., A, 4), (...)
    """Move the arguments of existing events to the front, and count them."""
    event = args[..., 0]
    exists = _lengths.mask(n_args, event.shape[-1]) & (event >= 0) & (event < n_events[..., None])
    order = exists.sort(dim=-1, descending=True, stable=True).indices
    return args.gather(-2, order[..., None].expand_as(args)), exists.sum(-1)


def _by_event(values: Tensor, event: Tensor, events: int) -> Tensor:
    # values: (..., A, C)  event: (..., A), broadcast, `events` for arguments that do not count  ->  (..., events, C)
    """Sum over the arguments of each event."""
    total = values.new_zeros(*values.shape[:-2], events + 1, values.shape[-1])
    return total.scatter_add_(-2, event[..., None].expand_as(values), values)[..., :events, :]
