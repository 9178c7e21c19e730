"""Run by path. The worker's import path comes first in what it reads: the app is found as the worker finds it."""

import os
import sys

with os.fdopen(int(sys.argv[2]), "rb") as file:
    paths, _, config = file.read().partition(b"\0")
sys.path[:] = paths.decode().split("\n")

from fencepost.worker.guard.zygote import main  # noqa: E402

main([int(text) for text in sys.argv[1:]], config)
