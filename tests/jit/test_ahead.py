"""What is compiled ahead doesn't depend on which optional packages are installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ramet.jit.ahead import compiled_of


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = tmp_path / "rooms_for_ahead"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "code.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder.name
    for name in [each for each in sys.modules if each.startswith(folder.name)]:
        del sys.modules[name]


def test_a_module_of_an_optional_package_is_left_out(package: str, tmp_path: Path) -> None:
    (tmp_path / package / "backend.py").write_text("import a_package_that_nobody_has\n")
    assert list(compiled_of(package)) == []


def test_a_missing_module_of_our_own_is_an_error(package: str, tmp_path: Path) -> None:
    (tmp_path / package / "backend.py").write_text("import ramet.nothing\n")
    with pytest.raises(ModuleNotFoundError, match=r"ramet\.nothing"):
        list(compiled_of(package))


def test_all_product_code_is_found_without_the_optional_backend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "outlines_core", None)
    monkeypatch.delitem(sys.modules, "ramet.grammars.outlines_backend", raising=False)
    assert len(list(compiled_of("ramet.grammars"))) > 10
