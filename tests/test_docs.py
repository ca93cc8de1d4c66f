"""What the pages for contributors name is there: files, folders, modules, anchors."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in ROOT.glob("docs/*.md")))
GENERATED = re.findall(r'"(reference/[a-z]+\.md)":', (ROOT / "docs/hooks.py").read_text())
TOP = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}


def is_path(text: str) -> bool:
    return bool(re.fullmatch(r"[\w./-]+", text)) and "/" in text and text.split("/")[0] in TOP


def missing(texts: list[str]) -> list[str]:
    return [text for text in texts if is_path(text) and not (ROOT / text).exists()]


@pytest.mark.parametrize("page", PAGES)
def test_paths_and_modules_exist(page):
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    named = [" ".join(each.split()) for each in re.findall(r"`([^`]+)`", text)]
    assert missing(named) == []
    for name in named:
        if re.fullmatch(r"ramet\.(lang|runtime|grammars|kernels|jit|cli|bench)(\.\w+)*", name):
            try:
                import_module(name)
            except ModuleNotFoundError:
                module, _, attribute = name.rpartition(".")
                assert hasattr(import_module(module), attribute), name


@pytest.mark.parametrize("drawing", sorted(p.name for p in ROOT.glob("docs/images/*.svg")))
def test_paths_in_drawings_exist(drawing):
    words = re.findall(r"[\w./-]*\w", (ROOT / "docs/images" / drawing).read_text())
    assert missing(words) == []


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", each).strip().lower().replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text()):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        if file in GENERATED:
            continue
        path = (ROOT / page).parent / file if file else ROOT / page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target
