"""Tool schemas of MCP servers and request bodies of public OpenAPI documents, as a grammar bench.

    python benchmarks/grammars/tool_schemas.py collect --folder DIR  # install, start, list
    python benchmarks/grammars/tool_schemas.py rows --folder DIR     # 300 schemas, their instances

``tool_schemas.json`` lists the packages with version and licence. ``collect`` installs them without
their install scripts, starts each MCP server in a network namespace that has no network, with
made-up credentials, and reads its ``tools/list``; no schema is kept in this repository. ``rows``
writes ``rows.jsonl.gz`` and ``sample.json`` in the format of the grammar bench (see grammars.md):

    SCHEMAS=DIR/rows.jsonl.gz python bench_grammars.py run --sample DIR/sample.json --engine ...

Instances come from a seeded generator (``tool_instances.py``) and are judged by ``jsonschema``'s
validator of the schema's draft, or by ``openapi-schema-validator``'s for OpenAPI 3.0, with formats.
Needs ``pip install jsonschema[format] openapi-schema-validator``, npm, node and ``unshare``.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import random
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tool_instances import instances

SOURCES = Path(__file__).with_suffix(".json")
NUM_SCHEMAS = {"mcp": 200, "openapi": 100}
MAX_SCHEMA_LEN = 60_000
START_S = 25.0


def folder_of(folder: Path, source: dict[str, Any]) -> Path:
    return folder / "packages" / source["package"].replace("/", "+").replace("@", "")


def install(folder: Path, source: dict[str, Any]) -> Path:
    """The folder of an installed package."""
    place = folder_of(folder, source)
    if not (place / "node_modules").is_dir():
        place.mkdir(parents=True, exist_ok=True)
        (place / "package.json").write_text('{"private": true}')
        subprocess.run(
            [
                *("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"),
                f"{source['package']}@{source['version']}",
            ],
            cwd=place,
            check=True,
            timeout=600,
        )
    return place / "node_modules" / source["package"]


# -- MCP ------------------------------------------------------------------------------------------


class Server:
    """An MCP server over standard input and output, without a network."""

    def __init__(self, package: Path, source: dict[str, Any]) -> None:
        manifest = json.loads((package / "package.json").read_text())
        binaries = manifest["bin"]
        path = binaries if isinstance(binaries, str) else next(iter(binaries.values()))
        self._process = subprocess.Popen(
            ["unshare", "-n", "node", str(package / path), *source.get("arguments", ())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=package.parent,
            env={**os.environ, **source["environment"]},
        )
        self._end = time.monotonic() + START_S
        self._buffer = b""

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()

    def ask(self, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of one request."""
        self.send({"id": number, "method": method, "params": params})
        for message in self._messages():
            if message.get("id") == number and ("result" in message or "error" in message):
                return message.get("result") or {}
        raise TimeoutError(f"no answer to {method}")

    def _messages(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout
        while True:
            while b"\n" in self._buffer:
                line, self._buffer = self._buffer.split(b"\n", 1)
                if line.lstrip().startswith(b"{"):
                    yield json.loads(line)
            left = self._end - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                return
            piece = os.read(self._process.stdout.fileno(), 1 << 16)
            if not piece:
                return
            self._buffer += piece

    def tools(self) -> list[dict[str, Any]]:
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "schemas", "version": "1"},
        }
        self.ask(1, "initialize", hello)
        self.send({"method": "notifications/initialized"})
        found: list[dict[str, Any]] = []
        cursor: dict[str, Any] = {}
        for number in range(2, 50):
            page = self.ask(number, "tools/list", cursor)
            found += page.get("tools", [])
            if not page.get("nextCursor"):
                break
            cursor = {"cursor": page["nextCursor"]}
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def tool_schemas(package: Path, source: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    server = Server(package, source)
    try:
        tools = server.tools()
    finally:
        server.close()
    return [(tool["name"], tool["inputSchema"]) for tool in tools]


# -- OpenAPI --------------------------------------------------------------------------------------


def body_schemas(package: Path, source: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The JSON request bodies of a document's operations, with the components that they need."""
    found = []
    for path in source["documents"]:
        text = (package / path).read_text("utf-8-sig")
        if path.endswith((".yaml", ".yml")):
            import yaml

            document = yaml.load(text, Loader=yaml.CSafeLoader)
        else:
            document = json.loads(text)
        for route, operations in document.get("paths", {}).items():
            for method, operation in operations.items():
                if not isinstance(operation, dict):
                    continue
                body = _resolved(document, operation.get("requestBody", {}))
                media = body.get("content", {}).get("application/json", {})
                if isinstance(media.get("schema"), dict):
                    schema = _with_components(document, media["schema"])
                    schema["$schema"] = _dialect(document)
                    found.append((f"{method} {route}", schema))
    return found


def _dialect(document: dict[str, Any]) -> str:
    version = "3.1" if str(document["openapi"]).startswith("3.1") else "3.0"
    return f"https://spec.openapis.org/oas/{version}/dialect/base"


def _resolved(document: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in value:
        target: Any = document
        for step in value["$ref"].removeprefix("#/").split("/"):
            target = target[step.replace("~1", "/").replace("~0", "~")]
        value = target
    return value


def _with_components(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    needed: dict[str, Any] = {}
    pending = [schema]
    while pending:
        for reference in _references(pending.pop()):
            name = reference.removeprefix("#/components/schemas/")
            if name != reference and "/" not in name and name not in needed:
                needed[name] = document["components"]["schemas"][name]
                pending.append(needed[name])
    return {**schema, "components": {"schemas": needed}} if needed else dict(schema)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        mapping = value.get("mapping")
        if isinstance(mapping, dict):
            yield from (v for v in mapping.values() if isinstance(v, str))
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


# -- the bench's rows -----------------------------------------------------------------------------


def collect(folder: Path) -> None:
    """Write ``schemas.jsonl``: every distinct schema of every package that can be had."""
    lines = []
    seen = set()
    listed = json.loads(SOURCES.read_text())
    for source in listed["sources"]:
        source["environment"] = listed["environment"]
        try:
            package = install(folder, source)
            read = body_schemas if "documents" in source else tool_schemas
            found = read(package, source)
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            print(f"{source['package']}: {type(error).__name__}: {error}")
            continue
        kept = 0
        for name, schema in found:
            text = json.dumps(schema, sort_keys=True)
            if text not in seen and len(text) <= MAX_SCHEMA_LEN:
                seen.add(text)
                kept += 1
                row = {"id": f"{source['package']} {name}", "schema": schema}
                lines.append(json.dumps({**row, "split": source["kind"]}))
        print(f"{source['package']}: {kept} of {len(found)}")
    (folder / "schemas.jsonl").write_text("\n".join(lines) + "\n")


def sampled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each kind as many as wanted: one of each package in turn, drawn by chance."""
    rng = random.Random(0)
    found: list[dict[str, Any]] = []
    for kind, wanted in NUM_SCHEMAS.items():
        by_package: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            if row["split"] == kind:
                by_package.setdefault(row["id"].split(" ")[0], []).append(row)
        for group in by_package.values():
            rng.shuffle(group)
        turns = itertools.chain.from_iterable(itertools.zip_longest(*by_package.values()))
        found += itertools.islice((row for row in turns if row is not None), wanted)
    return found


def write_rows(folder: Path) -> None:
    """Write ``rows.jsonl.gz`` and ``sample.json``."""
    lines = (folder / "schemas.jsonl").read_text().splitlines()
    kept = []
    for row in sampled(list(map(json.loads, lines))):
        tests = instances(row["schema"], seed=row["id"])
        if not any(test["valid"] for test in tests):
            print(f"no valid instance: {row['id']}")
        kept.append({"id": row["id"], **row, "tests": tests})
    with gzip.open(folder / "rows.jsonl.gz", "wt") as out:
        # The bench reads the id before it parses a line.
        out.writelines(json.dumps(row) + "\n" for row in kept)
    (folder / "sample.json").write_text(json.dumps([row["id"] for row in kept]))
    count = [sum(t["valid"] is v for row in kept for t in row["tests"]) for v in (True, False)]
    print(f"{len(kept)} schemas, {count[0]} valid and {count[1]} invalid instances")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("collect", "rows"))
    parser.add_argument("--folder", type=Path, required=True)
    args = parser.parse_args()
    if args.step == "collect":
        collect(args.folder)
    else:
        write_rows(args.folder)


if __name__ == "__main__":
    main()
