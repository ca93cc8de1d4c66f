"""Commands are queued within a bound, and sent in order."""

from __future__ import annotations

import multiprocessing

from ramet.runtime.engine.process.messages import Abort
from ramet.runtime.engine.process.sender import CommandSender


def test_a_full_queue_refuses_what_is_bounded_and_loses_nothing() -> None:
    ours, theirs = multiprocessing.Pipe()
    sender = CommandSender(ours, max_bytes=2_000_000)
    accepted = 0
    while sender.send(Abort(f"{accepted:0100000}")):
        accepted += 1
    assert accepted * 100_000 >= 1_900_000
    assert sender.send(Abort("last"), bounded=False)
    for number in range(accepted):
        assert theirs.recv() == Abort(f"{number:0100000}")
    assert theirs.recv() == Abort("last")
    sender.stop()


def test_stopping_ends_a_write_that_the_other_side_has_left() -> None:
    ours, theirs = multiprocessing.Pipe()
    sender = CommandSender(ours)
    sender.send(Abort("x" * 10_000_000))
    theirs.close()
    sender.stop()
