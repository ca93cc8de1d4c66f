"""Pages that are made from the code when the site is built: commands, settings, HTTP, errors."""

from __future__ import annotations

import inspect
import io
from collections.abc import Iterator
from contextlib import redirect_stdout

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages."""
    pages = {
        "reference/cli.md": commands,
        "reference/settings.md": settings,
        "reference/http.md": http,
        "reference/errors.md": errors,
        "reference/metrics.md": metrics,
    }
    for path, lines in pages.items():
        files.append(File.generated(config, path, content="\n".join(lines()) + "\n"))
    return files


def commands() -> Iterator[str]:
    """Every command's help, as the terminal shows it."""
    import typer
    from typer.main import get_command

    from ramet.cli.root import app

    yield "# Command line\n"
    root = get_command(app)

    def walk(command: typer.core.TyperGroup, words: tuple[str, ...]) -> Iterator[str]:
        text = io.StringIO()
        with redirect_stdout(text):
            context = typer.Context(command, info_name=" ".join(words))
            print(command.get_usage(context))
            print()
            print(inspect.cleandoc(command.help or ""))
        yield f"## `{' '.join(words)}`\n\n```text\n{text.getvalue().rstrip()}\n```\n"
        options = [each for each in command.params if getattr(each, "help", None)]
        if options:
            yield "| option | meaning |\n|---|---|"
            for each in options:
                yield f"| `{', '.join(each.opts)}` | {_cell(each.help)} |"
            yield ""
        for name, child in getattr(command, "commands", {}).items():
            yield from walk(child, (*words, name))

    yield from walk(root, ("ramet",))


def settings() -> Iterator[str]:
    """The options of ``ramet serve``, with their environment variables and defaults."""
    from ramet.cli.serve_settings import ENV_PREFIX, SERVE_SETTINGS, options

    yield "# Settings of the server\n"
    yield (
        "Each is an option of `ramet serve`, a variable of the environment and a key of the file "
        "that `--config` names; the first of them wins.\n"
    )
    group = None
    for name, option in options():
        if option.setting.group != group:
            group = option.setting.group
            yield f"\n## {group}\n\n| option | variable | default | meaning |\n|---|---|---|---|"
        default = SERVE_SETTINGS.model_fields[name].default
        shown = "" if default in (None, ()) else f"`{default}`"
        flag = "--" + name.replace("_", "-")
        variable = ENV_PREFIX + name.upper()
        yield f"| `{flag}` | `{variable}` | {shown} | {_cell(option.setting.help)} |"


def http() -> Iterator[str]:
    """The paths of the OpenAPI document."""
    from ramet.lang.serving import PROGRAMS
    from ramet.runtime.server.app import create_app
    from ramet.runtime.testing.scripted_engine import scripted_engine

    with scripted_engine() as engine:
        document = create_app(engine, extensions=(PROGRAMS,)).openapi()
    yield "# HTTP\n"
    yield "A server's `/docs` shows the fields of each body, from its `/openapi.json`.\n"
    yield "| method | path | what it does |\n|---|---|---|"
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            words = route.get("description") or route.get("summary") or ""
            yield f"| {method.upper()} | `{path}` | {_cell(words)} |"


def errors() -> Iterator[str]:
    """The errors of the server and the language, with what they mean."""
    from ramet.lang.base import errors as of_programs
    from ramet.runtime.api import errors as of_requests

    yield "# Errors\n"
    for title, module in (("Requests and engines", of_requests), ("Programs", of_programs)):
        yield f"\n## {title}\n\n| error | status | code | meaning |\n|---|---|---|---|"
        for name, kind in vars(module).items():
            if (
                inspect.isclass(kind)
                and issubclass(kind, Exception)
                and kind.__module__ == module.__name__
            ):
                status, code = getattr(kind, "status", ""), getattr(kind, "code", "") or ""
                shown = f"`{code}`" if isinstance(code, str) and code else ""
                yield f"| `{name}` | {status} | {shown} | {_cell(inspect.getdoc(kind) or '')} |"


def metrics() -> Iterator[str]:
    """The series of ``/metrics``."""
    from ramet.runtime.server.observability.metrics import ServerMetrics
    from ramet.runtime.testing.scripted_engine import scripted_engine

    with scripted_engine() as engine:
        text = ServerMetrics("m").render(engine.stats()).decode()
    yield "# Metrics\n"
    yield "In Prometheus' text format, from `/metrics`.\n"
    yield "| series | kind | meaning |\n|---|---|---|"
    kinds = {}
    helps = {}
    for line in text.splitlines():
        _, _, rest = line.partition(" ")[2].partition(" ")
        name, _, value = rest.partition(" ")
        if line.startswith("# HELP"):
            helps[name] = value
        elif line.startswith("# TYPE"):
            kinds[name] = value
    for name, value in helps.items():
        yield f"| `{name}` | {kinds.get(name, '')} | {_cell(value)} |"


def _cell(text: str) -> str:
    """The first paragraph of a text, in one line of a table."""
    first = inspect.cleandoc(text).split("\n\n")[0]
    return " ".join(first.split()).replace("``", "`").replace("|", "\\|")
