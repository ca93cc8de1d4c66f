"""A view shows all that the cache holds, once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.cache import NodeView, PagePool, RadixCache
from ramet.runtime.cache.view import HEAD_LEN, view_of

PAGE = 4
prompts = st.lists(
    st.tuples(st.sampled_from(["", "a"]), st.lists(st.integers(0, 2), min_size=1, max_size=30)),
    max_size=12,
)


def filled(contents: list[tuple[str, list[int]]]) -> RadixCache:
    cache = RadixCache(PagePool(200, PAGE))
    for namespace, token_ids in contents:
        pages = cache.allocate(-(-len(token_ids) // PAGE))
        assert pages is not None
        cache.insert(token_ids, pages, namespace)
    return cache


def texts(nodes: tuple[NodeView, ...]) -> dict[str, set[tuple[int, ...]]]:
    """The tokens of all leaves with what is above them, by namespace."""
    known = {each.id: each for each in nodes}
    parents = {each.parent for each in nodes}
    found: dict[str, set[tuple[int, ...]]] = {}
    for node in nodes:
        if node.id in parents:
            continue
        prompt, place = node.head, node.parent
        while place is not None:
            prompt, place = known[place].head + prompt, known[place].parent
        found.setdefault(node.namespace, set()).add(prompt)
    return found


@given(prompts)
def test_every_cached_prefix_is_shown_once(contents) -> None:
    cache = filled(contents)
    view = cache.view()
    assert sum(each.num_pages for each in view.nodes) == cache.num_cached
    assert view.num_left_out == 0
    shown = texts(view.nodes)
    for namespace, token_ids in contents:
        assert any(each[: len(token_ids)] == tuple(token_ids) for each in shown[namespace])
    cache.check()


@given(prompts, st.integers(0, 6))
def test_a_smaller_view_keeps_parents(contents, count: int) -> None:
    cache = filled(contents)
    view = view_of(cache._roots.values(), cache._clock, count)
    ids = {each.id for each in view.nodes}
    assert {each.parent for each in view.nodes} <= ids | {None}
    assert len(view.nodes) + view.num_left_out == len(cache.view().nodes)


def test_held_prefixes_and_expected_uses_are_marked() -> None:
    cache = filled([("", [1, 2, 3, 4, 5, 6, 7, 8]), ("", [1, 2, 3, 4, 9, 9, 9, 9])])
    handle = cache.match([1, 2, 3, 4, 5, 6, 7, 8])
    cache.hold(handle)
    cache.use(handle)
    cache.expect(handle, uses=1, steps=3)
    held = {each.head: (each.is_held, each.age, each.next_use) for each in cache.view().nodes}
    assert held == {
        (1, 2, 3, 4): (True, 0, None),
        (5, 6, 7, 8): (True, 0, 3.0),
        (9, 9, 9, 9): (False, 1, None),
    }
    cache.release(handle)


def test_a_long_run_shows_its_beginning() -> None:
    cache = filled([("", list(range(200)))])
    (node,) = cache.view().nodes
    assert (node.num_tokens, node.num_pages, node.head) == (200, 50, tuple(range(HEAD_LEN)))
