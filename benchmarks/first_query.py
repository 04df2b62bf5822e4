"""A fresh process: from nothing to the first result. Prints what it took, as JSON.

Arguments: ``import`` for the import alone; else a parquet file and a folder for compiled kernels.
"""

import json
import sys
import time

QUERY = """
SELECT window_start, srcIP, destIP, count(*) AS packets
FROM m [WA ts, RANGE 10 seconds, SLIDE 10 seconds]
GROUP BY srcIP, destIP
"""


def main(file: str, *kernels: str) -> None:
    start = time.perf_counter()
    import cql

    told: dict[str, object] = {"import": time.perf_counter() - start}
    if file != "import":
        session = cql.connect(spark=False, kernel_cache=kernels[0])
        session.create_stream("m", file, ordered_by="ts")
        table = session.sql(QUERY).to_arrow()
        told["wall"] = time.time()
        from benchmarks.q4 import counts

        told["answer"] = counts(table)
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
