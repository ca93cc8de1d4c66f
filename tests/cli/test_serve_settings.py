"""The options of ``ramet serve`` from the command line, the environment and a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ramet.cli import app, serve
from ramet.cli.config_file import read_config_file
from ramet.cli.serve_settings import SERVE_SETTINGS as ServeSettings
from ramet.cli.serve_settings import options
from ramet.runtime.api.errors import ConfigurationError
from ramet.runtime.api.settings import Group, settings_of
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.server.config import ServerConfig

NAMES = [name for name, _ in options() if name != "config"]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ServeSettings]:
    """Runs ``ramet serve`` up to where it has its settings."""

    def read(*words: str, env: dict[str, str] | None = None) -> ServeSettings:
        found: list[ServeSettings] = []
        with monkeypatch.context() as patch:
            patch.setattr(serve, "run", found.append)
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            CliRunner().invoke(app, ["serve", *words], catch_exceptions=False)
        return found[0]

    return read


def values(name: str) -> tuple[Any, Any, Any]:
    """Three different values of an option."""
    field = ServeSettings.model_fields[name]
    kind = str(field.annotation)
    if "bool" in kind:
        return True, False, True
    if "float" in kind:
        return 1.5, 2.5, 3.5
    if "int" in kind:
        return 71, 72, 73
    if "tuple" in kind:
        return ("a",), ("b", "c"), ("d",)
    if "Path" in kind:
        return Path("a"), Path("b"), Path("c")
    return "a", "b", "c"


def as_words(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    each = value if isinstance(value, tuple) else (value,)
    return [word for one in each for word in (flag, str(one))]


def as_text(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def as_yaml(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=st.sampled_from(NAMES), sources=st.sets(st.sampled_from(["line", "env", "file"])))
def test_the_line_goes_before_the_environment_and_that_before_the_file(
    tmp_path: Path, read: Callable[..., ServeSettings], name: str, sources: set[str]
) -> None:
    by_source = dict(zip(("line", "env", "file"), values(name), strict=True))
    words: list[str] = []
    env: dict[str, str] = {}
    if "line" in sources:
        words += as_words(name, by_source["line"])
    if "env" in sources:
        env[f"RAMET_{name.upper()}"] = as_text(by_source["env"])
    if "file" in sources:
        path = tmp_path / "serve.yaml"
        path.write_text(yaml.safe_dump({name.replace("_", "-"): as_yaml(by_source["file"])}))
        words += ["--config", str(path)]
    wanted = next((by_source[each] for each in ("line", "env", "file") if each in sources), None)
    found = read(*words, env=env)
    if wanted is None:
        wanted = ServeSettings.model_fields[name].default
    assert getattr(found, name) == wanted
    rest = found.model_dump(exclude={name, "config"})
    assert rest == ServeSettings().model_dump(exclude={name, "config"})


def test_the_environment_may_name_the_file(
    tmp_path: Path, read: Callable[..., ServeSettings]
) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text("port: 81\nserved_model_name: one\n")
    found = read(env={"RAMET_CONFIG": str(path), "RAMET_HOST": ""})
    assert (found.port, found.served_model_name, found.host) == (81, ("one",), "127.0.0.1")


def test_every_setting_with_a_group_is_an_option() -> None:
    declared = {
        (config, name)
        for config in (EngineConfig, ServerConfig)
        for name, (setting, _, _) in settings_of(config).items()
        if setting.group is not None
    }
    targets = [(option.config, option.field) for _, option in options() if option.config]
    assert set(targets) == declared
    assert len(set(targets)) == len(targets)


def test_an_option_s_default_is_its_field_s() -> None:
    for name, option in options():
        if option.config is not None:
            default = ServeSettings.model_fields[name].default
            field = settings_of(option.config)[option.field][2]
            assert (default if default is None else default * option.setting.unit) == field


def test_sizes_are_counted_in_bytes_inside() -> None:
    found = ServeSettings(cache_mib=3, max_body_mib=2, model="m.gguf")
    assert found.engine_options() == {"cache_bytes": 3 << 20}
    config = ServerConfig(**found.server_options())
    assert config.max_body_bytes == 2 << 20
    assert config.served_model_names == ("m.gguf",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max-num-seq: 3", "unknown option 'max-num-seq'; did you mean max_num_seqs?"),
        ("zzz: 3", "unknown option 'zzz'"),
        ("config: other.yaml", "unknown option 'config'"),
        ("port: 1\nport: 2", "duplicate option 'port'"),
        ("max-waiting: 1\nmax_waiting: 2", "duplicate option 'max_waiting'"),
        ("- port", "is not a mapping"),
        ("port: [", "is not YAML"),
        ("[a]: 1", "is not YAML"),
        ("? [a]\n: 1", "is not YAML"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        read_config_file(path, frozenset(NAMES))
    assert message in raised.value.message
    assert str(path) in raised.value.message


def test_a_file_that_is_not_there_is_named(read: Callable[..., ServeSettings]) -> None:
    with pytest.raises(ConfigurationError, match=r"/no/such\.yaml can't be read: No such file"):
        read("--config", "/no/such.yaml")


@pytest.mark.parametrize("text", ["", "# nothing\n", "port: null\n"])
def test_a_file_may_say_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(text)
    assert read_config_file(path, frozenset(NAMES)) == {}


def test_a_wrong_value_is_reported_where_it_is(
    tmp_path: Path, read: Callable[..., ServeSettings]
) -> None:
    with pytest.raises(ConfigurationError, match=r"RAMET_PORT: .*integer"):
        read(env={"RAMET_PORT": "tcp://10.0.0.1:8000"})
    path = tmp_path / "serve.yaml"
    path.write_text("grace: soon\n")
    with pytest.raises(ConfigurationError, match=r"serve\.yaml: grace: .*number"):
        read("--config", str(path))
    assert read("--config", str(path), "--grace", "2").grace == 2


def test_an_empty_name_is_refused() -> None:
    for words in (
        ["--served-model-name", ""],
        ["--served-model-name", "a", "--served-model-name="],
    ):
        ended = CliRunner().invoke(app, ["serve", *words])
        assert ended.exit_code == 2
        assert "--served-model-name" in ended.output


def test_help_fits_a_screen_and_keeps_the_advanced_groups_apart() -> None:
    screen = {"COLUMNS": "100", "LINES": "40"}
    short = CliRunner().invoke(app, ["serve", "--help"], env=screen).output
    whole = CliRunner().invoke(app, ["serve", "--help-all"], env=screen).output
    assert len(short.splitlines()) <= 40
    for name, option in options():
        flag = "--" + name.replace("_", "-") + " "
        assert flag in whole
        assert (flag in short) == (not option.setting.group.is_advanced)
    for panel in (Group.ENGINE, Group.LIMITS):
        assert panel in whole
        assert panel not in short


@pytest.mark.parametrize(
    "name", ["port", "cache_mib", "grace", "max_draft_len", "served_model_name"]
)
def test_a_yes_is_no_number(tmp_path: Path, name: str) -> None:
    file = tmp_path / "ramet.yaml"
    file.write_text(f"{name}: yes\n")
    result = CliRunner().invoke(app, ["serve", "--config", str(file)])
    assert isinstance(result.exception, ConfigurationError), result.exception
    assert f"{name}: Input should not be yes or no" in str(result.exception)


@pytest.mark.parametrize(
    "words", [("--host", ""), ("--cache-mib", "9" * 20), ("--max-draft-len", "9" * 20)]
)
def test_a_value_beyond_reason_is_reported_by_its_option(words: tuple[str, str]) -> None:
    result = CliRunner().invoke(app, ["serve", *words])
    assert result.exit_code == 2
    assert words[0] in result.output
