"""A configuration checks its fields by their declarations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.settings import Group, check_settings, setting, settings_of


@dataclass(frozen=True, kw_only=True)
class Config:
    size: int = setting(3, Group.BASIC, "A size.", least=1, most=8)
    maybe: int | None = setting(None, Group.BASIC, "None, or a count.", least=0)
    share: float = setting(0.5, Group.LIMITS, "A positive number.", above=0)
    wait: float = setting(1.0, None, "May be infinite.", least=0, finite=False)
    name: str = setting("a", Group.BASIC, "One of two.", choices=("a", "b"))
    switch: bool = setting(False, Group.BASIC, "On or off.")
    path: Path | None = setting(None, Group.BASIC, "A file.")
    other: int = 7

    def __post_init__(self) -> None:
        check_settings(self)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("size", 0, "size must be at least 1"),
        ("size", 9, "size must be at most 8"),
        ("size", True, "must be an integer"),
        ("size", "3", "must be an integer"),
        ("size", None, "must be an integer"),
        ("maybe", -1, "maybe must be at least 0"),
        ("share", 0, "share must be above 0"),
        ("share", math.inf, "share must be a finite number"),
        ("share", math.nan, "share must be above 0"),
        ("wait", math.nan, "wait must be at least 0"),
        ("name", "c", "unknown name 'c'; available: a, b"),
        ("name", 1, "name must be"),
        ("switch", 1, "switch must be true or false"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message) as caught:
        Config(**{name: value})
    assert caught.value.param == name


@given(size=st.integers(-5, 15))
def test_bounds_are_inclusive(size: int) -> None:
    try:
        assert Config(size=size).size == size
        assert 1 <= size <= 8
    except InvalidParameterError:
        assert not 1 <= size <= 8


def test_limits_themselves_and_none_are_taken() -> None:
    config = Config(size=8, maybe=None, wait=math.inf, share=1, path=Path("x"))
    assert config.wait == math.inf


def test_declarations_have_type_and_default() -> None:
    declared = settings_of(Config)
    assert "other" not in declared
    assert declared["maybe"][1:] == (int | None, None)
    assert declared["size"][0].help == "A size."
