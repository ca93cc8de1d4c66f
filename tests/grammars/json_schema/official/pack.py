"""Pack a checkout of JSON-Schema-Test-Suite into ``suite.json.xz``, which the tests read.

python tests/grammars/json_schema/official/pack.py CHECKOUT
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

DRAFTS = ("draft3", "draft4", "draft6", "draft7", "draft2019-09", "draft2020-12")
HERE = Path(__file__).parent


def main() -> None:
    checkout = Path(sys.argv[1])
    remotes = checkout / "remotes"
    packed = {
        "tests": {
            draft: {
                path.relative_to(checkout / "tests" / draft).as_posix(): json.loads(
                    path.read_text()
                )
                for path in sorted((checkout / "tests" / draft).rglob("*.json"))
            }
            for draft in DRAFTS
        },
        "remotes": {
            path.relative_to(remotes).as_posix(): json.loads(path.read_text())
            for path in sorted(remotes.rglob("*.json"))
        },
    }
    text = json.dumps(packed, ensure_ascii=False, separators=(",", ":"))
    (HERE / "suite.json.xz").write_bytes(
        lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
    )
    (HERE / "LICENSE").write_text((checkout / "LICENSE").read_text())


if __name__ == "__main__":
    main()
