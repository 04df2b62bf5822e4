"""The state of a query between two morsels, and its form in a file.

A checkpoint has the snapshots of the operators and the texts that their codes refer to. That of a
whole run (``executor.run.resuming``) also has the places in the sources, and the snapshots of the
other members of the run. It can be restored by another process, whose dictionary numbers texts
otherwise: ``restore`` translates the codes. The file is an Arrow IPC stream of one record batch
with one row. Each array is a column, a large list of numbers; the schema's metadata holds, as JSON,
what belongs to whom.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cql.errors import RunError
from cql.executor.operators.contract import Operator
from cql.executor.protocols import Offset
from cql.executor.state.codes import Change, CodeColumn, HoldsCodes
from cql.executor.state.store import Snapshot
from cql.executor.strings.dictionary import Dictionary

#: The version of the form; a reader refuses another one.
VERSION = 1
_LAYOUT = b"cql checkpoint"
#: Columns that belong to no array.
_WORDS, _TEXTS, _CODES, _DEPTHS = "=words", "=texts", "=codes", "=depths"


@dataclass(frozen=True)
class InputPlace:
    """The place of a run in the source ``name``: the run reads on behind ``offset`` (None: from the
    beginning), first one block for each number in ``blocks``, with that number of rows. ``begun``:
    the first of these blocks is partly processed. ``over``: the run needs no more rows of the
    source."""

    name: str
    offset: Offset | None = None
    blocks: tuple[int, ...] = ()
    begun: bool = False
    over: bool = False


@dataclass(frozen=True)
class Checkpoint:
    """``operators``: the snapshots in the order of the graph, by key (``graph.keys``).
    ``texts``: the texts of ``codes``, which are the codes in the snapshots; ``depths``:
    ``Dictionary.depths`` of them. The checkpoint of a whole run also has the hashes of its
    ``plans`` (``planner.nodes.plan_hash``), the places in its ``inputs``, and its other
    ``members``, by name."""

    operators: Mapping[str, Snapshot]
    codes: CodeColumn
    texts: pa.LargeBinaryArray
    depths: npt.NDArray[np.uint8]
    plans: tuple[str, ...] = ()
    inputs: tuple[InputPlace, ...] = ()
    members: Mapping[str, Snapshot] = field(default_factory=dict)


def checkpoint(
    operators: Mapping[str, Operator], dictionary: Dictionary, others: Sequence[HoldsCodes] = ()
) -> Checkpoint:
    """The state of ``operators``, all of a query's, by their keys; no morsel is inside. ``others``
    have codes, too."""
    live = np.zeros(len(dictionary), np.bool_)

    def keep(codes: CodeColumn) -> CodeColumn:
        live[codes[codes > 0]] = True
        return codes

    for other in others:
        other.map_codes(keep)
    for operator in operators.values():
        operator.map_codes(keep)  # and drops what holds texts of rows that have left
    found = {key: operator.snapshot() for key, operator in operators.items()}
    codes = np.flatnonzero(live).astype(np.int32)
    texts = dictionary.decode(codes, None, pa.large_binary())
    return Checkpoint(found, codes, texts, dictionary.depths[codes].copy())


@dataclass(frozen=True)
class Moved:
    """Which work other operators do in the plan than in the checkpoint, since one of both has
    partitions. ``to``: by the key of an operator of the plan, the keys in the checkpoint of the
    operators whose work it does. ``away``: by the key of an operator that the checkpoint lacks, the
    key of the one that did its work. ``above``: by the key of an operator, the key of the one that
    reads its rows: windowed aggregates may have done filters of each other."""

    to: Mapping[str, Sequence[str]] = field(default_factory=dict)
    away: Mapping[str, str] = field(default_factory=dict)
    above: Mapping[str, str] = field(default_factory=dict)


def restore(
    saved: Checkpoint,
    operators: Mapping[str, Operator],
    dictionary: Dictionary,
    moved: Moved | None = None,
) -> None:
    """Continues with a checkpoint: ``operators`` are new ones of the same plan, by their keys.

    Raises RunError if the checkpoint is of another plan."""
    moved = moved or Moved()
    known = {*moved.away, *(key for keys in moved.to.values() for key in keys)}
    if operators.keys() ^ saved.operators.keys() != known:
        raise RunError(
            f"the checkpoint is of a plan with {', '.join(saved.operators)}, and this plan has"
            f" {', '.join(operators)}",
            hint="restore it with the query and the settings that it was taken with",
        )
    translate = translation(saved, dictionary)
    fits = dict[str, Snapshot]()

    above = {
        key: other
        for key, other in moved.above.items()
        if all(operators[k].any_instance.aggregate is not None for k in (key, other))
    }

    def gone(key: str) -> list[Snapshot]:
        below = (other for other, reader in above.items() if reader == key)
        return [saved.operators[other] for other in (*moved.to.get(key, ()), *below)]

    for key, operator in operators.items():
        if key in moved.away:
            owner = moved.away[key]
            fits[key] = operator.of_steps(saved.operators[owner], gone(owner))
        else:
            own = operator.fitting(saved.operators[key], translate, dictionary)
            if key in moved.to:
                own = operator.with_steps(own, gone(key))
            if key in above:
                reader = saved.operators[above[key]]
                own = operator.with_filters(own, saved.operators[key], reader)
            fits[key] = own
    for key, snapshot in fits.items():
        operators[key].restore(snapshot)
        operators[key].map_codes(translate)
        operators[key].bind_constants()


def translation(saved: Checkpoint, dictionary: Dictionary) -> Change:
    """The codes that ``dictionary`` gives the texts of the codes of a checkpoint."""
    now = np.zeros(int(saved.codes.max(initial=0)) + 1, np.int32)
    for depth in np.unique(saved.depths):
        at = np.flatnonzero(saved.depths == depth)
        now[saved.codes[at]] = dictionary.encode_results(saved.texts.take(pa.array(at)), int(depth))

    def translate(codes: CodeColumn) -> CodeColumn:
        known = (codes > 0) & (codes < now.size)  # others are constants, which are bound again
        new: CodeColumn = np.where(known, now[np.where(known, codes, 0)], codes).astype(np.int32)
        return new

    return translate


# -- the form in a file ----------------------------------------------------------------------------


def to_ipc(saved: Checkpoint) -> pa.Buffer:
    """The checkpoint as an Arrow IPC stream."""
    columns: dict[str, pa.Array] = {}
    groups = {"operators": saved.operators, "members": saved.members}
    layout: dict[str, Any] = {"version": VERSION, "plans": saved.plans}
    layout["inputs"] = [asdict(place) for place in saved.inputs]
    for group, snapshots in groups.items():
        found = {key: _put(one, f"{group}/{key}/", columns) for key, one in snapshots.items()}
        layout[group] = found
    columns[_CODES], columns[_DEPTHS] = _one_row(saved.codes), _one_row(saved.depths)
    offsets = pa.array([0, len(saved.texts)], pa.int64())
    columns[_TEXTS] = pa.LargeListArray.from_arrays(offsets, saved.texts)
    batch = pa.record_batch(columns).replace_schema_metadata({_LAYOUT: json.dumps(layout)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def from_ipc(data: Any) -> Checkpoint:
    """Reads ``to_ipc``'s form; raises RunError for another form."""
    with pa.ipc.open_stream(data) as reader:
        batch = reader.read_next_batch()
    layout = json.loads((batch.schema.metadata or {}).get(_LAYOUT, b"{}"))
    if layout.get("version") != VERSION:
        raise RunError(
            f"this is no checkpoint of version {VERSION}", hint="take it with this version of cql"
        )
    operators, members = (
        {key: _taken(owner, f"{group}/{key}/", batch) for key, owner in layout[group].items()}
        for group in ("operators", "members")
    )
    inputs = tuple(InputPlace(**i | {"blocks": tuple(i["blocks"])}) for i in layout["inputs"])
    codes, depths = (batch.column(name)[0].values.to_numpy() for name in (_CODES, _DEPTHS))
    texts = batch.column(_TEXTS)[0].values
    plans = tuple(layout["plans"])
    return Checkpoint(operators, codes, texts, depths, plans, inputs, members)


def _put(snapshot: Snapshot, prefix: str, columns: dict[str, pa.Array]) -> dict[str, Any]:
    """Adds a snapshot's arrays to ``columns``; returns its part of the layout."""
    columns[prefix + _WORDS] = _one_row(snapshot.words)
    arrays = {}
    for name, array in snapshot.arrays.items():
        columns[f"{prefix}{name}"] = _one_row(array)
        arrays[name] = {"dtype": _described(array.dtype), "shape": list(array.shape)}
    parts = {name: _put(p, f"{prefix}{name}/", columns) for name, p in snapshot.parts.items()}
    return {"arrays": arrays, "parts": parts, "names": snapshot.names}


def _taken(owner: Any, prefix: str, batch: pa.RecordBatch) -> Snapshot:
    arrays = {
        name: np.frombuffer(_bytes(batch, prefix + name), np.dtype(form["dtype"])).reshape(
            form["shape"]
        )
        for name, form in owner["arrays"].items()
    }
    parts = {name: _taken(part, f"{prefix}{name}/", batch) for name, part in owner["parts"].items()}
    words = np.frombuffer(_bytes(batch, prefix + _WORDS), np.int64)
    return Snapshot(arrays, words, parts, tuple(owner["names"]))


def _one_row(array: npt.NDArray[Any]) -> pa.Array:
    """One large list of the array's numbers; records are lists of words, and truth values are
    bytes."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype == np.bool_:
        flat = flat.view(np.uint8)
    if flat.dtype.fields is not None:
        flat = flat.view(np.int64)
    return pa.LargeListArray.from_arrays(pa.array([0, flat.size], pa.int64()), pa.array(flat))


def _bytes(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = batch.column(name)[0].values.to_numpy()
    return values


def _described(dtype: np.dtype[Any]) -> Any:
    """A dtype in JSON: the fields of a record with their offsets, else its name."""
    if dtype.fields is None:
        return dtype.str
    parts = dtype.fields.items()
    return {
        "names": [name for name, _ in parts],
        "formats": [part[0].str for _, part in parts],
        "offsets": [part[1] for _, part in parts],
        "itemsize": dtype.itemsize,
    }
