"""The ownership protocol as a model for the Spin model checker: `python -m tests.model`."""
