"""The page's files need no key and can't be injected into; its data is the tenant's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ramet.runtime.testing.scripted_model import Script

ADMIN = {"authorization": "Bearer sk-ops"}
ANN = {"authorization": "Bearer sk-ann"}
BOB = {"authorization": "Bearer sk-bob"}


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    tenants = [
        {"name": "ann", "keys": ["sk-ann"]},
        {"name": "bob", "keys": ["sk-bob"]},
        {"name": "ops", "keys": ["sk-ops"], "admin": True},
    ]
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"tenants": tenants}))
    return path


@pytest.mark.parametrize("path", ["/ui/", "/docs", "/ui/page.js", "/ui/page.css"])
def test_files_need_no_key_and_allow_no_foreign_code(serve, keys: Path, path: str) -> None:
    answer = serve(api_keys_file=keys).http.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_modules_have_a_type_that_browsers_run(serve) -> None:
    server = serve()
    assert server.http.get("/ui/page.js").headers["content-type"].startswith("text/javascript")
    assert server.http.get("/ui/page.css").headers["content-type"].startswith("text/css")
    assert server.http.get("/ui/nothing.js").status_code == 404
    assert server.http.get("/ui/..%2froutes.py").status_code == 404


def test_the_page_is_small(serve) -> None:
    page = Path(__file__).parents[4] / "runtime/server/ui/assets"
    assert sum(each.stat().st_size for each in page.iterdir()) < 250_000


def test_a_browser_is_led_to_the_page_and_a_program_is_not(serve) -> None:
    http = serve().http
    answer = http.get("/", headers={"accept": "text/html,*/*"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, "/ui/")
    assert http.get("/", headers={"accept": "*/*"}).json()["ui"] == "/ui/"


@pytest.mark.parametrize("path", ["/ui/data/engine", "/ui/data/cache?once=true"])
def test_data_needs_a_key(serve, keys: Path, path: str) -> None:
    server = serve(api_keys_file=keys)
    assert server.http.get(path).status_code == 401
    assert server.http.get(path, headers=ADMIN).status_code == 200


def test_the_engine_is_for_admins(serve, keys: Path) -> None:
    assert serve(api_keys_file=keys).http.get("/ui/data/engine", headers=ANN).status_code == 403


def test_text_of_the_cache_is_shown_to_its_tenant_alone(serve, keys: Path) -> None:
    server = serve(Script(["x"]), Script(["x"]), api_keys_file=keys)
    for headers, prompt in ((ANN, "ann's own words"), (BOB, "a word of bob's")):
        body = {"prompt": prompt, "max_tokens": 1}
        assert server.http.post("/v1/completions", json=body, headers=headers).status_code == 200

    def seen(headers: dict[str, str]) -> set[tuple[str | None, str | None]]:
        nodes = server.http.get("/ui/data/cache?once=true", headers=headers).json()["nodes"]
        return {(each["tenant"], each["text"]) for each in nodes}

    assert seen(ANN) == {("ann", "ann's own words"), (None, None)}
    assert seen(ADMIN) == {("ann", None), ("bob", None)}


def test_the_tree_is_streamed_while_somebody_looks(serve) -> None:
    server = serve(Script(["x"]))
    with server.http.stream("GET", "/ui/data/cache") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        first = next(answer.iter_lines())
    assert json.loads(first.removeprefix("data: ")) == {"nodes": [], "left_out": 0}


def test_entries_say_where_tokens_came_from(serve) -> None:
    server = serve(Script(["4", "2"]))
    body = {
        "messages": [{"role": "user", "content": "x"}], "logprobs": True,
        "return_token_origins": True, "structured_outputs": {"regex": "4[12]!!"},
    }  # fmt: skip
    answer = server.http.post("/v1/chat/completions", json=body).json()
    entries = answer["choices"][0]["logprobs"]["content"]
    assert "".join(each["token"] for each in entries) == "42!!"
    assert [each["origin"] for each in entries if each["token"] == "!"] == ["forced", "forced"]
    assert [each["num_allowed"] for each in entries if each["origin"] == "sampled"][-1] == 2
    del body["return_token_origins"]
    answer = server.http.post("/v1/chat/completions", json=body).json()
    assert "origin" not in answer["choices"][0]["logprobs"]["content"][0]
