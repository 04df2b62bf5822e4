"""Records of earthquakes that obspy ships: the ratios and detections of its own functions."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import obspy
import pytest
from obspy.signal import trigger

import cql

RECORDS = Path(obspy.__file__).parent
#: Records, with the samples of the short and the long window, and where a detection is on and off.
CASES = {
    "RJOB": (None, 50, 1000, 4.0, 1.5),  # obspy.read() without a file: a local earthquake
    "ANMO": (RECORDS / "clients/iris/tests/data/IU.ANMO.00.BHZ.mseed", 10, 200, 1.1, 1.0),
    "I59H1": (RECORDS / "signal/tests/data/IM.I59H1..BDF_2020_10_31.mseed", 20, 400, 1.3, 1.0),
}


@pytest.mark.parametrize("name", CASES)
def test_detections_of_records_are_those_of_obspy(name: str, tmp_path: Path) -> None:
    given, short, long, on, off = CASES[name]
    record = obspy.read() if given is None else obspy.read(str(given))
    path = given
    if path is None:
        path = tmp_path / "record.mseed"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            record.write(str(path), format="MSEED")
    with cql.connect(spark=False) as session:
        session.create_stream("ground", path)
        channels = [t.stats.channel for t in record]
        calls = [f"sta_lta({c}, {short}, {long})" for c in channels]
        items = ", ".join(
            f"{call} AS r{k}, recursive_{call} AS s{k}, trigger({call}, {on}, {off}) AS t{k}"
            for k, call in enumerate(calls)
        )
        found = session.sql(f"SELECT {items} FROM ground").to_arrow()
    detected = 0
    for k, trace in enumerate(record):
        ratio = trigger.classic_sta_lta(trace.data, short, long)
        np.testing.assert_allclose(found[f"r{k}"].to_numpy(), ratio, rtol=1e-6, atol=1e-9)
        ratio_recursive = trigger.recursive_sta_lta(trace.data, short, long)
        ours = found[f"s{k}"].to_numpy()
        np.testing.assert_allclose(ours, ratio_recursive, rtol=1e-6, atol=1e-9)
        wanted = np.array(trigger.trigger_onset(ratio, on, off)).reshape(-1, 2)
        change = np.diff(np.array(found[f"t{k}"].to_pylist()).astype(int), prepend=0, append=0)
        edges = [np.flatnonzero(change == 1), np.flatnonzero(change == -1) - 1]
        assert np.stack(edges, axis=1).tolist() == wanted.tolist()
        detected += len(wanted)
    assert detected > 0
