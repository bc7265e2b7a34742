"""The states of a memory over transaction time: the newest, and those that were known at earlier moments.

The state of a saved memory is that of its bundle and the events of its journal after those that the bundle absorbed. It
depends on nothing else, so all processes that have the memory open give the same answers.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock

import polars as pl

from recollect.engine import one_thread
from recollect.errors import ReusedKeyError, UserError, check_process
from recollect.io.atomic import existing_folder, folder_identity, locked
from recollect.memory.bundle.content import JOURNAL, read_learned, to_bundle
from recollect.memory.bundle.folder import malformed_refused, read_bundle, write_bundle
from recollect.memory.journal.changes import Delta
from recollect.memory.journal.database import Journal, journal_path
from recollect.memory.journal.effects import Effect, reversal_of
from recollect.memory.journal.events import Events, Transaction
from recollect.memory.journal.moments import Moment, change_rows, change_table, parse_moment
from recollect.memory.learning.growth import grow
from recollect.memory.learning.learn import Learned
from recollect.memory.learning.restriction import restrict
from recollect.memory.snapshot import Snapshot

MOMENTS = 4  # states of earlier moments that are kept

Learn = Callable[[Learned, Delta], Learned]
Check = Callable[[pl.DataFrame], None]  # raises an error if a change is not to be made
Folder = tuple[int, ...]  # what tells a bundle from one that took its place


@dataclass(frozen=True, eq=False)
class _State:
    """A snapshot, and the bundle and the event that it comes from."""

    base: Learned  # of the bundle
    folder: Folder | None
    snapshot: Snapshot
    event: int  # the last one that was applied
    version: int = -1  # of the journal when it was read

    @property
    def absorbed(self) -> int:
        """The last event that the bundle absorbed."""
        return int(self.base.about.get(JOURNAL, {}).get("absorbed", 0))


class Timeline:
    """The states of one memory. Any thread may use it."""

    def __init__(self, learned: Learned, path: Path | None = None, folder: Folder | None = None) -> None:
        """Without a `path`, changes are kept in main memory."""
        self.path = path
        self._journal = Journal.in_main_memory(learned.graph.times) if path is None else None
        self._state = _begin(learned, folder)
        self._moments: OrderedDict[tuple[int, ...], Snapshot] = OrderedDict()
        self._lock, self._write_lock = RLock(), RLock()
        self._has_created = path is None  # the journal, or found it whole

    @classmethod
    def load(cls, path: Path) -> Timeline:
        """Return the states of a saved memory, after its files have been checked."""
        learned, folder = _read(path)
        timeline = cls(learned, path, folder)
        timeline.now()  # a journal that cannot be read is an error now, not at the first question
        return timeline

    # -- reading ------------------------------------------------------------------------------------------------------

    def now(self) -> Snapshot:
        """Return the newest state."""
        if self.path is not None:
            with self._lock:
                self._state = self._refreshed(self._state, None)
        return self._state.snapshot

    def at(self, moment: Moment) -> Snapshot:
        """Return the state that was known at a moment. What was erased since is in none."""
        until = parse_moment(moment, at_end=True)
        newest = self.now()
        with self._lock:
            state, journal = self._state, self._journal
            if journal is None or (event := journal.last(until)) >= state.event:
                return newest
            gone = journal.erased_after(max(event, state.absorbed))
            key = (*(state.folder or ()), state.absorbed, event, len(gone))
            if key not in self._moments:
                self._moments[key] = Snapshot(_learned_at(journal, state, event, gone))
                while len(self._moments) > MOMENTS:
                    self._moments.popitem(last=False)
            self._moments.move_to_end(key)
            return self._moments[key]

    def changes(self, since: Moment | None = None, until: Moment | None = None) -> pl.DataFrame:
        """Return all changes between two moments: event, known_at, change, subject, predicate, object, from, to."""
        axis = self.now().graph.times
        low = None if since is None else parse_moment(since, at_end=False)
        high = None if until is None else parse_moment(until, at_end=True)
        journal = self._journal or Journal.in_main_memory(axis)
        return change_table(journal.changes(low, high), axis)

    def version(self) -> str:
        """Return a text that differs whenever answers may; it is the same for all that have the memory open."""
        self.now()
        state = self._state
        return hashlib.sha256(repr((state.folder, state.event)).encode()).hexdigest()[:16]

    def has_file(self, name: str, digest: str) -> bool:
        """Return whether the facts of a file were remembered."""
        self.now()
        return self._journal is not None and self._journal.has_file(name, digest)

    def preview(self, effect: Effect) -> pl.DataFrame:
        """Return what a change would do, in the columns of `changes`, with nulls for event and known_at."""
        snapshot = self.now()
        return change_table(change_rows(effect(snapshot.graph)), snapshot.graph.times)

    # -- changing -----------------------------------------------------------------------------------------------------

    def change(
        self,
        effect: Effect,
        *,
        file: tuple[str, str] | None = None,
        request: tuple[str, str] | None = None,
        check: Check | None = None,
    ) -> pl.DataFrame:
        """Append what a change really does, as an event, and return it in the columns of `changes`.

        It is on disk, and visible to the next question, when this returns. A `file`, by name and digest, is recorded in
        the same transaction; if it was recorded before, nothing is changed. So is a `request`, by key and digest, of
        which the same key with another digest is an error. `check` is given what `preview` returns.
        """
        recorded = file or request
        check_process()
        with self._write_lock, one_thread():  # small tensors: waking other threads takes longer than the work
            journal = self._writable_journal()
            with journal.writing() as transaction:
                state = self._state if self.path is None else self._refreshed(self._state, transaction)
                is_new = recorded is None or not transaction.has_file(*recorded)
                if is_new and request is not None and transaction.has_name(request[0]):
                    raise ReusedKeyError(
                        "this key was used for a request with another content; give every request a key of its own"
                    )
                delta = effect(state.snapshot.graph) if is_new else Delta.of()
                if check is not None:
                    check(change_table(change_rows(delta), state.snapshot.graph.times))
                if recorded is not None:
                    transaction.add_file(*recorded)
                if not delta.is_empty:
                    grown = state.snapshot.grown(delta)
                    event = transaction.append(delta, after=state.absorbed)
                    state = replace(state, snapshot=grown, event=event)
                made = transaction.changes(after=state.event - (not delta.is_empty))
            with self._lock:
                if self._state.folder != state.folder or self._state.event < state.event:
                    self._state = state
            return change_table(made, state.snapshot.graph.times)

    def undo(self, event: int) -> pl.DataFrame:
        """Take an event back, by another event, and return what that changed."""
        self.now()
        axis = self._state.base.graph.times
        journal, step = self._journal or Journal.in_main_memory(axis), axis.step
        delta = journal.between(event - 1, event, step)
        if delta.erased:
            raise UserError(
                f"event {event} erased {delta.erased[0]}, of which nothing was kept; remember its facts anew"
            )
        if delta.frame.is_empty():
            raise UserError(f"there is no event {event} to take back; `changes` and /v1/journal list them")
        return self.change(reversal_of(delta))

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """Write the newest state as a bundle. A journal at another place is started anew, since it is overwritten."""
        if self.path is not None and path.resolve() == self.path.resolve():
            with locked(self.path):  # no other process absorbs later events, and purges them, before this is written
                self.now()
                self.replace_bundle(self._state.snapshot.learned, self._state.event, overwrite=overwrite)
            return
        learned = _without_journal(self.now().learned)
        other = journal_path(path)
        if not other.exists():
            write_bundle(path, to_bundle(learned), overwrite=overwrite)
            return
        if not existing_folder(path).exists() and not overwrite:
            raise UserError(f"{other} is the journal of a memory that is not there; move it away, or overwrite it")
        fingerprint = learned.graph.fingerprint
        journal = Journal.open(other)
        with journal.writing() as transaction:
            transaction.announce(fingerprint)
        write_bundle(path, to_bundle(learned), overwrite=overwrite)
        with journal.writing() as transaction:
            transaction.restart(fingerprint, learned.graph.times)

    def consolidate(self, learn: Learn) -> bool:
        """Replace the bundle by one that `learn` returns; return whether there was anything to learn.

        `learn` is given the newest state and all changes since the bundle was written. Questions are answered
        meanwhile, and changes are accepted: they are events that the new bundle has not absorbed.
        """
        check_process()
        with ExitStack() as stack:
            stack.enter_context(self._write_lock if self.path is None else locked(self.path, wait=0))
            self.now()
            state, journal = self._state, self._journal
            if journal is None or state.event == state.absorbed:
                if journal is not None:
                    journal.purge(state.absorbed)  # what was killed after it had replaced the bundle
                return False
            delta = journal.between(state.absorbed, state.event, state.base.graph.times.step)
            learned = learn(state.snapshot.learned, delta)
            if self.path is not None:
                self.replace_bundle(learned, state.event)
            else:
                about = {**learned.about, JOURNAL: {"id": journal.identity.id, "absorbed": state.event}}
                self._state = _begin(replace(learned, about=about), None)
            return True

    def replace_bundle(self, learned: Learned, event: int, *, overwrite: bool = True) -> None:
        """Write a bundle in place of the memory's own, which has absorbed all events until a number.

        What these erased is then removed from the journal, without a trace.
        """
        assert self.path is not None
        about = dict(_without_journal(learned).about)
        if self._journal is not None:
            about[JOURNAL] = {"id": self._journal.identity.id, "absorbed": event}
        write_bundle(self.path, to_bundle(replace(learned, about=about)), overwrite=overwrite)
        if self._journal is not None:
            self._journal.purge(event)

    # -- keeping up with other processes ------------------------------------------------------------------------------

    def _refreshed(self, state: _State, transaction: Transaction | None) -> _State:
        """Return the state after all that other processes did; inside a transaction, nothing can be newer."""
        assert self.path is not None
        while True:
            folder = folder_identity(self.path)
            if folder is not None and folder != state.folder:  # None: it is being replaced right now
                state = _begin(*_read(self.path))
            if self._open_journal():
                state = _begin(state.base, state.folder)
            if self._journal is None:
                return state
            version = self._journal.version()
            if version == state.version and transaction is None:
                return state
            state = _with_events(replace(state, version=version), transaction or self._journal, self.path)
            # a new bundle may have absorbed events whose labels are no longer in the journal
            if folder_identity(self.path) in (None, state.folder):
                return state

    def _open_journal(self) -> bool:
        """Open the journal if there is one; return whether it is another one than before."""
        assert self.path is not None
        before = self._journal
        if before is not None and not before.is_in_place():
            self._journal = None
        if self._journal is None and (place := journal_path(self.path)).exists():
            self._journal = Journal.open(place)
        return self._journal is not before

    def _writable_journal(self) -> Journal:
        """Return the journal, which is created if there is none; what a killed process left of that is removed."""
        if self.path is not None:
            self.now()
        if self._journal is None or not self._has_created:
            assert self.path is not None
            graph, known = self._state.base.graph, self._state.base.about.get(JOURNAL, {})
            created = Journal.create(journal_path(self.path), graph.fingerprint, graph.times, known.get("id"))
            self._journal, self._has_created = self._journal or created, True
        return self._journal


def _begin(learned: Learned, folder: Folder | None) -> _State:
    """Return the state of a bundle before any event of its journal is read."""
    state = _State(learned, folder, Snapshot(learned), 0)
    return replace(state, event=state.absorbed)


def _read(path: Path) -> tuple[Learned, Folder | None]:
    """Return what a bundle holds, and its identity."""
    while True:
        folder = folder_identity(path)
        bundle = read_bundle(path)
        with malformed_refused(path):
            learned = read_learned(bundle)
        if folder_identity(path) == folder:
            return learned, folder


def _with_events(state: _State, events: Events, path: Path) -> _State:
    """Return the state after the events of a journal, which must belong to it."""
    fingerprint, known = state.base.graph.fingerprint, state.base.about.get(JOURNAL)
    with events.frozen():
        owner = events.identity
        is_owner = owner.base == fingerprint if known is None else owner.id == known["id"]
        if not is_owner:
            if known is not None or owner.next != fingerprint:
                raise UserError(
                    f"{journal_path(path)} is the journal of another memory than {path}; move it away, or restore the "
                    "memory that it belongs to"
                )
            if isinstance(events, Transaction):  # the process that saved this memory died before it did so
                events.restart(fingerprint, state.base.graph.times)
            return state
        last = events.last()
        if last <= state.event:
            return state
        delta = events.between(state.event, last, state.base.graph.times.step)
    if delta.leaves(state.snapshot.graph.times):
        return replace(state, event=last)
    return replace(state, event=last, snapshot=state.snapshot.grown(delta))


def _learned_at(journal: Journal, state: _State, event: int, gone: tuple[str, ...]) -> Learned:
    """Return the state after an event, without the entities that were erased later."""
    base, step = state.base, state.base.graph.times.step
    if event >= state.absorbed:
        return _grown(base, journal.between(state.absorbed, event, step).without(gone))
    later = journal.between(event, state.absorbed, step)
    before = _grown(base, later.inverse().without(gone))
    reach = journal.reach(event)
    return before if reach is None else restrict(before, len(base.graph.predicates) - len(later.predicates), reach)


def _grown(learned: Learned, delta: Delta) -> Learned:
    return learned if delta.leaves(learned.graph.times) else grow(learned, delta)


def _without_journal(learned: Learned) -> Learned:
    return replace(learned, about={name: value for name, value in learned.about.items() if name != JOURNAL})
