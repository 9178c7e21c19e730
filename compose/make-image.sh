#!/usr/bin/env bash
# Makes images under their public names from Debian's packages and Kafka's jars, for machines that reach no image registry.
# An image that is there already is left as it is.
#   compose/make-image.sh debian    debian:bookworm-slim, through debootstrap (needs root)
#   compose/make-image.sh kafka     apache/kafka:VERSION, which honours the same KAFKA_* variables
#   compose/make-image.sh python    python:3.11-slim, Debian's Python under the same commands
set -euo pipefail
cd "$(dirname "$0")/.."

python=${FENCEPOST_PYTHON:-.venv/bin/python}
debian=debian:bookworm-slim
python_image=python:3.11-slim
work=

fail() {
  echo "fencepost: $*" >&2
  exit 1
}

has_image() { docker image inspect "$1" >/dev/null 2>&1; }

scratch() { # a folder that is gone when the script ends
  work=$(mktemp -d)
  trap 'rm -rf --one-file-system "$work"' EXIT
}

make_debian() {
  has_image "$debian" && return
  [[ $(id -u) == 0 ]] || fail "making $debian takes root: run this as root, or docker pull $debian"
  if ! command -v debootstrap >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends debootstrap >/dev/null
  fi
  echo "fencepost: making $debian with debootstrap" >&2
  debootstrap --variant=minbase bookworm "$work/root" >"$work/debootstrap.log" 2>&1 ||
    fail "debootstrap failed: $(tail -n 1 "$work/debootstrap.log")"
  tar -C "$work/root" --exclude='./var/cache/apt/archives/*.deb' --exclude='./var/lib/apt/lists/*' -c . |
    docker import --change 'CMD ["bash"]' --change 'LABEL fencepost.made=offline' - "$debian" >/dev/null
}

make_kafka() {
  local version image
  version=$("$python" -c 'from fencepost.broker.jars import find_jars; print(find_jars().version)')
  image=apache/kafka:$version
  has_image "$image" && return
  make_debian
  echo "fencepost: making $image" >&2
  mkdir "$work/kafka"
  cp -r compose/kafka/. "$work/kafka"
  cp -rL "$("$python" -c 'from fencepost.broker.jars import find_jars; print(find_jars().folder)')" "$work/kafka/libs"
  # The build's packages come over the machine's own network; the legacy builder needs no image of its own.
  DOCKER_BUILDKIT=0 docker build --force-rm --network host --quiet --label fencepost.made=offline --tag "$image" "$work/kafka" \
    >/dev/null 2>"$work/build.log" || fail "docker build failed: $(tail -n 1 "$work/build.log")"
}

make_python() {
  has_image "$python_image" && return
  make_debian
  echo "fencepost: making $python_image" >&2
  DOCKER_BUILDKIT=0 docker build --force-rm --network host --quiet --label fencepost.made=offline --tag "$python_image" \
    compose/python >/dev/null 2>"$work/build.log" || fail "docker build failed: $(tail -n 1 "$work/build.log")"
}

docker version >/dev/null 2>&1 || fail "no container engine answers: start one with compose/engine.sh start"
scratch
case ${1:-} in
  debian) make_debian ;;
  kafka) make_kafka ;;
  python) make_python ;;
  *)
    echo "usage: compose/make-image.sh debian|kafka|python" >&2
    exit 2
    ;;
esac
