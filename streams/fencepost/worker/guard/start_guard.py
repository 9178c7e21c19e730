"""Run by path with `-I -S`: no site, no environment, only the standard library and this package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from fencepost.worker.guard.guard import main

main(sys.argv[1:])
