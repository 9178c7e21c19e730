#!/usr/bin/env bash
# Kafka and three workers in containers, a few tasks, and a look at what happened; then it stays up to be played with.
# Needs no image registry. The same with images from one: see docs/compose.md.
set -euo pipefail
cd "$(dirname "$0")/.."

in_worker() { compose/compose.sh exec -T worker "$@"; }

healthy() {
  docker ps --quiet --filter label=com.docker.compose.project="${COMPOSE_PROJECT_NAME:-fencepost}" \
    --filter label=com.docker.compose.service=worker --filter health=healthy | wc -l
}

engine=$(compose/engine.sh start)
compose/offline-images.sh
compose/compose.sh up -d --no-build --scale worker=3
for _ in $(seq 240); do
  (($(healthy) == 3)) && break
  sleep 0.5
done
(($(healthy) == 3)) || { echo "fencepost: the workers do not get ready: compose/compose.sh logs worker" >&2; exit 1; }

for number in 1 2 3 4 5; do
  in_worker fencepost trigger "order/$number" --payload '{"seconds": 3}'
done
in_worker fencepost trigger order/6 --payload '{"seconds": 3}' --wait --timeout 60
in_worker fencepost owners
in_worker fencepost runs
cat <<'TEXT'

It is up. In the folder compose/, where ./compose.sh stands for docker-compose:
  ./compose.sh exec worker fencepost trigger order/7 --payload '{"seconds": 30}'
  ./compose.sh exec worker fencepost runs order/7
  docker kill fencepost_worker_1                     the run goes on elsewhere, under the next epoch
  ./compose.sh up -d --no-build --scale worker=5     more workers, or fewer
  ./compose.sh logs -f worker
  ./compose.sh down --volumes                        all gone
TEXT
[[ $engine != started ]] || echo "  ./engine.sh stop                                   the engine, which was started for this"
