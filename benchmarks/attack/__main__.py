"""Attacks a server of three tenants: bad clients, bombs, kills, stops, full disks, clock jumps.

    python benchmarks/attack --seconds 180 --seed 1 [--model smollm2]

All together, for ``--seconds``; in the last third no process is killed, so that memory can be
watched. What is played depends on the seed alone, though not at which moment of the server.

It fails unless every answer to an honest call is the one of before the attack, or one named error;
no hostile body is answered with a 500; no tenant can end another's call; the log has no unexpected
error; memory in the last ninth is at most ``--max-growth`` above that of the ninth before the
middle of the last third, if that lasts at least 30 seconds; and afterwards ``check()`` holds, every
request has ended once, nothing runs, all answers are the same, and the server ends with code 0.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from clock import set_clock
from server import Victim

from clients import Clients, Tally
from faults import Faults

_MIN_SAMPLES = 30
"""With fewer, what a process takes as it warms up after a restart counts as growth."""


async def attack(options: argparse.Namespace, victim: Victim) -> Tally:
    """The whole attack; its faults are in the tally."""
    tally = Tally()
    await victim.start()
    keeper = asyncio.create_task(victim.keep_running())
    clients = Clients(victim, tally)
    await clients.learn()
    seed, seconds = options.seed, options.seconds
    honest = [clients.be_honest(random.Random(f"{seed}/honest/{i}")) for i in range(options.honest)]
    bad = [clients.be_hostile(random.Random(f"{seed}/bad/{i}")) for i in range(options.hostile)]
    faults = Faults(victim, random.Random(f"{seed}/faults"), pause_s=options.pause)
    tasks = [asyncio.create_task(each) for each in (*honest, *bad, faults.run())]
    try:
        await _run_for(2 / 3 * seconds, tasks)
        faults.with_kills = False
        await asyncio.wait_for(victim.serves(), 300)
        samples = await _run_for(1 / 3 * seconds, tasks, victim)
    finally:
        clients.has_ended = True
        while [task for task in tasks if not task.done()]:
            for task in tasks:
                task.cancel()  # again, as a task may miss it
            await asyncio.wait(tasks, timeout=1)
    set_clock(victim.clock, 0.0)
    await _settle(victim, tally)
    await clients.compare_all()
    await clients.close()
    keeper.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await keeper
    if code := await victim.end():
        tally.fault(f"the server ended with exit code {code}")
    for line in victim.complaints:
        tally.fault(f"the log says {line}")
    third = len(samples) // 3
    before, after = (statistics.fmean(samples[i * third :][:third] or [1]) for i in (1, 2))
    tally.ends.update(faults.counts)
    growth = after / before - 1
    print(f"memory: {before / 2**20:.0f} MiB, then {after / 2**20:.0f} MiB ({growth:+.1%})")
    if growth > options.max_growth and len(samples) >= _MIN_SAMPLES:
        tally.fault(f"memory has grown by {growth:.1%}")
    return tally


async def _run_for(
    seconds: float, tasks: list[asyncio.Task[None]], victim: Victim | None = None
) -> list[int]:
    """Lets the tasks run, and raises what one of them raises; memory, sampled once a second."""
    samples = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, _ = await asyncio.wait(tasks, timeout=1, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
        if victim is not None:
            samples.append(victim.memory())
    return samples


async def _settle(victim: Victim, tally: Tally) -> None:
    """Waits until nothing runs any more."""
    left: object = None
    for _ in range(150):
        with contextlib.suppress(Exception):
            found = await victim.check()
            running = ("num_live", "num_calls", "num_held_pages", "unended")
            left = {name: found[name] for name in running if found[name]}
            if not left:
                return
        await asyncio.sleep(0.4)
    tally.fault(f"a minute after the attack there is still {left}")
    await victim.check()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--model", default="scripted", help="scripted, or a model's name")
    parser.add_argument("--honest", type=int, default=4, help="number of honest clients")
    parser.add_argument("--hostile", type=int, default=8, help="number of hostile clients")
    parser.add_argument("--pause", type=float, default=6.0, help="seconds between faults, at most")
    parser.add_argument("--max-growth", type=float, default=0.15)
    options = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # of bad clients' own connections
    with tempfile.TemporaryDirectory(prefix="ramet-attack-") as folder:
        victim = Victim(Path(folder), options.model)
        try:
            tally = asyncio.run(attack(options, victim))
        finally:
            if victim.process is not None and victim.process.returncode is None:
                victim.process.kill()
    for end, count in sorted(tally.ends.items()):
        print(f"{count:7} {end}")
    print(f"{victim.num_starts:7} starts of the server")
    for fault in tally.faults:
        print(f"FAULT {fault[:3000]}")
    print("held" if not tally.faults else f"{len(tally.faults)} faults")
    return bool(tally.faults)


if __name__ == "__main__":
    sys.exit(main())
