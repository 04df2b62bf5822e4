"""The settings: one table, the same names everywhere.

``SET name = value``, ``cql.connect(name=value)``, ``--set name=value`` and the hint
``/*+ name(value) */`` all end here. A ``Settings`` is immutable and holds every name with a valid
value, so that readers never check again: ``settings.morsel_rows`` is an ``int`` within its bounds.
"""

from __future__ import annotations

import dataclasses
import operator
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from cql.base.slack import parse_slack
from cql.base.window import WindowOperator
from cql.errors import NotSupportedError, Position, SettingError, did_you_mean, unreachable

#: The heading of settings that compare mechanisms.
FOR_EXPERIMENTS = "for experiments"


class SettingType(Enum):
    CHOICE = "choice"
    FLAG = "on or off"
    INTEGER = "integer"
    SHARE = "share"
    BYTES = "bytes"
    TEXT = "text"
    SLACK = "off or a slack"
    TIME = "off or a length of time"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table.

    ``later`` lists known values that this version does not support. ``low`` and ``high`` bound an
    integer or a size, both included. An ``experiment`` compares mechanisms, as the papers' figures
    do; the engine obeys it like any other setting, and lists it after the others."""

    name: str
    type: SettingType
    default: str | float | bool
    help: str
    choices: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    low: int = 1
    high: int = 2**62
    experiment: bool = False

    @property
    def category(self) -> str:
        """The heading that lists the setting."""
        return FOR_EXPERIMENTS if self.experiment else "for use"

    def parse(self, value: Any, position: Position | None = None) -> str | float | bool:
        """``value`` (a text or a Python value) in the form that ``Settings`` holds.

        Raises SettingError for a bad value, NotSupportedError for a value of ``later``."""
        match self.type:
            case SettingType.CHOICE:
                return self._choice(value, position)
            case SettingType.FLAG:
                return self._flag(value, position)
            case SettingType.INTEGER:
                return self._bounded(_to_int(value), value, position)
            case SettingType.SHARE:
                return self._share(value, position)
            case SettingType.BYTES:
                return self._bounded(_to_bytes(value), value, position)
            case SettingType.TEXT:
                return self._text(value, position)
            case SettingType.SLACK | SettingType.TIME:
                return self._slack(value, position)
            case _:
                return unreachable(self.type)

    def format(self, value: str | float | bool) -> str:
        """``value`` as a person would write it: ``parse(format(v)) == v``."""
        if self.type is SettingType.FLAG:
            return "on" if value else "off"
        if self.type is SettingType.BYTES:
            return _format_bytes(int(value))
        if self.type is SettingType.SHARE:
            return f"{value:.15g}"
        return str(value)

    def takes(self) -> str:
        """The values that the setting takes, in words."""
        match self.type:
            case SettingType.CHOICE:
                return ", ".join(self.choices)
            case SettingType.FLAG:
                return "on, off"
            case SettingType.INTEGER:
                return (
                    f"{self.low:,} to {self.high:,}" if self.high < 2**62 else f"from {self.low:,}"
                )
            case SettingType.SHARE:
                return "a number from 0 on that is below 1"
            case SettingType.BYTES:
                return "a size such as '512 MB' or '2 GiB'"
            case SettingType.TEXT:
                return "text"
            case SettingType.SLACK:
                return "off, a length of time such as '5 seconds', or '1000 rows'"
            case SettingType.TIME:
                return "off, or a length of time such as '1 hour'"
            case _:
                return unreachable(self.type)

    def _refuse(
        self, value: Any, position: Position | None, hint: str | None = None
    ) -> SettingError:
        shown = f"'{value}'" if isinstance(value, str) else repr(value)
        return SettingError(
            f"{self.name} does not take {shown}",
            position=position,
            hint=hint or f"{self.name} takes {self.takes()}",
        )

    def _not_yet(self, value: Any, position: Position | None) -> NotSupportedError:
        return NotSupportedError(
            f"{self.name} = {value} is not supported yet",
            position=position,
            hint=f"this version takes {self.takes()}",
        )

    def _choice(self, value: Any, position: Position | None) -> str:
        word = _word(value) if isinstance(value, str) else value
        for choice in self.choices:
            if isinstance(word, str) and choice.lower() == word:
                return choice
        if word in self.later:
            raise self._not_yet(word, position)
        hint = did_you_mean(str(word), self.choices, what=f"{self.name} takes one of")
        raise self._refuse(value, position, hint)

    def _flag(self, value: Any, position: Position | None) -> bool:
        if isinstance(value, str):
            value = _FLAGS.get(value.strip().lower(), value)
        if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
            return bool(value)
        raise self._refuse(value, position)

    def _bounded(self, number: int | None, value: Any, position: Position | None) -> int:
        if number is None or not self.low <= number <= self.high:
            raise self._refuse(value, position)
        return number

    def _share(self, value: Any, position: Position | None) -> float:
        text = str(value).strip()
        plain = not isinstance(value, bool) and re.fullmatch(r"[0-9]{0,9}\.?[0-9]{0,18}", text)
        if not plain or not re.search("[0-9]", text) or not float(text) < 1:
            raise self._refuse(value, position)
        return float(text)

    def _text(self, value: Any, position: Position | None) -> str:
        if isinstance(value, bool):
            return "on" if value else "off"
        text = str(value).strip() if isinstance(value, str | os.PathLike) else ""
        if not text:
            raise self._refuse(value, position)
        return text.lower() if text.lower() in _FLAGS else text

    def _slack(self, value: Any, position: Position | None) -> str:
        text = str(value).strip().lower()
        if text == "off" or value is False:
            return "off"
        found = None if isinstance(value, bool) else parse_slack(text)
        timed = found is not None and bool(found.microseconds)
        if found is None or (self.type is SettingType.TIME and not timed):
            raise self._refuse(value, position)
        return found.text


_FLAGS = {"on": True, "true": True, "yes": True, "1": True}
_FLAGS |= {"off": False, "false": False, "no": False, "0": False}


def _word(text: str) -> str:
    if not isinstance(text, str):
        raise SettingError(f"the name of a setting is text, not {type(text).__name__}")
    return re.sub(r"[\s-]+", "_", text.strip().lower())


def _to_int(value: Any) -> int | None:
    if isinstance(value, str):
        digits: str = value.strip().replace("_", "")
        # int() takes quadratic time on a long text of digits, or raises ValueError
        return int(digits) if re.fullmatch(r"[+-]?[0-9]{1,19}", digits) else None
    if isinstance(value, bool):
        return None
    try:
        return int(operator.index(value))
    except TypeError:
        return None


_SIZE = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def _to_bytes(value: Any) -> int | None:
    if not isinstance(value, str):
        return _to_int(value)
    found = _SIZE.fullmatch(value.strip())
    if found is None:
        return None
    whole, fraction, prefix, binary = found.groups()
    factor: int = (1024 if binary else 1000) ** _POWERS[prefix.lower()]
    part = int(fraction) * factor // 10 ** len(fraction) if fraction else 0
    return int(whole) * factor + part


def _format_bytes(size: int) -> str:
    for base, infix in ((1000, ""), (1024, "i")):
        for prefix in "TGMK":
            factor = base ** _POWERS[prefix.lower()]
            if size >= factor and size % factor == 0:
                return f"{size // factor} {prefix}{infix}B"
    return f"{size} B"


_SETTING = "setting"


def _setting(kind: SettingType, default: str | float | bool, help: str, **more: Any) -> Any:
    """A field of ``Settings`` and, as its metadata, a row of the table."""
    return dataclasses.field(default=default, metadata={_SETTING: (kind, default, help, more)})


def _choice(default: str, help: str, *choices: str, **more: Any) -> Any:
    return _setting(SettingType.CHOICE, default, help, choices=(default, *choices), **more)


@dataclass(frozen=True, slots=True)
class Settings(Mapping[str, Any]):
    """All settings with valid values; immutable. A mapping from names, with typed attributes.

    ``Settings.of(**values)`` and ``with_`` check the values; the constructor does not."""

    runtime: str = _choice(
        "auto",
        "The runtime of the operators. depth_first sends a morsel through the whole plan before "
        "it admits the next one; fifo, fifo_slice and run_to_completion queue morsels between "
        "operators (the schedulers of the XStream paper); ordered runs the operators on several "
        "workers, with the same output; spark runs a query over Parquet tables of Spark's catalog "
        "in tasks on Spark's executors, with the same output; auto takes spark on a cluster if so "
        "many rows come that its cores are sooner, else ordered if its predicted gain is worth it, "
        "else depth_first, and EXPLAIN gives the reason.",
        "depth_first",
        "fifo",
        "fifo_slice",
        "run_to_completion",
        "ordered",
        "spark",
        later=("simulation",),
    )
    workers: int = _setting(
        SettingType.INTEGER,
        0,
        "Threads that run the operators under the ordered runtime. 0: the number that the cost "
        "model predicts, then as many as raise throughput, up to the cores that the process may "
        "use. Under auto and ordered, also the threads that compute functions over texts of "
        "bounded inputs (0: one for each of these cores).",
        low=0,
        high=64,
    )
    morsel_rows: int = _setting(
        SettingType.INTEGER,
        65_536,
        "Rows in one morsel. The ordered runtime takes at most 4,096 (16,384 if Python has work "
        "for each morsel), and fewer if an operator takes more than 60 microseconds for a morsel, "
        "unless the setting is below 4,096. Every runtime takes 2,048 (or 16,384) if the order of "
        "the output depends on the size: a stream that meets itself, rows without a partner that "
        "leave a few at a time, EMIT CHANGES.",
        high=65_536,
    )
    fuse: bool = _setting(
        SettingType.FLAG,
        True,
        "Compile chains of operators into one kernel; off makes every operator a stage of its own.",
    )
    window_operator: str = _choice(
        "auto",
        "Operator for windowed aggregates; auto lets the planner choose and say why in EXPLAIN.",
        *(one.value for one in WindowOperator),
    )
    adaptive_windows: bool = _setting(
        SettingType.FLAG,
        False,
        "Windowed aggregates change over between wid, panes and buffered as rows and groups per "
        "window change.",
    )
    union_operator: str = _choice(
        "auto",
        "Operator for unions: pass_through passes rows on as they arrive, merge puts them in "
        "order; auto takes pass_through unless an operator above needs the order.",
        "pass_through",
        "merge",
    )
    union_truth: str = _choice(
        "none",
        "Source of truth of a UNION ALL of update streams, for rows with the same key and time and "
        "other values: none passes on the row that comes first; first_input also passes on the row "
        "of the first input if it comes later.",
        "first_input",
    )
    slack: str = _setting(
        SettingType.SLACK,
        "off",
        "Windowed aggregates and ORDER BY take their watermark from the order of arrival: the "
        "greatest time so far, less this slack ('5 seconds', '1000 rows'). They leave out rows "
        "below it. off: the watermark comes from punctuation.",
    )
    join_operator: str = _choice(
        "auto",
        "Operator for joins of streams: oop_join takes rows in any order; sync_filter, "
        "filter_order and adaptive give results in the order of their times; auto takes oop_join "
        "unless the query needs its results in that order.",
        "oop_join",
        "sync_filter",
        "filter_order",
        "adaptive",
    )
    join_order: str = _choice(
        "auto",
        "Order in which inner joins of more than two inputs are joined: auto takes the order with "
        "the fewest expected pairs, or one in which each stream has a time bound to an earlier "
        "stream; written takes the order of the query.",
        "written",
    )
    table_refresh: str = _setting(
        SettingType.TIME,
        "off",
        "How often the engine reads a table again that an endless stream is joined with, if the "
        "table has changed; off: never.",
    )
    partitions: int = _setting(
        SettingType.INTEGER,
        0,
        "Number of partitions into which the ordered runtime splits operators with keys, unless "
        "PARTITION BY gives it. 0: the smallest number that spreads the keys of a sample evenly; "
        "without a sample two for each worker (if a plan has joins, one for each of up to four "
        "workers); with one worker, none. Under the spark runtime, the number of tasks (0: one for "
        "every two million rows).",
        low=0,
        high=256,
    )
    tasks_by: str = _choice(
        "auto",
        "How tasks of the spark runtime share a query. time: each takes the windows or pairs of a "
        "range of time, and no rows are shuffled; key: rows are shuffled by the values of a key; "
        "two_levels: first tasks aggregate rows in part, second ones merge the parts; auto: by "
        "time if that can be, else by key. Queries without a state are always shared by rows.",
        "time",
        "key",
        "two_levels",
    )
    function_timeout: str = _setting(
        SettingType.TIME,
        "off",
        "Longest time for one call of a function of yours, or of an aggregate. A longer call is "
        "ended, and the query fails.",
    )
    max_state: int = _setting(
        SettingType.BYTES,
        4_000_000_000,
        "Most memory that the state of one query may take; a query that needs more fails.",
        low=1_000_000,
    )
    max_overlap: int = _setting(
        SettingType.INTEGER,
        100_000,
        "Most windows that one row may fall into (RANGE / SLIDE); above it the query is refused.",
        high=1_000_000_000,
    )
    on_bad_row: str = _choice(
        "auto",
        "What happens to a row that cannot be read or evaluated: fail ends the query, keep puts "
        "the row into the ledger of bad rows; auto fails on bounded input and keeps on unbounded "
        "input.",
        "fail",
        "keep",
    )
    epoch_ms: int = _setting(
        SettingType.INTEGER,
        1_000,
        "Milliseconds for which an INSERT from unbounded input collects rows to publish at once.",
        high=86_400_000,
    )
    kernel_cache: str = _setting(
        SettingType.TEXT,
        "on",
        "Where compiled kernels are kept: on (the user's cache folder), off, or a folder's path.",
    )
    progress: str = _choice(
        "auto", "Progress on the terminal; auto shows it where one is attached.", "on", "off"
    )

    # For experiments: settings that compare the mechanisms of the papers.

    shared_windows: bool = _setting(
        SettingType.FLAG,
        True,
        "Queries that start together share the panes of windows that differ in RANGE, SLIDE and"
        " OFFSET only.",
        experiment=True,
    )
    order_enforcement: str = _choice(
        "none",
        "sort puts rows in order before a windowed aggregate, as an in-order architecture must; "
        "the window operators do not need the order.",
        "sort",
        experiment=True,
    )
    flush: str = _choice(
        "slow",
        "When groups of closed windows leave two_level: at_once, slow (one group for every "
        "flush_every rows), lazy (two groups for each one that a newer group pushes out), "
        "in_order_slow (slow, as in an in-order architecture).",
        "at_once",
        "lazy",
        "in_order_slow",
        experiment=True,
    )
    flush_every: int = _setting(
        SettingType.INTEGER,
        160,
        "Rows after which flush = slow lets one group of a closed window leave.",
        high=1_000_000_000,
        experiment=True,
    )
    flush_windows: int = _setting(
        SettingType.INTEGER,
        2,
        "Windows that may close before all groups of an earlier one have left two_level.",
        low=0,
        high=1_000_000,
        experiment=True,
    )
    low_level_entries: int = _setting(
        SettingType.INTEGER,
        65_536,
        "Groups that the low level of two_level holds (a power of two, or the next one).",
        high=1 << 26,
        experiment=True,
    )
    multiway_join: str = _choice(
        "single",
        "Joins in order of more than two streams: single is one operator, pipeline one for each "
        "two inputs.",
        "pipeline",
        experiment=True,
    )
    join_alpha: float = _setting(
        SettingType.SHARE,
        0.3,
        "Filter-Order is chosen, and adaptive changes over to it, if c·w·λ1·λ2 is at least this "
        "value; it then saves at least α / (1 + α) of the response time of Sync-Filter.",
        experiment=True,
    )
    join_cost: int = _setting(
        SettingType.INTEGER,
        0,
        "Nanoseconds to join two rows, the c of c·w·λ1·λ2. 0: measured, as the time for one row, "
        "divided by the rows of the window that it is compared with.",
        low=0,
        high=1_000_000_000,
        experiment=True,
    )
    join_punctuation: str = _choice(
        "auto",
        "What closes groups of both times of a join: auto takes joint punctuation if there is "
        "any, because joint punctuation need not wait for the time bound.",
        "individual",
        "joint",
        experiment=True,
    )
    join_flush: str = _choice(
        "slow",
        "When rows of outer and anti joins of streams leave once no partner can come: slow (about "
        "two rows for each row that arrives) or at_once.",
        "at_once",
        experiment=True,
    )
    queue: str = _choice(
        "auto",
        "Queue in which rows of update streams wait for a query: auto is the queue of CREATE "
        "STREAM, otherwise in_place, or linecutting, which lets keys with few updates cut in, once "
        "frequencies differ; adaptive is append until a row has waited half of STALENESS UNDER.",
        "adaptive",
        "append",
        "append_shed_random",
        "fifo",
        "in_place",
        "linecutting",
        experiment=True,
    )
    slice_us: int = _setting(
        SettingType.INTEGER,
        1_000,
        "Microseconds that an operator runs before the next operator runs, under fifo_slice; "
        "microseconds that a worker stays with one operator, under ordered.",
        high=10_000_000,
        experiment=True,
    )
    tuple_burst: int = _setting(
        SettingType.INTEGER,
        0,
        "Rows that come from one input before the operators run until nothing waits inside, under "
        "fifo, fifo_slice and run_to_completion (tupleBurst of the XStream paper). 0: the "
        "operators run whenever more than 8 morsels wait. At most one block of the input; where "
        "several paths of an input meet again, one morsel.",
        low=0,
        high=10_000_000,
        experiment=True,
    )
    scheduler: str = _choice(
        "ct",
        "The operator that a worker of the ordered runtime takes next: ct, the one with the "
        "lowest throughput; lp, the last one with waiting inputs; et, the one whose inputs will "
        "take longest; qst, the first one whose outputs do not pile up; ct_printed, ct with the "
        "equation as the paper prints it, which neglects operators with few outputs.",
        "lp",
        "et",
        "qst",
        "ct_printed",
        experiment=True,
    )
    lp_threshold: int = _setting(
        SettingType.INTEGER,
        1,
        "Waiting inputs for which scheduler = lp takes an operator: the last operator with that "
        "many, or else the last one with any (ordered-multicore paper, section 6.2).",
        high=1_000_000,
        experiment=True,
    )
    qst_capacity: int = _setting(
        SettingType.INTEGER,
        256,
        "Outputs of all operators that may wait under scheduler = qst, the C of equation 1. The "
        "share of an operator follows its outputs for one input of the query.",
        high=1_000_000_000,
        experiment=True,
    )
    ct_window_us: int = _setting(
        SettingType.INTEGER,
        0,
        "Microseconds over which scheduler = ct compares throughput, the window of equation 3; 0:"
        " 100 slices (slice_us).",
        low=0,
        high=1_000_000_000,
        experiment=True,
    )
    worklist: str = _choice(
        "hybrid",
        "How workers of the ordered runtime share the partitions of an operator (its paper, section"
        " 4): hybrid keeps the order of arrival with a master queue; partitioned has none; shared"
        " locks one queue.",
        "partitioned",
        "shared",
        experiment=True,
    )
    reorder: str = _choice(
        "non_blocking",
        "How workers of the ordered runtime put their outputs in order (figures 4 and 2 of its "
        "paper): with lock_based they wait for each other.",
        "lock_based",
        experiment=True,
    )
    reorder_buffer: int = _setting(
        SettingType.INTEGER,
        0,
        "Inputs that an operator may take before the outputs of the first of them have left: the "
        "size of its reorder buffer (ordered-multicore paper, section 3), a power of two or the "
        "next one. At most this many inputs wait at an operator. 0: the power of two above two "
        "for each worker.",
        low=0,
        high=256,
        experiment=True,
    )
    segments: str = _choice(
        "lazy",
        "How segments of signals share samples (the memory managers of the XStream paper, section "
        "III.B): lazy never copies; realloc copies what is appended, behind the samples of the "
        "segment if no other has them; refcount_copy copies both segments to append one; "
        "copy_always also copies a segment where an operator takes or cuts it.",
        "realloc",
        "refcount_copy",
        "copy_always",
        experiment=True,
    )
    sample_order: str = _choice(
        "columns",
        "How the samples of a source with several channels lie in memory (XStream paper, section "
        "IV.B): columns keeps those of a channel together; rows keeps those of a time together "
        "(the paper's WindowStride): functions go over a channel in steps, or bring its samples of "
        "a window together.",
        "rows",
        experiment=True,
    )

    @classmethod
    def of(cls, **values: Any) -> Settings:
        """The defaults with ``values``; raises SettingError for unknown names and bad values."""
        return cls().update(values)

    def with_(self, name: str, value: Any, position: Position | None = None) -> Settings:
        """These settings with one changed. Case, ``-`` and ``_`` do not matter in ``name``.

        Raises SettingError for an unknown name or a bad value."""
        setting = find_setting(name, position)
        return self._replaced(setting.name, setting.parse(value, position))

    def reset(self, name: str) -> Settings:
        """These settings with one back at its default."""
        setting = find_setting(name)
        return self._replaced(setting.name, setting.default)

    def _replaced(self, name: str, value: str | float | bool) -> Settings:
        changes: dict[str, Any] = {name: value}
        return dataclasses.replace(self, **changes)

    def update(self, values: Mapping[str, Any]) -> Settings:
        settings = self
        for name, value in values.items():
            settings = settings.with_(name, value)
        return settings

    def changed(self) -> frozenset[str]:
        """The names of the settings that differ from their defaults."""
        return frozenset([n for n, s in SETTINGS.items() if getattr(self, n) != s.default])

    def __getitem__(self, name: str) -> Any:
        if name not in SETTINGS:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(SETTINGS)

    def __len__(self) -> int:
        return len(SETTINGS)


def _rows() -> Iterator[tuple[str, Setting]]:
    for field in dataclasses.fields(Settings):
        kind, default, help, more = field.metadata[_SETTING]
        yield field.name, Setting(field.name, kind, default, help, **more)


#: The table, in the order of the documentation: the settings for experiments come last.
SETTINGS: Mapping[str, Setting] = dict(_rows())


#: Other engines' names for the time zone of a session.
_TIME_ZONES = ("time_zone", "timezone", "spark.sql.session.timezone", "table.local_time_zone")
#: The hint for users of these names.
ALWAYS_UTC = (
    "the time zone is always UTC: leave it out; a window takes a zone of its own:"
    " [RANGE 1 day SLIDE 1 day TIME ZONE 'Europe/Prague']"
)


def find_setting(name: str, position: Position | None = None) -> Setting:
    """The setting called ``name`` (case, ``-`` and ``_`` do not matter).

    Raises SettingError with the closest candidates."""
    setting = SETTINGS.get(_word(name))
    if setting is None:
        hint = ALWAYS_UTC if _word(name) in _TIME_ZONES else did_you_mean(_word(name), SETTINGS)
        raise SettingError(
            f"there is no setting {name}",
            position=position,
            hint=hint or "SHOW SETTINGS or \\help SETTINGS lists them",
        )
    return setting


def parse_assignment(text: str) -> tuple[str, str]:
    """Splits ``name=value`` of the command line; raises SettingError."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise SettingError(f"'{text}' is not name=value", hint="for example --set workers=1")
    return name.strip(), value.strip()
