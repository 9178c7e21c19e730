#!/usr/bin/env bash
# Today's `docker compose` where there is one, else docker-compose 1.29 (installed from Debian if need be), for this folder.
#   compose/compose.sh up -d --scale worker=3
set -euo pipefail
cd "$(dirname "$0")"

if docker compose version >/dev/null 2>&1; then
  exec docker compose "$@"
fi
if ! command -v docker-compose >/dev/null; then
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "fencepost: neither docker compose nor docker-compose is here: install one" >&2
    exit 1
  fi
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends docker-compose; } \
    >/dev/null || { echo "fencepost: docker-compose cannot be installed from Debian" >&2; exit 1; }
fi
exec docker-compose "$@"
