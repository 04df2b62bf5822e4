"""One lean local Spark session per process, started when a Spark name is first used.

A session that the user made is used as it is. A session of ours has its own JVM in its own process
group (Ctrl-C in a terminal does not reach it); the JVM's output goes to a log file. The statement
that meets a dead JVM reports the death, once; the next ``start`` makes another JVM.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import platformdirs
import pyspark
from py4j.java_gateway import JavaClass
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from cql.catalog.spark import known_tables
from cql.catalog.spark.java import java_home
from cql.errors import CatalogError

_LOGS_KEPT = 10
_LOG_TAIL = 12

# C1 only and the serial collector: the JVM plans and lists files, but processes few rows. They
# halve its start (11.5 s with the defaults, 5 to 6 s with them, to the end of the first job).
_JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError -Duser.timezone=UTC"
)

Session: TypeAlias = SparkSession
"""For modules that hold a session and need nothing else of pyspark."""

_BROKEN = ("Py4JNetworkError", "Py4JError")

_LEAN = {
    "spark.app.name": "cql",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Else more than 32 partitions are listed by a Spark job of one task each: 4.5 s for a thousand
    # local folders, against 0.1 s in one thread.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    # Spark writes to a Python worker in several small pieces. Over TCP the kernel holds back the
    # second one until the first is acknowledged: 35 ms in each task.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
}


@dataclass(slots=True)
class _Own:
    session: Any
    context: Any
    gateway: Any
    process: subprocess.Popen[bytes]
    log: Path
    warehouse: Path
    death_reported: bool = False


_lock = threading.RLock()
_own: _Own | None = None
_of_parent: _Own | None = None  # kept: a release here would release the objects in the JVM
_calls = threading.local()


def start(settings: Mapping[str, str] | None = None, warehouse: Path | None = None) -> SparkSession:
    """The session of this process: the active one, else a new lean local one.

    ``settings`` are Spark's own. On a session that already runs, those that it can still change are
    set, and the others must agree. ``warehouse`` is the folder of new tables (default: one in the
    user's data folder). After the death of our JVM the first call raises CatalogError, unless
    another call has reported it, and the next call starts a fresh session.
    """
    wanted = dict(settings or {})
    with _lock:
        if _own is not None:
            cause = _death(_own)
            if cause is not None:
                reported, error = (
                    _own.death_reported,
                    _death_error(_own, cause, "the session was idle"),
                )
                _bury(_own)
                if not reported:
                    raise error
            elif _own.context._jsc is None:
                # Someone stopped the session: its JVM is left over, and its options cannot change.
                _bury(_own)
        active = _active()
        if active is not None:
            _agree(active, wanted, warehouse)
            return active
        return _launch(wanted, warehouse)


def is_alive(session: SparkSession) -> bool:
    """Whether ``session`` can still answer (its JVM runs and it was not stopped)."""
    own = _own_of(session)
    if own is not None and own.process.poll() is not None:
        return False
    context = session._sc
    if context._jsc is None:
        return False
    try:
        return not bool(context._jsc.sc().isStopped())
    except Exception:  # py4j answers a dead JVM with any of OSError, Py4JError and AttributeError
        return False


def java_class(session: Any, name: str) -> Any:
    """A Java class by its full name. Through ``session._jvm`` each package on the way is a call."""
    return JavaClass(name, session._sc._gateway._gateway_client)


def is_own(session: SparkSession) -> bool:
    """Whether we started the JVM of ``session`` (and so may keep tables of it in our registry)."""
    return _own_of(session) is not None


def warehouse_of(session: SparkSession) -> Path:
    """The warehouse folder of a session of ours."""
    own = _own_of(session)
    if own is None:
        raise CatalogError("this Spark session was not started by the engine")
    return own.warehouse


def is_local(session: SparkSession) -> bool:
    """Whether the tasks of ``session`` run in its own process, on the cores of this machine."""
    return str(session.sparkContext.master).partition("[")[0] == "local"


def tasks_at_once(session: SparkSession) -> int:
    """The number of tasks that the executors of ``session`` run at once, with those that it has
    now. (``defaultParallelism`` is a setting.)"""
    with spark_call(session, "counting the cores of its executors"):
        context: Any = session.sparkContext._jsc.sc()
        profile = context.resourceProfileManager().defaultResourceProfile()
        return int(context.maxNumConcurrentTasks(profile))


def log_of(session: SparkSession) -> Path | None:
    """The log file of the JVM of a session of ours; None for other sessions."""
    own = _own_of(session)
    return own.log if own is not None else None


def stop() -> None:
    """Ends our session and its JVM, if there is one. A session that the user made stays."""
    with _lock:
        if _own is None:
            return
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _own.session.stop()
        _bury(_own)


@contextlib.contextmanager
def spark_call(session: SparkSession, doing: str) -> Iterator[None]:
    """Turns any error of Spark, py4j or a dead JVM inside into a CatalogError.

    ``doing`` completes "Spark failed while …".
    """
    _calls.depth = getattr(_calls, "depth", 0) + 1
    try:
        yield
    except CatalogError:
        raise
    except Exception as error:  # py4j raises many kinds; those of Spark are picked out below
        if not _is_of_spark(error) and not _is_of_stopped(session, error):
            raise
        own = _own_of(session)
        if own is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                # The connection breaks some milliseconds before the process is gone.
                if isinstance(error, OSError | EOFError) or type(error).__name__ in _BROKEN:
                    own.process.wait(timeout=1)
            cause = _death(own)
            if cause is not None:
                own.death_reported = True
                raise _death_error(own, cause, doing) from error
        if not is_alive(session):
            raise CatalogError(
                f"the Spark session was stopped or lost while {doing}",
                hint="run the statement again in cql.connect(spark=…) with a new SparkSession",
            ) from error
        hint = f"Spark's log is {own.log}" if own is not None else None
        raise CatalogError(
            f"Spark failed while {doing}: {_message_of(error)}", hint=hint
        ) from error
    finally:
        _calls.depth -= 1


def _is_of_spark(error: Exception) -> bool:
    module = type(error).__module__.split(".")[0]
    return module in ("py4j", "pyspark") or isinstance(
        error, PySparkException | ConnectionError | EOFError
    )


def _is_of_stopped(session: Any, error: Exception) -> bool:
    # pyspark does not check for a stopped session: it calls a method of None.
    return isinstance(error, AttributeError) and session._sc._jsc is None


def _message_of(error: Exception) -> str:
    """Spark's message in one line: for Java errors the root cause, without the stack."""
    cause = getattr(error, "java_exception", None)
    if cause is not None:
        with contextlib.suppress(Exception):
            while cause.getCause() is not None:
                cause = cause.getCause()
            return _first_line(str(cause.toString()))
    return _first_line(str(error)) or type(error).__name__


def _first_line(text: str) -> str:
    """The first line; if a traceback of a Python worker follows, with the exception below it."""
    lines = [line for line in text.split("\n") if line.strip()]
    for at, line in enumerate(lines):
        if "Traceback (most recent call last)" in line:
            raised = next((each for each in lines[at + 1 :] if not each[0].isspace()), "")
            return f"a Python worker raised {raised}"
    return lines[0].strip() if lines else ""


def _own_of(session: Any) -> _Own | None:
    own = _own
    return own if own is not None and getattr(session, "_sc", None) is own.context else None


def _death(own: _Own) -> str | None:
    status = own.process.poll()
    if status is None:
        return None
    if status < 0:
        try:
            return f"was killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"was killed by signal {-status}"
    if status == 3:  # the exit code of -XX:+ExitOnOutOfMemoryError
        return "ran out of memory"
    return f"ended with exit code {status}"


def _death_error(own: _Own, cause: str, doing: str) -> CatalogError:
    more = ", or raise spark.driver.memory" if cause == "ran out of memory" else ""
    return CatalogError(
        f"Spark's Java process {cause} while {doing}",
        hint=f"run the statement again{more}: a fresh Spark session starts (temporary views and "
        f"settings of the old one are gone); its log is {own.log}",
    )


def _active() -> Any | None:
    session = SparkSession._instantiatedSession
    if session is not None and session._sc._jsc is not None:
        return session
    if SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    return None


def _agree(session: Any, wanted: Mapping[str, str], warehouse: Path | None) -> None:
    own = _own_of(session)
    if warehouse is not None and own is not None and own.warehouse != warehouse.resolve():
        raise CatalogError(
            f"the running Spark session has its warehouse in {own.warehouse}, not in {warehouse}",
            hint="stop the session first, or leave the warehouse out",
        )
    for key, value in wanted.items():
        with spark_call(session, f"setting {key}"):
            if session.conf.isModifiable(key):
                session.conf.set(key, value)
                continue
            current = session.conf.get(key, None)
            if current is None:
                current = session.sparkContext.getConf().get(key)
        if current != value:
            raise CatalogError(
                f"{key} is {current!r} in the running Spark session and cannot change to {value!r}",
                hint="stop the session first, or leave the setting out",
            )


def _launch(wanted: Mapping[str, str], warehouse: Path | None) -> Any:
    global _own
    home = java_home()
    left = SparkContext._gateway
    if left is not None:
        # The user made a session and stopped it: pyspark would go on in its JVM, without our
        # options and with its messages on the terminal.
        _clear_pyspark()
        with contextlib.suppress(Exception):
            left.shutdown()
        if getattr(left, "proc", None) is not None:
            _end(left.proc)
    place = (warehouse or known_tables.warehouse()).resolve()
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CatalogError(
            f"the warehouse folder {place} cannot be made: {error.strerror}",
            hint="name another warehouse folder",
        ) from error
    conf = _conf(wanted, place)
    log, out = _open_log()
    gateway: Any = None
    try:
        with out, _environment(home), warnings.catch_warnings():
            # pyspark remarks on the version of pandas while it is imported; we use Arrow only.
            warnings.simplefilter("ignore", FutureWarning)
            gateway = launch_gateway(
                conf, {"stdout": out, "stderr": out, "start_new_session": True}
            )
            context = SparkContext(conf=conf, gateway=gateway)
            session = SparkSession(context)
    except BaseException as error:  # Ctrl-C, too: half a gateway would break every later start
        process = gateway.proc if gateway is not None else None
        _clear_pyspark()
        if process is not None:
            _end(process)
        if isinstance(error, Exception):
            raise CatalogError(
                f"Spark could not start: {_message_of(error)}{_tail(log)}",
                hint=f"Java is {home}; the whole log is {log}",
            ) from error
        raise
    _own = _Own(session, context, gateway, gateway.proc, log, place)
    return session


def _conf(wanted: Mapping[str, str], warehouse: Path) -> Any:
    cores = _cores()
    settings = {
        "spark.master": f"local[{cores}]",
        "spark.default.parallelism": str(cores),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.warehouse.dir": str(warehouse),  # Hadoop would encode a URI once more
        **_LEAN,
        **wanted,
    }
    java = "spark.driver.extraJavaOptions"
    # The last option wins in the JVM, so the user's options stand after ours.
    settings[java] = f"{_JAVA_OPTIONS} {settings.get(java, '')}".strip()
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        conf.set(key, value)
    return conf


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


@contextlib.contextmanager
def _environment(home: Path) -> Iterator[None]:
    """Sets what pyspark's launcher reads from the environment, and restores it afterwards."""
    packaged = Path(pyspark.__file__).parent
    chosen = {"JAVA_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    declared = os.environ.get("SPARK_HOME")
    core = f"spark-core_*-{pyspark.__version__}.jar"
    if not (declared and any(Path(declared, "jars").glob(core))):
        # A SPARK_HOME of another version answers py4j with missing methods, far from the cause.
        chosen["SPARK_HOME"] = str(packaged)
    if shutil.which("bash") is None:
        # The launcher is a bash script; a service may run with hardly any PATH.
        chosen["PATH"] = os.pathsep.join(filter(None, (os.environ.get("PATH"), os.defpath)))
    # An inherited gateway belongs to another driver.
    dropped = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
    before = {name: os.environ.get(name) for name in (*chosen, *dropped)}
    os.environ.update(chosen)
    for name in dropped:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _open_log() -> tuple[Path, BinaryIO]:
    folder = platformdirs.user_cache_path("cql-streams") / "spark"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f"spark-{os.getpid()}-", suffix=".log", dir=folder)
    except OSError:
        handle, name = tempfile.mkstemp(prefix=f"cql-spark-{os.getpid()}-", suffix=".log")
    else:
        with contextlib.suppress(OSError):
            logs = sorted(folder.glob("spark-*.log"), key=lambda path: path.stat().st_mtime)
            for old in logs[:-_LOGS_KEPT]:
                old.unlink(missing_ok=True)
    return Path(name), os.fdopen(handle, "wb")


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return "".join(f"\n  {line}" for line in lines[-_LOG_TAIL:])


def _bury(own: _Own) -> None:
    global _own
    _own = None
    if SparkContext._gateway is own.gateway:
        _clear_pyspark()
    with contextlib.suppress(Exception):
        own.gateway.shutdown()
    _end(own.process)


def _clear_pyspark() -> None:
    """Drops the gateway, which pyspark keeps in class attributes and would go on using."""
    from pyspark.sql.context import SQLContext

    context = SparkContext._active_spark_context
    if context is not None:
        server = getattr(context, "_accumulatorServer", None)
        if server is not None:
            with contextlib.suppress(Exception):
                server.shutdown()
            with contextlib.suppress(Exception):
                server.server_close()
            context._accumulatorServer = None
        context._jsc = None
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    SQLContext._instantiatedContext = None


def _end(process: subprocess.Popen[bytes]) -> None:
    # The JVM exits when its standard input ends.
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _is_worth_logging(record: logging.LogRecord) -> bool:
    # py4j writes the stack of every broken connection to the root logger, hence to the terminal,
    # and then raises the same error as an exception, which suffices.
    return not (
        record.msg == "Exception while sending command." and "py4j" in Path(record.pathname).parts
    )


def _is_worth_telling(record: logging.LogRecord) -> bool:
    # pyspark prints every error of a query to the terminal as a line of JSON, stack included, and
    # then raises it. In a session that the user made it may print, outside our own calls.
    return _own is None and getattr(_calls, "depth", 0) == 0


logging.getLogger().addFilter(_is_worth_logging)
for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    PySparkLogger.getLogger(_name).addFilter(_is_worth_telling)
atexit.register(stop)


def _in_a_child() -> None:
    """The JVM of a forked process belongs to its parent and stays. So do the objects of this
    process that stand for objects in that JVM."""
    global _lock, _own, _of_parent
    _lock, _own, _of_parent = threading.RLock(), None, _own


os.register_at_fork(after_in_child=_in_a_child)
