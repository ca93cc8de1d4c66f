"""API keys: who may call, how much, and that tenants see nothing of each other."""

from __future__ import annotations

import hashlib
import json

import pytest

from ramet.runtime.api.errors import InvalidParameterError, QueueFullError
from ramet.runtime.server.calls.api_keys import read_keys_file
from ramet.runtime.server.calls.tenants import Tenant, TenantEntry
from ramet.runtime.testing.scripted_model import Script

ENDLESS = Script(["word "], repeat=True)


@pytest.fixture
def keys_file(tmp_path):
    hashed = "sha256:" + hashlib.sha256(b"key-b").hexdigest()
    tenants = [
        {"name": "a", "keys": ["key-a", "key-a2"], "max_concurrent": 1},
        {"name": "b", "keys": [hashed], "tokens_per_minute": 30},
        {"name": "ops", "keys": ["key-ops"], "admin": True},
    ]
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"tenants": tenants}))
    return path


def as_(key):
    return {"authorization": f"Bearer {key}"}


def ask(server, key, **fields):
    body = {"prompt": "x", "max_tokens": 2, **fields}
    return server.http.post("/v1/completions", json=body, headers=as_(key))


@pytest.mark.parametrize("key", ["key-a", "key-a2", "key-b", "key-ops"])
def test_known_keys_may_call(serve, keys_file, key):
    server = serve(ENDLESS, api_keys_file=keys_file)
    assert ask(server, key).status_code == 200
    by_header = server.http.get("/v1/models", headers={"x-api-key": key})
    assert by_header.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer nope"},
        {"authorization": "key-a"},
        {"authorization": "Basic key-a"},
        {"x-api-key": ""},
        {"authorization": "Bearer sha256:" + hashlib.sha256(b"key-b").hexdigest()},
    ],
)
def test_other_keys_may_not(serve, keys_file, headers):
    server = serve(ENDLESS, api_keys_file=keys_file)
    for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/v1/abort"):
        answer = server.http.post(path, json={}, headers=headers)
        assert answer.status_code == 401, path
        assert answer.json()["error"]["type"] == "authentication_error"
    assert server.http.get("/v1/models", headers=headers).status_code == 401
    assert server.http.get("/health", headers=headers).status_code == 200


def test_metrics_are_for_admins(serve, keys_file):
    server = serve(ENDLESS, api_keys_file=keys_file)
    assert server.http.get("/metrics").status_code == 401
    assert server.http.get("/metrics", headers=as_("key-a")).status_code == 403
    assert server.http.get("/metrics", headers=as_("key-ops")).status_code == 200


def test_a_tenant_at_its_limit_waits_while_others_go_on(serve, keys_file, wait_until):
    server = serve(ENDLESS, api_keys_file=keys_file, model_options={"step_delay_s": 0.002})
    body = {"prompt": "x", "max_tokens": 4000, "stream": True}
    with server.http.stream("POST", "/v1/completions", json=body, headers=as_("key-a")) as answer:
        chunks = answer.iter_bytes()
        next(chunks)
        refused = ask(server, "key-a2")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert ask(server, "key-ops").status_code == 200
    wait_until(lambda: ask(server, "key-a").status_code == 200)


def test_a_tenant_pays_for_its_tokens(serve, keys_file):
    server = serve(ENDLESS, api_keys_file=keys_file)
    assert ask(server, "key-b", max_tokens=50).status_code == 200
    refused = ask(server, "key-b")
    assert refused.status_code == 429
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert int(refused.headers["retry-after"]) >= 20
    assert ask(server, "key-a", max_tokens=50).status_code == 200


def test_tenants_share_no_cached_prefixes(serve, keys_file):
    server = serve(ENDLESS, api_keys_file=keys_file)
    prompt = "a long prompt that fills several pages of the cache " * 4

    def cached(key):
        usage = ask(server, key, prompt=prompt).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert cached("key-a") == 0
    assert cached("key-ops") == 0
    assert cached("key-a2") > 0


def test_no_tenant_can_abort_anothers_call(serve, keys_file, wait_until):
    server = serve(ENDLESS, api_keys_file=keys_file, model_options={"step_delay_s": 0.002})
    body = {"prompt": "x", "max_tokens": 4000, "stream": True, "request_id": "one"}
    with server.http.stream("POST", "/v1/completions", json=body, headers=as_("key-a")) as answer:
        chunks = answer.iter_bytes()
        next(chunks)
        abort = {"json": {"request_id": "one"}}
        assert server.http.post("/v1/abort", **abort, headers=as_("key-ops")).status_code == 404
        assert server.num_live() == 1
        assert server.http.post("/v1/abort", **abort, headers=as_("key-a2")).status_code == 200
    wait_until(lambda: server.num_live() == 0)


def test_the_minutes_budget_refills():
    now = [0.0]
    entry = TenantEntry(name="t", keys=("k",), tokens_per_minute=60)
    tenant = Tenant(entry, clock=lambda: now[0])
    tenant.admit_call()
    tenant.charge_tokens(90)
    with pytest.raises(QueueFullError) as refused:
        tenant.admit_call()
    assert 29 < refused.value.retry_after_s < 31
    now[0] = refused.value.retry_after_s
    tenant.admit_call()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        '{"tenants": []}',
        '{"tenants": [{"name": "a"}]}',
        '{"tenants": [{"name": "a/b", "keys": ["k"]}]}',
    ],
)
def test_a_wrong_keys_file_is_refused(tmp_path, content):
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(InvalidParameterError, match=r"keys\.json"):
        read_keys_file(path)
    with pytest.raises(InvalidParameterError, match="can't be read"):
        read_keys_file(tmp_path / "absent.json")


def test_programs_of_one_name_are_each_tenants_own(serve, keys_file):
    server = serve(ENDLESS, api_keys_file=keys_file)
    seen = []
    submit = server.engine.submit

    def noting(request):
        seen.append(request.hint)
        return submit(request)

    server.engine.submit = noting
    hint = {"program_id": "p-1", "program": "p"}
    for key in ("key-a", "key-a2", "key-ops"):
        assert ask(server, key, ramet=hint).status_code == 200
    (first, same, other) = seen
    assert (first.program_id, first.program) == (same.program_id, same.program)
    assert first.program_id != other.program_id
    assert first.program != other.program
