"""Puts the source tree on the environment's path and makes the `fencepost` command, as an editable installation does.

`pip install -e` would build the wheel's file list first and copy schemas/ beside the sources; a path file keeps
one truth.
"""

import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

COMMAND = """#!{python}
import sys

from fencepost.cli.main import main

sys.exit(main())
"""


def main() -> None:
    (Path(sysconfig.get_path("purelib")) / "fencepost-source.pth").write_text(f"{ROOT / 'streams'}\n")
    command = Path(sysconfig.get_path("scripts")) / "fencepost"
    command.write_text(COMMAND.format(python=sys.executable))
    command.chmod(0o755)


main()
