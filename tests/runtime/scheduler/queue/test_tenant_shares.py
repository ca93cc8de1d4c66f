"""Fair shares, whoever comes and goes."""

from __future__ import annotations

from ramet.runtime.scheduler.queue import policy
from ramet.runtime.scheduler.queue.policy import TenantShares


def test_tenants_that_come_once_are_not_kept_forever():
    shares = TenantShares({})
    shares.add_request("stays")
    for number in range(3 * policy._MAX_IDLE_TENANTS):
        shares.charge("stays", 5)
        shares.add_request(f"guest {number}")
        shares.charge(f"guest {number}", 10)
        shares.remove_request(f"guest {number}")
    assert len(shares._counters) <= policy._MAX_IDLE_TENANTS + 1


def test_who_has_had_the_most_is_not_forgotten(monkeypatch):
    monkeypatch.setattr(policy, "_MAX_IDLE_TENANTS", 8)
    shares = TenantShares({})
    shares.add_request("stays")
    shares.add_request("greedy")
    shares.charge("greedy", 1000)
    shares.remove_request("greedy")
    for number in range(100):
        shares.add_request(f"guest {number}")
        shares.charge(f"guest {number}", 10)
        shares.remove_request(f"guest {number}")
    shares.add_request("greedy")
    shares.add_request("new")
    assert shares.counter("greedy") == 1000
    assert shares.counter("new") == shares.counter("stays") == 0


def test_an_idle_tenant_saves_nothing_up():
    shares = TenantShares({"big": 2.0})
    for tenant in ("big", "small"):
        shares.add_request(tenant)
    shares.charge("big", 100)
    shares.charge("small", 100)
    assert (shares.counter("big"), shares.counter("small")) == (50, 100)
    shares.add_request("late")
    assert shares.counter("late") == 50
