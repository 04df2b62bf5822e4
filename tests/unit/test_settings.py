"""The table of settings: all forms of values, and all kinds of wrong names and values."""

from __future__ import annotations

import pathlib

import pytest

from cql.base.settings import (
    ALWAYS_UTC,
    SETTINGS,
    Settings,
    SettingType,
    find_setting,
    parse_assignment,
)
from cql.errors import NotSupportedError, Position, SettingError
from tests.support.paths import ROOT


@pytest.mark.auto_runtime
def test_defaults_are_valid_and_typed() -> None:
    settings = Settings()
    for name, setting in SETTINGS.items():
        assert settings[name] == setting.default
        assert setting.parse(setting.default) == setting.default
        assert getattr(settings, name) == settings[name]
    assert settings.morsel_rows == 65_536
    assert settings.fuse is True


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda s: s.name)
def test_a_printed_value_reads_back(setting: object) -> None:
    assert setting.parse(setting.format(setting.default)) == setting.default
    for choice in setting.choices:
        assert setting.parse(choice.upper()) == choice
    assert setting.help.endswith(".")
    assert setting.takes()


def test_with_leaves_the_original_alone() -> None:
    one = Settings()
    two = one.with_("morsel_rows", 7)
    assert (one.morsel_rows, two.morsel_rows) == (65_536, 7)
    assert two.reset("morsel_rows") == one
    assert hash(two.reset("morsel_rows")) == hash(one)


@pytest.mark.auto_runtime
def test_is_a_mapping() -> None:
    settings = Settings()
    assert list(settings) == list(SETTINGS)
    assert dict(settings)["runtime"] == "auto"
    with pytest.raises(KeyError):
        settings["no_such"]


@pytest.mark.parametrize("name", ["morsel_rows", "MORSEL_ROWS", "morsel-rows", " Morsel_Rows "])
def test_names_are_words(name: str) -> None:
    assert find_setting(name).name == "morsel_rows"


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("runtime", "FIFO-slice", "fifo_slice"),
        ("runtime", "run to completion", "run_to_completion"),
        ("fuse", "off", False),
        ("fuse", "TRUE", True),
        ("fuse", 0, False),
        ("morsel_rows", "1_024", 1024),
        ("max_state", "1 GB", 10**9),
        ("max_state", "1.5 GiB", 3 * 2**29),
        ("max_state", "512mb", 512_000_000),
        ("max_state", 2_000_000, 2_000_000),
        ("kernel_cache", "OFF", "off"),
        ("kernel_cache", True, "on"),
        ("kernel_cache", "/srv/Kernels", "/srv/Kernels"),
        ("kernel_cache", pathlib.PurePosixPath("/k"), "/k"),
        ("workers", "1", 1),
    ],
)
def test_values(name: str, value: object, kept: object) -> None:
    assert Settings.of(**{name: value})[name] == kept


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("runtime", "depthfirst!"),
        ("runtime", 3),
        ("runtime", None),
        ("fuse", "maybe"),
        ("fuse", 2),
        ("morsel_rows", 0),
        ("morsel_rows", 65_537),
        ("morsel_rows", True),
        ("morsel_rows", 1.5),
        ("morsel_rows", "9" * 5000),
        ("morsel_rows", "7; DROP"),
        ("max_state", "a lot"),
        ("max_state", "1 KB"),
        ("max_state", "-1 GB"),
        ("kernel_cache", ""),
        ("kernel_cache", 3),
    ],
)
def test_bad_values(name: str, value: object) -> None:
    with pytest.raises(SettingError, match=f"{name} does not take") as caught:
        Settings.of(**{name: value})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("runtime", "simulation"),
    ],
)
def test_known_but_later(name: str, value: object) -> None:
    with pytest.raises(NotSupportedError, match="not supported yet") as caught:
        Settings().with_(name, value, Position(3, 5))
    assert caught.value.line == 3


def test_unknown_names_get_candidates() -> None:
    with pytest.raises(SettingError, match="no setting runtme") as caught:
        Settings.of(runtme="fifo")
    assert caught.value.hint == "did you mean runtime?"
    with pytest.raises(SettingError) as caught:
        find_setting("zzz", Position(1, 2))
    assert "SHOW SETTINGS" in str(caught.value)
    assert caught.value.column == 2


@pytest.mark.parametrize(
    "name", ["time_zone", "TimeZone", "spark.sql.session.timeZone", "table.local-time-zone"]
)
def test_the_time_zone_is_always_utc(name: str) -> None:
    with pytest.raises(SettingError, match=f"no setting {name}") as caught:
        find_setting(name, Position(1, 5))
    assert caught.value.hint == ALWAYS_UTC


def test_assignments() -> None:
    assert parse_assignment("workers=1") == ("workers", "1")
    assert parse_assignment("p = a=b") == ("p", "a=b")
    for bad in ("workers", "=1", ""):
        with pytest.raises(SettingError):
            parse_assignment(bad)


def test_settings_for_experiments_come_last() -> None:
    categories = [s.category for s in SETTINGS.values()]
    assert list(dict.fromkeys(categories)) == ["for use", "for experiments"]
    assert categories == sorted(categories, reverse=True)
    experiments = [s.name for s in SETTINGS.values() if s.experiment]
    assert experiments == [
        *("shared_windows", "order_enforcement"),
        *("flush", "flush_every", "flush_windows", "low_level_entries"),
        *("multiway_join", "join_alpha", "join_cost", "join_punctuation", "join_flush"),
        *("queue", "slice_us", "tuple_burst"),
        *("scheduler", "lp_threshold", "qst_capacity", "ct_window_us"),
        *("worklist", "reorder", "reorder_buffer", "segments", "sample_order"),
    ]


def test_types_are_all_used() -> None:
    assert {s.type for s in SETTINGS.values()} == set(SettingType)


def test_every_setting_that_has_a_choice_is_read() -> None:
    """No setting is without effect."""
    files = [
        f for top in ("cql", "planner", "executor", "catalog") for f in ROOT.glob(f"{top}/**/*.py")
    ]
    text = "\n".join(f.read_text("utf-8") for f in files if f.name != "settings.py")
    unread = [
        s.name
        for s in SETTINGS.values()
        if (s.type is not SettingType.CHOICE or len({*s.choices} - {"auto"}) > 1)
        and f'settings["{s.name}"]' not in text
        and f"settings.{s.name}" not in text
    ]
    assert unread == []
