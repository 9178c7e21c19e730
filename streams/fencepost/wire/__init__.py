"""Records as they stand in Kafka: JSON bytes to the core's records and back, one module per record.

Each module has `encode…` and `decode…` (or `read_…` for what others may produce). Decoding raises `BadRecord` with a
reason for people and the field; an unknown version or an unknown field is one too, so that a worker never takes, arms
or overwrites what a newer one wrote. The shapes are the JSON Schema files in `schemas/`; `docs/records.md` has
examples.
"""
