"""Real clients, each in an environment of its own, against one server on a scripted model.

``python tests/clients/run.py ENVIRONMENTS [CLIENT ...]``: ``ENVIRONMENTS`` is the folder that has
a virtual environment for each client; see ``make test-clients``. The model says what
``SCRIPTS`` tell it to, as far as the server's grammars allow it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ramet.lang.serving import PROGRAMS
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.testing.scripted_model import Script
from ramet.runtime.testing.server import scripted_server

HERE = Path(__file__).parent
TIMEOUT_S = 120

CITY = '{"name":"Oslo","is_capital":true}'


def call(tool: str, arguments: str) -> list[str]:
    """A tool call, letter by letter."""
    text = f'<tool_call>\n{{"name": "{tool}", "arguments": {arguments}}}\n</tool_call>'
    return list(text)


SCRIPTS = [
    # What a tool has said is in the prompt: the agent's last turn.
    Script(["It", " is", " sunny", "."], when="sun and 20 degrees"),
    Script(call("weather", '{"place": "Oslo"}'), when='"name": "weather"'),
    Script(call("transfer_to_expert", "{}"), when='"name": "transfer_to_expert"'),
    Script(call("final_result", CITY), when='"name": "final_result"'),
    Script(call("City", CITY), when='"name": "City"'),
    Script(list(CITY), when="Name a city."),
    Script(["Hello", " world"]),
]


def main(environments: Path, names: list[str]) -> int:
    """Runs the jobs of the clients that are named, or of all; returns the exit code."""
    known = sorted(each.parent.name for each in HERE.glob("*/jobs.py"))
    wrong = [name for name in names if name not in known]
    if wrong:
        print(f"there are no jobs for {', '.join(wrong)}; there are {', '.join(known)}")
        return 2
    failed = []
    # Scripts count tokens, so the grammar only checks what they say, and appends nothing.
    config = EngineConfig(forced_tokens=False, seed=0)
    with scripted_server(SCRIPTS, engine_config=config, extensions=(PROGRAMS,)) as server:
        for name in names or known:
            print(name, flush=True)
            python = environments / name / "bin" / "python"
            command = [python, "-P", HERE / "harness.py", HERE / name / "jobs.py", server.url]
            try:
                code = subprocess.run(command, timeout=TIMEOUT_S, check=False).returncode
            except (OSError, subprocess.TimeoutExpired) as error:
                print(f"  FAIL  {error}")
                code = 1
            if code or server.num_live():
                failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "every client has done its jobs")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
