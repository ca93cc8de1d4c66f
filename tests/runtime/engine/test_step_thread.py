"""The step thread rests only while there is nothing to do, and leaves its rest for a command."""

from __future__ import annotations

import threading

from ramet.runtime.engine.step_thread import StepThread


def test_rest_comes_after_the_last_step_and_ends_for_commands():
    events: list[str] = []
    steps_left, rests_left = 3, 5
    rested = threading.Event()

    def step() -> bool:
        nonlocal steps_left
        if steps_left == 0:
            return False
        steps_left -= 1
        events.append("step")
        return True

    def rest() -> bool:
        nonlocal rests_left
        if rests_left == 0:
            rested.set()
            return False
        rests_left -= 1
        events.append("rest")
        if rests_left == 2:
            thread.post(lambda: events.append("command"))
        return True

    thread = StepThread(step, rest, lambda: None, lambda fault: events.append(repr(fault)))
    thread.start()
    assert rested.wait(10)
    thread.stop()
    assert events == ["step"] * 3 + ["rest"] * 3 + ["command"] + ["rest"] * 2 + ["None"]
