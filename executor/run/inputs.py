"""Opens the inputs of a run: for each source of its plans a reader, and a feed over it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from cql.base.uninterruptible import load_module
from cql.executor.morsel.ingest import WAITING, Feed, errors_at
from cql.executor.morsel.morsel import Morsel
from cql.executor.morsel.source_punctuation import columns_read
from cql.executor.operators.workspace import Workspace
from cql.executor.protocols import Reader, Source
from cql.executor.run.resuming import input_name, open_again
from cql.executor.state.checkpoint import Checkpoint
from cql.executor.state.store import BUFFERS
from cql.executor.texts.ahead import Ahead
from cql.executor.texts.blocks import ComputedColumns
from cql.planner.nodes.physical import Physical, ProjectExec, SourceExec, sources, walk


@dataclass(slots=True)
class Inputs:
    """``sources`` and ``feeds``, in the order of ``physical.sources``. ``readers`` has the readers
    that are open, also if a later source cannot be opened."""

    sources: list[Source] = field(default_factory=list)
    feeds: list[Feed] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)

    @property
    def paced(self) -> bool:
        """Whether an input follows a clock."""
        return any(getattr(source, "paced", False) for source in self.sources)

    @property
    def live(self) -> bool:
        """Whether a consumer waits for each result: an input is unbounded or follows a clock."""
        return self.paced or not all(f.source.relation.bounded for f in self.feeds)

    def open(
        self,
        roots: Sequence[Physical],
        encoded: Collection[tuple[int, int]],
        workspace: Workspace,
        morsel_rows: int,
        resume: Checkpoint | None,
        of_query: Callable[[SourceExec], Source],
    ) -> None:
        """Opens the sources of the plans and adds a feed for each. ``encoded`` has the text columns
        (input, column) to encode. ``resume``: the checkpoint behind whose places they go on.
        ``of_query`` gives the source of a stream that is a query."""
        nodes = sources(*roots)
        for k, node in enumerate(nodes):
            with errors_at(node):
                source = node.relation.source() if node.query is None else of_query(node)
                if resume is None:
                    reader = source.open(columns_read(node))
                else:
                    reader = open_again(node, source, resume.inputs[k])
            self.sources.append(source)
            self.readers.append(reader)
        in_blocks = [
            n for r in roots for n in walk(r) if isinstance(n, ProjectExec) and n.in_blocks
        ]
        for k, node in enumerate(nodes):
            computed = next((n for n in in_blocks if n.input is node), None)
            own = frozenset(c for s, c in encoded if s == k)
            saved = None if resume is None else resume.members[input_name(k)]
            paced = getattr(self.sources[k], "paced", False)
            queued = node.updates is not None and (paced or not node.relation.bounded)
            if saved is not None:  # a stream may have ended since
                queued = WAITING in saved.parts
            feed = self._feed(k, node, computed, own, workspace, morsel_rows, queued=queued)
            if saved is not None:
                feed.take_nulls(saved)
            workspace.resize(0, feed.nbytes, BUFFERS)
            if feed.values is not None:
                what = f"the watermark of each {feed.values.column.name}"
                feed.values.account = partial(workspace.resize, what=what)
            self.feeds.append(feed)

    def _feed(
        self,
        k: int,
        node: SourceExec,
        computed: ProjectExec | None,
        encoded: frozenset[int],
        workspace: Workspace,
        morsel_rows: int,
        *,
        queued: bool,
    ) -> Feed:
        """The feed of input ``k``. ``computed``: the step that is computed for whole blocks.
        ``queued``: its rows wait in an update queue."""
        ones, known = workspace.ones, node.relation.statistics
        with_nulls = {name.lower() for name, count in known.nulls.items() if count}
        schema = node.schema if computed is None else computed.schema
        kind: Callable[..., Feed] = Feed
        if queued:
            kind = partial(_update_feed(node), account=workspace)
        elif node.signal is not None:
            load_module("cql.executor.operators.signals.signal_feed")
            from cql.executor.operators.signals.signal_feed import SignalFeed

            kind = partial(SignalFeed, store=workspace.signals)
        return kind(
            node,
            self.readers[k],
            workspace.dictionary,
            encoded,
            Morsel.allocate(schema, morsel_rows, ones=ones.ctypes.data, owned=frozenset()),
            ones,
            nulls={i for i, f in enumerate(node.schema) if f.name.lower() in with_nulls},
            lag=int(getattr(self.sources[k], "lag", 0)),
            total_rows=known.rows,
            computed=None if computed is None else ComputedColumns(computed, encoded),
        )

    def read_early(self) -> set[int]:
        """Inputs whose next block may be read before the current one is used up: no consumer waits
        for the rest of the current block, and reading changes no state of the input."""
        if self.live:
            return set()
        return {k for k, f in enumerate(self.feeds) if not f.lag and f.values is None}

    def compute_ahead(self, threads: int) -> None:
        """Lets threads compute the columns of several blocks of an input at once."""
        for feed in (self.feeds[k] for k in self.read_early()):
            if threads > 1 and feed.computed is not None and feed.source.refresh is None:
                feed.ahead = Ahead(feed.reader, feed.computed.columns, threads)

    def close(self) -> None:
        """Closes the readers, and ends the threads that compute ahead."""
        with contextlib.ExitStack() as closing:
            for reader in self.readers:
                closing.callback(reader.close)
            for feed in self.feeds:
                if feed.ahead is not None:
                    closing.callback(feed.ahead.close)


def _update_feed(node: SourceExec) -> Callable[..., Feed]:
    """The feed of an update stream; its kernels are loaded with the first one."""
    assert node.updates is not None
    if node.updates.windows is None:
        from cql.executor.operators.updates.update_feed import UpdateFeed

        return UpdateFeed
    from cql.executor.operators.updates.window_feed import WindowFeed

    return WindowFeed
