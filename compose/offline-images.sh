#!/usr/bin/env bash
# Makes the images of docker-compose.yml under the names it uses, on a machine that reaches package registries but no image
# registry. Kafka's and Python's images are left alone where they are there; the worker's is made of the source as it is now.
#   compose/offline-images.sh       all; the worker's name is $FENCEPOST_WORKER_IMAGE or fencepost-worker:local
# Needs a container engine: compose/engine.sh start. The Kafka UI is not made: its own image is needed for `--profile ui`.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${FENCEPOST_PYTHON:-.venv/bin/python}
image=${FENCEPOST_WORKER_IMAGE:-fencepost-worker:local}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/fencepost/wheels-$(sha256sum config/requirements-run.txt | cut -c1-16)

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

fail() {
  echo "fencepost: $*" >&2
  exit 1
}

fetch_wheels() { # the locked dependencies for this very Python version and system, once
  [[ -e $cache/.complete ]] && return
  "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    fail "$python is not Python 3.11, which the image has: say where one is with FENCEPOST_PYTHON"
  echo "fencepost: fetching the locked dependencies into $cache" >&2
  mkdir -p "$cache"
  "$python" -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: \
    -r config/requirements-run.txt --dest "$cache"
  touch "$cache/.complete"
}

make_worker() {
  mkdir -p "$work/config" "$work/wheels" "$work/compose/worker"
  cp config/requirements-run.txt "$work/config"
  cp "$cache"/*.whl "$work/wheels"
  cp compose/worker/ready.py "$work/compose/worker"
  "$python" -m build --wheel --no-isolation --outdir "$work/dist" . >"$work/wheel.log" 2>&1 ||
    fail "the wheel cannot be built: $(tail -n 1 "$work/wheel.log")"
  # Equal times and modes keep the engine's cache: a layer is made again only when a file in it changed.
  find "$work" -exec touch --date=@0 {} +
  chmod -R u=rwX,go=rX "$work"
  local before
  before=$(docker image inspect --format '{{.Id}}' "$image" 2>/dev/null) || before=
  DOCKER_BUILDKIT=0 docker build --force-rm --network none --build-arg PIP_NO_INDEX=1 --label fencepost.made=offline \
    --tag "$image" --file compose/worker/Dockerfile "$work" >"$work/build.log" 2>&1 ||
    fail "docker build failed: $(tail -n 5 "$work/build.log")"
  if [[ -n $before && -z $(docker image inspect --format '{{join .RepoTags ""}}' "$before") &&
    -z $(docker ps --all --quiet --filter "ancestor=$before") ]]; then
    docker rmi "$before" >/dev/null # the one of the source before; nothing is started from it
  fi
  echo "fencepost: $image is made" >&2
}

compose/make-image.sh kafka
compose/make-image.sh python
fetch_wheels
make_worker
