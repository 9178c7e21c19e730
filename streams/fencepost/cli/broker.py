"""`up`, `down`, `status`: the embedded Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fencepost import broker
from fencepost.cli.failures import BadInput
from fencepost.cli.options import Json
from fencepost.cli.output import emit, note, say, table

Folder = Annotated[Path | None, typer.Option("--folder", help="Where the cluster lies; it keeps its data there.")]


def up(
    folder: Folder = None,
    nodes: Annotated[int | None, typer.Option("--nodes", help="1, or 3 for a cluster.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="The clients' port; the next one is used too.")] = None,
    heap_mb: Annotated[int, typer.Option("--heap-mb", help="Each node's heap.", min=128)] = 256,
    as_json: Json = False,
) -> None:
    """Start the embedded Kafka and wait until it serves; it goes on until `fencepost down`."""
    if nodes not in (None, 1, 3):
        raise BadInput(f"--nodes is {nodes}; allowed: 1 or 3 (two cannot outvote a failure)")
    if port is not None and not 1 <= port <= 65534:
        raise BadInput(f"--port is {port}; allowed: 1 to 65534")
    state = broker.up(folder, nodes=nodes, port=port, heap_mb=heap_mb)
    if as_json:
        emit(_document(state))
        return
    say(f"Apache Kafka {state.kafka_version} serves at {state.bootstrap} (folder {state.folder})")
    note(f"next: fencepost init --bootstrap {state.bootstrap}")


def down(folder: Folder = None, as_json: Json = False) -> None:
    """Stop the embedded Kafka; the data stays."""
    before = broker.down(folder)
    if as_json:
        emit(_document(before))
        return
    stopped = [node for node in before.nodes if node.pid is not None]
    say(f"stopped {len(stopped)} of {len(before.nodes)} nodes; the data stays in {before.folder}")


def status(folder: Folder = None, as_json: Json = False) -> None:
    """Show the embedded Kafka. Exit code 1 if it does not run."""
    state = broker.status(folder)
    if as_json:
        emit(_document(state))
    else:
        rows = [
            (node.node_id, f"{node.address}:{node.port}", "runs" if node.pid else "stopped", node.pid, node.log_file)
            for node in state.nodes
        ]
        table(("NODE", "ADDRESS", "STATE", "PID", "LOG"), rows, f"no cluster in {state.folder}: run `fencepost up`")
    if not state.running:
        raise typer.Exit(1)


def _document(state: broker.Status) -> dict[str, Any]:
    return {
        "folder": str(state.folder),
        "kafka_version": state.kafka_version,
        "bootstrap": state.bootstrap,
        "running": state.running,
        "nodes": [
            {
                "node": node.node_id,
                "address": node.address,
                "port": node.port,
                "pid": node.pid,
                "log": str(node.log_file),
            }
            for node in state.nodes
        ],
    }
