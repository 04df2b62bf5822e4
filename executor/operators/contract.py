"""The contract of a running operator: what runtimes, ledgers and reports may ask of it.

An operator is a compiled function, a descriptor, and state as named flat arrays. What it is for a
runtime (who may share it, what its output looks like) it says itself, in the properties below.
Their defaults are safe for every operator: one worker at a time, any number of output morsels, no
row that fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

from cql.errors import RunError
from cql.executor.codegen.expressions.emit import ErrorSite
from cql.executor.kernels.morsel_layout import INFINITY
from cql.executor.morsel.morsel import Morsel, Words
from cql.executor.state.codes import Change
from cql.executor.state.repartition import SPLITS, Alone, Owners, partitions_of
from cql.executor.state.stateful import Stateful
from cql.executor.state.store import Snapshot

if TYPE_CHECKING:
    import pyarrow as pa

    from cql.executor.strings.dictionary import Dictionary
    from cql.executor.strings.host_functions import DictionaryTables
    from cql.planner.nodes.physical import WidAggregateExec


class Parallelism(Enum):
    """How workers share an operator (ordered-multicore paper, section 4)."""

    SERIAL = auto()  # one worker at a time
    STATELESS = auto()  # several workers at once, each at a morsel of its own
    REPLICATED = auto()  # the same, but each worker calls an instance of its own
    KEYED = auto()  # each instance takes the rows of one partition, in order


class RowLimit(Protocol):
    """A LIMIT, for what ends inputs and judges failures behind its last row."""

    @property
    def is_over(self) -> bool:
        """Whether its last row has passed."""
        ...

    @property
    def has_ended(self) -> bool: ...
    def stops(self, word: int) -> None: ...
    def close_behind(self, serial: int, sequence: int = INFINITY) -> None: ...


@dataclass(frozen=True, slots=True)
class Disorder:
    """How far out of order rows came: ``late`` of ``rows`` came more than the slack of ``units``
    (None: a number of rows) below the highest time before them, at the most ``most`` further.
    ``histogram`` counts rows by their distance below it."""

    late: int
    rows: int
    units: int | None
    most: int
    histogram: Words


class Operator(Stateful, ABC):
    """An operator that a runtime drives: its function at ``address`` has the address of
    ``descriptor`` and that of a morsel as arguments. If it has ``instances``, these are called."""

    name: str
    descriptor: Words
    address: int

    # -- for runtimes ----------------------------------------------------------------------------

    @property
    def parallelism(self) -> Parallelism:
        return Parallelism.SERIAL

    @property
    def instances(self) -> Sequence[Operator]:
        """The operators that share its work, if it runs REPLICATED or KEYED."""
        return ()

    @property
    def any_instance(self) -> Operator:
        """The operator itself, or an instance, to read what all instances share."""
        return self

    @property
    def order_columns(self) -> int:
        """If it runs KEYED: how many columns, the last ones of its outputs, give the order in which
        the runtime merges these; 0: they need no order."""
        return 0

    @property
    def reads_lists(self) -> bool:
        """If it runs KEYED: whether its inputs list the rows of each partition
        (``operators.flow.hash_split``); otherwise each instance searches all rows for its own."""
        return True

    @property
    def numbers_rows(self) -> bool:
        """Whether its output rows get stream positions in the order in which they leave: rows of
        several inputs, or repeated rows, have positions that do not rise."""
        return False

    @property
    def port_alone(self) -> int | None:
        """If it runs STATELESS or REPLICATED: the port of the rows that it keeps, such as those of
        a table. The runtime calls it with such a morsel when all morsels before it are done, and
        with none beside it. Several instances share what they keep."""
        return None

    @property
    def can_replicate(self) -> bool:
        """Whether it may run REPLICATED, with ``replica``."""
        return False

    def replica(self) -> Operator:
        """Another instance of it, for other morsels: it shares what both keep, and has scratch and
        counters of its own."""
        raise AssertionError(f"{self.name} has no replicas")

    @property
    def added(self) -> list[int]:
        """The words of its descriptor that replicas count up, each on its own."""
        return []

    @property
    def calls_users(self) -> bool:
        """Whether its requests to Python may call user functions. Two threads must not serve such
        requests at once."""
        return False

    @property
    def gives_one_at_most(self) -> bool:
        """Whether it emits at most one morsel for each input morsel."""
        return False

    @property
    def passes_by_reference(self) -> bool:
        """Whether an output morsel may show columns of its input morsel."""
        return False

    @property
    def fills(self) -> bool:
        """Whether each call appends to the rows in the output morsel, so that the morsel itself
        collects rows. Other operators write from the first row on or pass columns by reference."""
        return False

    @property
    def limit(self) -> RowLimit | None:
        """The LIMIT that the operator is."""
        return None

    def call(self, morsel: Morsel, out: Morsel) -> int:
        """Does the work of the function, if ``address`` is 0. No operator of the library has that
        address: it is for wrappers in Python that check an operator under a runtime."""
        raise AssertionError(f"{self.name} is called by its address")

    def provide(self, morsel: Morsel) -> None:
        """Answers NEED; the runtime calls the operator again with the same morsel."""
        raise AssertionError(f"{self.name} asks for nothing")

    def refresh(self) -> None:
        """Extends what the function knows of texts, before a morsel, to every code in it."""
        return

    @property
    def needs_refresh(self) -> bool:
        return False

    @property
    def assume_valid(self) -> frozenset[int]:
        """Nullable input columns without a NULL so far, which the function takes to have none."""
        return frozenset()

    def reassume(self, assume_valid: frozenset[int], like: Operator | None = None) -> None:
        """Replaces the function by one with other assumptions; the state stays. ``like``: another
        instance, whose function has been replaced already."""
        raise AssertionError(f"{self.name} assumes nothing")

    def replicate(self, workers: int) -> None:
        """Makes instances, if it runs REPLICATED, until each of ``workers`` has one. Those of
        workers that have left stay, with their counters."""
        return

    def release(self) -> None:
        """Lets memory go, when the query has ended."""
        return

    # -- rows that fail --------------------------------------------------------------------------

    def error(self, morsel: Morsel) -> ErrorSite:
        """What has failed, after ERROR."""
        raise AssertionError(f"{self.name} fails no row")

    def is_fatal(self, morsel: Morsel) -> bool:
        """Whether the failure ends the query although bad rows are kept."""
        return True

    @property
    def fails_by_row(self) -> bool:
        """Whether the row of a failure is a row of the input morsel, as long as ``refused_kind`` is
        no result."""
        return False

    @property
    def can_fail(self) -> bool:
        """Whether a row can fail by its values, apart from its event time."""
        return False

    def refused_kind(self, morsel: Morsel) -> str:
        """The kind of refused item after ERROR: ``bad`` (a row), ``bad_pairs`` ((row, window)
        pairs) or ``bad_results``."""
        return "bad"

    @property
    def passes_rows(self) -> bool:
        """Whether each input row leaves, in its place."""
        return False

    # -- state -----------------------------------------------------------------------------------

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """The state; the runtime has no morsel inside."""

    @abstractmethod
    def restore(self, saved: Snapshot) -> None:
        """Continues with the state of an operator of the same plan. The codes are those of the
        snapshot: ``map_codes`` follows."""

    def repartition(self, saved: Sequence[Snapshot], owners: Owners) -> list[Snapshot]:
        """The snapshots of as many partitions as ``owners`` has, which together have the state of
        the partitions ``saved`` of an operator of the same plan. The operator itself stays as it
        is. Codes are those of ``saved``.

        Raises RunError if the operator cannot divide its state."""
        raise RunError(
            f"the checkpoint has {_many(len(saved))} of {self.name}, and this run has"
            f" {_many(owners.parts)}",
            hint="continue with the runtime and the partitions that the checkpoint was taken with",
        )

    def fitting(
        self,
        saved: Snapshot,
        translate: Change,
        dictionary: Dictionary,
    ) -> Snapshot:
        """A snapshot of the same plan, for as many partitions as the operator has now.
        ``translate``: the codes in ``dictionary`` of the codes in the snapshot.

        Raises RunError if the operator cannot divide its state."""
        parts = partitions_of(saved)
        return saved if parts[0] is saved else self.repartition(parts, Alone())[0]

    def with_steps(self, saved: Snapshot, below: Sequence[Snapshot]) -> Snapshot:
        """The snapshot of an operator that does the work of the operators ``below``, from the one
        ``saved`` of an operator that did not.

        Raises RunError if this operator cannot do their work."""
        if any(one.names and SPLITS not in one.names for one in below):
            raise self._of_another_plan()
        return saved

    def with_filters(self, own: Snapshot, saved: Snapshot, above: Snapshot) -> Snapshot:
        """The snapshot ``own`` of this operator, whose snapshot was ``saved``, if it does filters
        that the operator with the one ``above`` did, which reads its rows; or no longer does."""
        return own

    def of_steps(self, saved: Snapshot, gone: Sequence[Snapshot]) -> Snapshot:
        """The snapshot of an operator whose work was done by the operator of the one ``saved``, or
        by those below it that are ``gone``.

        Raises RunError if that operator cannot have done it."""
        raise self._of_another_plan()

    def _of_another_plan(self) -> RunError:
        return RunError(
            f"the checkpoint is of a plan whose operators are not those of {self.name}",
            hint="continue with the runtime and the settings that the checkpoint was taken with",
        )

    def bind_constants(self) -> None:
        """Writes the constants of its kernel as codes of this process, after ``map_codes`` with
        those of a checkpoint."""
        return

    @property
    def text_tables(self) -> DictionaryTables | None:
        """Tables of values by text; instances may share them."""
        return None

    # -- reports ---------------------------------------------------------------------------------

    @abstractmethod
    def counters(self) -> dict[str, int]:
        """Where rows went (``ledgers.metrics``); at least ``rows_in`` and ``rows_out``. Other
        threads may ask."""

    @property
    def counts_bad_rows(self) -> bool:
        """Whether rows can be refused under ON BAD ROW KEEP."""
        return False

    def derived_counters(self, counters: Mapping[str, Any]) -> dict[str, int]:
        """Terms that follow from the counters."""
        return {}

    def reported(self) -> dict[str, Any]:
        """What the metrics show of its instances."""
        return {}

    def too_late(self) -> list[tuple[str, int]]:
        """For each port that can be idle, its name and the number of its rows that arrived below
        the bound that the port got meanwhile."""
        return []

    def disorder(self) -> Disorder | None:
        """The disorder that it has measured, if it derives a watermark."""
        return None

    def give_late_rows(self, to: Callable[[pa.RecordBatch], None]) -> None:
        """Sets who receives the rows of LATE OUTPUT."""
        return

    @property
    def has_instants(self) -> bool:
        """Whether it turns a stream into a relation, which has ``last``."""
        return False

    @property
    def last(self) -> int | None:
        """The latest watermark of the input before its end."""
        return None

    @property
    def aggregate(self) -> WidAggregateExec | None:
        """The windowed aggregate that the operator runs."""
        return None

    @property
    def source_text(self) -> str | None:
        """The generated source of its function."""
        return None


def _many(parts: int) -> str:
    return f"{parts} partitions" if parts > 1 else "one partition"
