"""API keys from options, the environment's too, and from files, which may change while it runs."""

from __future__ import annotations

import json
import logging
import os
import signal
from functools import partial

import httpx
import pytest

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.engine.process import EngineProcess
from ramet.runtime.server.access import Access
from ramet.runtime.server.calls.api_keys import read_tenants
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.testing.scripted_engine import scripted_engine
from ramet.runtime.testing.scripted_model import Script
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer
from ramet.runtime.testing.server import running_server


def engine_that_shows_weights(path):
    """Writes the weights that it is given into a file."""
    engine = scripted_engine()
    replace = engine.set_tenant_weights

    def show_and_replace(weights):
        replace(weights)
        path.with_suffix(".new").write_text(json.dumps(dict(weights)))
        path.with_suffix(".new").rename(path)

    engine.set_tenant_weights = show_and_replace
    return engine


ENDLESS = Script(["word "], repeat=True)

posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX permissions")


def status(server, key, path="/v1/models"):
    return server.http.get(path, headers={"authorization": f"Bearer {key}"}).status_code


def test_keys_of_options_and_of_a_file_belong_to_one_admin(serve, tmp_path):
    file = tmp_path / "keys"
    file.write_text("# in use\nsk-two\n\n  sk-three  \n")
    server = serve(["ok"], api_keys=("sk-one",), api_key_file=file)
    for key in ("sk-one", "sk-two", "sk-three"):
        assert status(server, key) == status(server, key, "/metrics") == 200
    for key in ("#", "# in use", "sk-four"):
        assert status(server, key) == 401


@pytest.mark.parametrize("key", ["", "two words", "käse", "a\nb"])
def test_a_key_that_can_not_be_sent_is_refused_without_being_shown(key):
    with pytest.raises(InvalidParameterError, match="printable ASCII") as caught:
        read_tenants(ServerConfig(api_keys=(key,)))
    assert not key or key not in str(caught.value)


def test_keys_are_not_in_the_configuration_s_representation():
    assert "sk-one" not in repr(ServerConfig(api_keys=("sk-one",)))


@pytest.mark.parametrize(
    ("content", "message"),
    [("# none\n", "has no API key"), ('{"tenants": []}', "--api-keys names a JSON file")],
)
def test_a_file_of_keys_has_one_on_each_line(tmp_path, content, message):
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(InvalidParameterError, match=message):
        read_tenants(ServerConfig(api_key_file=file))


@pytest.mark.parametrize(
    ("tenants", "message"),
    [
        ([{"name": "a", "keys": ["x"]}, {"name": "a", "keys": ["y"]}], "two tenants are named 'a'"),
        ([{"name": "a", "keys": ["x"]}, {"name": "b", "keys": ["x"]}], "a and b have a key"),
        ([{"name": "default", "keys": ["x"]}], "two tenants are named 'default'"),
    ],
)
def test_tenants_are_distinct(tmp_path, tenants, message):
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"tenants": tenants}))
    with pytest.raises(InvalidParameterError, match=message):
        read_tenants(ServerConfig(api_keys_file=file, api_keys=("z",)))


@posix
@pytest.mark.parametrize("option", ["api_key_file", "api_keys_file"])
def test_files_that_others_may_write_are_refused(tmp_path, option, caplog):
    file = tmp_path / "keys"
    keys = {
        "api_key_file": "sk-one",
        "api_keys_file": '{"tenants": [{"name": "a", "keys": ["k"]}]}',
    }
    file.write_text(keys[option])
    file.chmod(0o640)
    assert read_tenants(ServerConfig(**{option: file}))
    assert not caplog.records
    file.chmod(0o644)
    assert read_tenants(ServerConfig(**{option: file}))
    assert "other users may read the file of API keys" in caplog.text
    file.chmod(0o662)
    with pytest.raises(InvalidParameterError, match="others may write") as caught:
        read_tenants(ServerConfig(**{option: file}))
    assert caught.value.param == option


def test_a_file_is_read_through_links_as_secrets_are_mounted(tmp_path):
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "key").write_text("sk-one")
    (tmp_path / "data").symlink_to("v1")
    link = tmp_path / "key"
    link.symlink_to("data/key")
    (tenant,) = read_tenants(ServerConfig(api_key_file=link))
    assert tenant.keys == ("sk-one",)


def test_reloading_replaces_keys_and_limits_and_keeps_what_runs(serve, tmp_path, wait_until):
    file = tmp_path / "keys.json"

    def write(*tenants):
        file.write_text(json.dumps({"tenants": list(tenants)}))

    write({"name": "a", "keys": ["old"], "max_concurrent": 1}, {"name": "b", "keys": ["gone"]})
    server = serve(ENDLESS, api_keys_file=file, model_options={"step_delay_s": 0.005})
    url = f"{server.url}/v1/completions"
    body = {"prompt": "x", "stream": True, "max_tokens": 3000}
    key = {"authorization": "Bearer old"}
    with httpx.stream("POST", url, json=body, headers=key, timeout=60) as stream:
        pieces = stream.iter_bytes()
        next(pieces)
        write({"name": "a", "keys": ["new"], "max_concurrent": 2, "admin": True})
        server.http_server.handle_hangup(1, None)
        wait_until(lambda: status(server, "new") == 200)
        assert status(server, "old") == status(server, "gone") == 401
        assert status(server, "new", "/metrics") == 200
        for expected in (200, 200):  # the stream still counts, and there is room for one more
            more = server.http.post(
                "/v1/completions",
                json={"prompt": "y", "max_tokens": 1},
                headers={"authorization": "Bearer new"},
            )
            assert more.status_code == expected
        next(pieces)
    wait_until(lambda: server.num_live() == 0)


def test_reloaded_weights_reach_the_engine_and_the_one_that_replaces_it(tmp_path, wait_until):
    file = tmp_path / "keys.json"

    def write(weight):
        file.write_text(json.dumps({"tenants": [{"name": "a", "keys": ["k"], "weight": weight}]}))

    def weights():
        return json.loads(seen.read_text()) if seen.exists() else None

    seen = tmp_path / "weights"
    write(1.0)
    factory = partial(engine_that_shows_weights, seen)
    with (
        EngineProcess(factory, scripted_tokenizer(), model_name="m") as engine,
        running_server(engine, api_keys_file=file) as server,
    ):
        write(4.0)
        server.http_server.handle_hangup(1, None)
        wait_until(lambda: weights() == {"a": 4.0})
        seen.unlink()
        os.kill(engine.process_id, signal.SIGKILL)
        wait_until(lambda: weights() == {"a": 4.0})


def test_a_file_that_is_wrong_leaves_the_keys_as_they_were(tmp_path, caplog):
    file = tmp_path / "keys"
    file.write_text("sk-one")
    access = Access(ServerConfig(api_key_file=file))
    file.write_text("")
    with caplog.at_level(logging.INFO):
        access.reload()
    assert "the API keys stay as they were" in caplog.text
    assert access.tenants.find({"authorization": "Bearer sk-one"}).name == "default"
    file.write_text("sk-two")
    access.reload()
    assert access.tenants.find({"x-api-key": "sk-two"}).name == "default"
    assert "sk-" not in caplog.text


def test_limits_of_tenants_have_codes_of_their_own(serve, tmp_path, wait_until):
    file = tmp_path / "keys.json"
    tenants = [
        {"name": "a", "keys": ["a"], "max_concurrent": 1},
        {"name": "b", "keys": ["b"], "tokens_per_minute": 1},
    ]
    file.write_text(json.dumps({"tenants": tenants}))
    server = serve(ENDLESS, api_keys_file=file, model_options={"step_delay_s": 0.005})

    def refusal(key):
        body = {"prompt": "x", "max_tokens": 2}
        headers = {"authorization": f"Bearer {key}"}
        answer = server.http.post("/v1/completions", json=body, headers=headers)
        return answer.status_code, answer.json().get("error", {}).get("code")

    body = {"prompt": "x", "stream": True, "max_tokens": 3000}
    key = {"authorization": "Bearer a"}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, headers=key) as stream:
        next(stream.iter_bytes())
        assert refusal("a") == (429, "concurrency_limit_exceeded")
    wait_until(lambda: server.num_live() == 0)
    assert refusal("b") == (200, None)
    assert refusal("b") == (429, "rate_limit_exceeded")
