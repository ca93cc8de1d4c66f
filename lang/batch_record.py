"""The file of a batch: a line for each successful run, so that the batch can be resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from ramet.lang.base.errors import UsageError
from ramet.lang.trace.trace import Trace


class BatchRecord:
    """The traces of a batch's finished runs, by their arguments.

    A file's last line may be cut off, by a crash: its run is made again.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._traces: dict[str, list[Trace]] = {}
        if not self._path.exists():
            return
        lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            try:
                data = json.loads(line)
                trace = Trace.from_json(data["trace"])
            except (ValueError, KeyError, TypeError, UsageError) as error:
                if number == len(lines) and not line.endswith("\n"):
                    self._path.write_text("".join(lines[:-1]), encoding="utf-8")
                    return
                raise UsageError(f"{path}, line {number}: not a record of a run: {error}") from None
            self._traces.setdefault(_key(data["arguments"]), []).append(trace)

    def take(self, arguments: Mapping[str, Any]) -> Trace | None:
        """The trace of a run with these arguments, each once; None if there is none."""
        found = self._traces.get(_key(arguments))
        return found.pop(0) if found else None

    def add(self, arguments: Mapping[str, Any], trace: Trace) -> None:
        """Appends a run that has ended."""
        line = {"arguments": _plain(arguments), "trace": trace.to_json()}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _plain(arguments: Any) -> Any:
    return to_jsonable_python(arguments, fallback=repr)


def _key(arguments: Any) -> str:
    return json.dumps(_plain(arguments), sort_keys=True)
