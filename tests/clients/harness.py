"""Runs a client's jobs in the client's own environment: ``harness.py JOBS URL``.

Knows nothing but the standard library. A job is a function of the jobs file whose name begins
with ``job_``; it takes the server's URL, and fails by raising. Exits with 1 if a job has failed.
"""

from __future__ import annotations

import asyncio
import inspect
import runpy
import sys
import time
import traceback


def main(path: str, url: str) -> int:
    """Runs every job, says how each went, and returns the exit code."""
    try:
        names = runpy.run_path(path)
    except Exception:
        traceback.print_exc()
        print("  FAIL  the jobs can't be loaded")
        return 1
    jobs = {name: each for name, each in names.items() if name.startswith("job_")}
    num_failed = 0 if jobs else 1
    for name, job in jobs.items():
        started = time.monotonic()
        try:
            if inspect.iscoroutinefunction(job):
                asyncio.run(job(url))
            else:
                job(url)
            verdict = "pass"
        except Exception:
            traceback.print_exc()
            num_failed += 1
            verdict = "FAIL"
        title = name.removeprefix("job_").replace("_", " ")
        print(f"  {verdict}  {title} ({time.monotonic() - started:.1f} s)", flush=True)
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
