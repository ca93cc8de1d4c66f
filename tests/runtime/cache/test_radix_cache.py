"""The prefix cache: its laws against a naive model, and its eviction order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ramet.runtime.api.errors import InvariantError
from ramet.runtime.cache import PagePool, PrefixHandle, RadixCache, eviction
from ramet.runtime.cache.node import common_len, token_key

PAGE = 4
tokens = st.lists(st.integers(0, 2), min_size=1, max_size=14)
namespaces = st.sampled_from(["", "a"])


def fill(cache: RadixCache, token_ids: list[int], namespace: str = "") -> PrefixHandle:
    """Caches a sequence as one that has just ended would."""
    pages = cache.allocate(-(-len(token_ids) // cache.page_size))
    assert pages is not None
    return cache.insert(token_ids, pages, namespace)[0]


class CacheMachine(RuleBasedStateMachine):
    """Any order of calls; ``contents`` says which tokens each page has, as its writer knows."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(12, PAGE)
        self.cache = RadixCache(self.pool)
        self.contents: dict[int, list[int]] = {}
        self.held: list[tuple[PrefixHandle, list[int]]] = []

    @rule(token_ids=tokens, namespace=namespaces)
    def insert(self, token_ids: list[int], namespace: str) -> None:
        pages = self.cache.allocate(-(-len(token_ids) // PAGE))
        if pages is None:
            return
        for index, page in enumerate(pages):
            self.contents[page] = token_ids[index * PAGE : (index + 1) * PAGE]
        handle, kept = self.cache.insert(token_ids, pages, namespace)
        assert handle.matched_len == len(token_ids)
        for index, page in enumerate(kept):
            part = token_ids[index * PAGE : (index + 1) * PAGE]
            assert self.contents[page][: len(part)] == part
        found = self.cache.match(token_ids, namespace)
        assert found.matched_len == len(token_ids)

    @rule(token_ids=tokens, namespace=namespaces)
    def match_and_hold(self, token_ids: list[int], namespace: str) -> None:
        handle = self.cache.match(token_ids, namespace)
        self.cache.hold(handle)
        pages = self.cache.use(handle)
        self.held.append((handle, token_ids[: handle.matched_len]))
        read = [token for page in pages for token in self.contents[page]]
        assert read[: handle.matched_len] == token_ids[: handle.matched_len]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), more=tokens)
    def extend_held(self, data: st.DataObject, more: list[int]) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        handle, known = self.held[index]
        if handle.matched_len % PAGE:
            return
        pages = self.cache.allocate(-(-len(more) // PAGE))
        if pages is None:
            return
        for i, page in enumerate(pages):
            self.contents[page] = more[i * PAGE : (i + 1) * PAGE]
        longer, _ = self.cache.insert(more, pages, "", after=handle)
        self.cache.hold(longer)
        self.cache.release(handle)
        self.held[index] = longer, known + more

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        handle, _ = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.cache.release(handle)

    @rule(count=st.integers(1, 12))
    def evict(self, count: int) -> None:
        evictable = self.cache.num_cached - self.cache.num_locked
        assert self.cache.evict(count) == min(count, evictable)

    @rule(token_ids=tokens, uses=st.integers(1, 3), steps=st.integers(0, 9))
    def expect(self, token_ids: list[int], uses: int, steps: int) -> None:
        self.cache.expect(self.cache.match(token_ids), uses, steps)

    @rule(token_ids=tokens, keep=st.integers(0, 8))
    def forget(self, token_ids: list[int], keep: int) -> None:
        self.cache.forget(self.cache.match(token_ids), keep)

    @invariant()
    def consistent(self) -> None:
        self.cache.check()

    @invariant()
    def held_pages_have_their_tokens(self) -> None:
        for handle, known in self.held:
            node, pages = handle.node, []
            while node.parent is not None:
                pages.append(node.page)
                node = node.parent
            read = [token for page in reversed(pages) for token in self.contents[page]]
            assert read[: len(known)] == known

    def teardown(self) -> None:
        for handle, _ in self.held:
            self.cache.release(handle)
        self.cache.clear()
        self.cache.check()
        assert self.pool.num_free == self.pool.num_pages


CacheMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestCacheMachine = CacheMachine.TestCase


def test_match_is_exact_to_the_token_and_apart_by_namespace():
    cache = RadixCache(PagePool(16, PAGE))
    fill(cache, [1, 2, 3, 4, 5, 6, 7])
    assert cache.match([1, 2, 3, 4, 5, 6, 9]).matched_len == 6
    assert cache.match([1, 2, 9]).matched_len == 2
    assert cache.match([1, 2, 3, 4, 5, 6, 7], "other").matched_len == 0


def test_a_longer_page_takes_the_place_of_its_head():
    cache = RadixCache(PagePool(16, PAGE))
    fill(cache, [1, 2])
    fill(cache, [1, 2, 3, 4, 5])
    assert cache.num_cached == 2
    fill(cache, [1, 2, 3])
    assert cache.num_cached == 2


def test_allocate_refuses_without_evicting_what_would_not_suffice():
    cache = RadixCache(PagePool(4, PAGE))
    held = fill(cache, [1] * 12)
    cache.hold(held)
    assert cache.allocate(2) is None
    assert cache.num_cached == 3
    assert cache.allocate(1) is not None


def test_least_recently_used_goes_first_when_nothing_is_known():
    cache = RadixCache(PagePool(3, PAGE))
    for token in (1, 2, 3):
        fill(cache, [token] * PAGE)
    used = cache.match([1] * PAGE)
    cache.hold(used)
    cache.use(used)
    cache.release(used)
    cache.evict(1)
    assert [cache.match([t] * PAGE).matched_len for t in (1, 2, 3)] == [PAGE, 0, PAGE]


def test_farthest_known_use_goes_before_a_near_one_and_the_forgotten_first():
    cache = RadixCache(PagePool(4, PAGE))
    handles = {token: fill(cache, [token] * PAGE) for token in (1, 2, 3)}
    cache.expect(handles[1], 1, 2)
    cache.expect(handles[2], 1, 50)
    cache.forget(handles[3])

    def cached() -> list[int]:
        return [t for t in (1, 2, 3) if cache.match([t] * PAGE).matched_len]

    cache.evict(1)
    assert cached() == [1, 2]
    cache.evict(1)
    assert cached() == [1]


def test_forgetting_spares_what_others_have_extended():
    cache = RadixCache(PagePool(8, PAGE))
    shared = [7] * PAGE
    mine = fill(cache, [*shared, 1, 1, 1, 1])
    fill(cache, [*shared, 2, 2, 2, 2])
    cache.forget(mine)
    cache.evict(1)
    assert cache.match([*shared, 1]).matched_len == PAGE
    assert cache.match([*shared, 2, 2, 2, 2]).matched_len == 2 * PAGE


def test_a_second_free_and_a_stale_hold_are_said_to_be_bugs():
    pool = PagePool(2, PAGE)
    pages = pool.allocate(1)
    pool.free(pages)
    with pytest.raises(InvariantError, match="twice"):
        pool.free(pages)
    cache = RadixCache(PagePool(2, PAGE))
    handle = fill(cache, [1] * PAGE)
    cache.clear()
    with pytest.raises(InvariantError, match="evicted"):
        cache.hold(handle)


def test_keys_sort_and_compare_by_token():
    assert token_key([1, 300]) < token_key([2, 0]) < token_key([256, 1])
    assert common_len(token_key([1, 2, 3]), token_key([1, 2, 259])) == 2
    assert common_len(token_key(np.array([5, 6])), token_key([5, 6, 7])) == 2


@pytest.mark.parametrize("num_nodes", [2_000, 16_000])
def test_an_eviction_looks_at_few_nodes_however_many_there_are(num_nodes, monkeypatch):
    cache = RadixCache(PagePool(num_nodes, PAGE))
    for number in range(num_nodes // 4):
        path = [number, number, number, number] + [number % 7] * 12
        handle = fill(cache, path)
        if number % 3 == 0:
            cache.expect(handle, 1, 10 * num_nodes + number)
        elif number % 5 == 0:
            cache.forget(handle)
    looks = 0
    is_current = eviction._is_current

    def counted(entry):
        nonlocal looks
        looks += 1
        return is_current(entry)

    monkeypatch.setattr(eviction, "_is_current", counted)
    num_evicted = num_nodes // 4
    assert cache.evict(num_evicted) == num_evicted
    assert looks < 16 * num_evicted


def test_pages_that_are_never_used_again_go_before_those_that_are():
    cache = RadixCache(PagePool(8, PAGE))
    popular = [[token] * PAGE for token in range(3)]
    strangers = iter(range(100, 1000))

    def ask(tokens: list[int]) -> bool:
        handle = cache.match(tokens)
        cache.hold(handle)
        cache.use(handle)
        if not handle.matched_len:
            fill(cache, tokens)
        cache.release(handle)
        return handle.matched_len > 0

    for _ in range(50):
        for tokens in popular:
            ask(tokens)
        for _ in range(4):
            ask([next(strangers)] * PAGE)
    for _ in range(12):  # more than the pool has pages
        ask([next(strangers)] * PAGE)
    assert all(ask(tokens) for tokens in popular)
