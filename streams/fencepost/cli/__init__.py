"""The `fencepost` command: tables for people, `--json` for programs."""
