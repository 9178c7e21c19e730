"""Where the files that are not Python code lie: in the source tree during development, in the wheel after installation.

The wheel carries `schemas/` and `config/default.toml` under `fencepost/_data/` (see `pyproject.toml`). The source tree
goes first, so that an edited schema takes effect without a build.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_SOURCE_ROOT = _PACKAGE.parent.parent


def _find(relative: str) -> Path:
    in_source = _SOURCE_ROOT / relative
    if _PACKAGE.parent.name == "streams" and in_source.exists():
        return in_source
    in_wheel = _PACKAGE / "_data" / relative
    if in_wheel.exists():
        return in_wheel
    raise FileNotFoundError(
        f"{relative} is missing from this installation of fencepost (looked for {in_wheel}); install the package again"
    )


def schemas_dir() -> Path:
    """The folder with the JSON Schema files, one per record. Raises FileNotFoundError."""
    return _find("schemas")


def default_config() -> Path:
    """The file with the default settings. Raises FileNotFoundError."""
    return _find("config/default.toml")


def broker_pom() -> Path:
    """The Maven project that names the embedded Kafka's jars; it lies in the package itself."""
    return _PACKAGE / "broker" / "pom.xml"


def broker_jar_manifest() -> Path:
    """Names and SHA-256 sums of the embedded Kafka's jars, one `sum  name` a line."""
    return _PACKAGE / "broker" / "jars.sha256"
