#!/usr/bin/env bash
# A container engine, if this machine has none running: dockerd from Debian, started and stopped by us alone.
#   compose/engine.sh start    says "running" (it was there) or "started" (by us)
#   compose/engine.sh stop     stops the one we started, and no other, unless containers are still running
set -euo pipefail

state=/run/fencepost-engine
# Test addresses (RFC 2544), so that no network of the machine is shadowed.
networks=(--bip 198.18.200.1/24 --default-address-pool "base=198.18.128.0/18,size=24")

fail() {
  echo "fencepost: $*" >&2
  exit 1
}

answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

started_at() { awk '{ print $22 }' "/proc/$1/stat" 2>/dev/null || true; }

ours() { # true if the daemon we started still runs: same process ID and same start
  [[ -s $state/process ]] || return 1
  read -r pid start <"$state/process"
  [[ -n $start && $(started_at "$pid") == "$start" ]]
}

install_engine() {
  command -v apt-get >/dev/null || fail "no container engine: install one (Docker, or Podman's docker command)"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends docker.io iptables >/dev/null
}

start() {
  if answers; then
    echo running
    return
  fi
  [[ -z ${DOCKER_HOST:-} ]] || fail "DOCKER_HOST is $DOCKER_HOST, but no engine answers there: start it, or unset DOCKER_HOST"
  [[ $(id -u) == 0 ]] || fail "no container engine is running, and starting one takes root: start yours, or run this as root"
  if ! { command -v dockerd && command -v docker; } >/dev/null; then install_engine >&2; fi
  mkdir -p "$state"
  exec 9>"$state/lock"
  flock 9
  if ! answers; then
    setsid dockerd --pidfile "$state/dockerd.pid" "${networks[@]}" </dev/null >"$state/log" 2>&1 9>&- &
    local pid=$!
    for _ in $(seq 300); do
      answers && break
      kill -0 "$pid" 2>/dev/null || fail "dockerd ended: $(tail -n 1 "$state/log")"
      sleep 0.2
    done
    answers || fail "dockerd did not answer within a minute: see $state/log"
    pid=$(<"$state/dockerd.pid")
    echo "$pid $(started_at "$pid")" >"$state/process"
    echo started
  else
    echo running
  fi
}

stop() {
  ours || return 0
  if [[ -n $(docker ps --quiet) ]]; then # somebody else's by now
    echo "fencepost: containers are running, so the engine is left running" >&2
    return 0
  fi
  read -r pid _ <"$state/process"
  kill "$pid"
  for _ in $(seq 300); do
    ours || break
    sleep 0.2
  done
  ours && fail "dockerd (process $pid) does not end: see $state/log"
  rm -f "$state/process"
}

case ${1:-} in
  start) start ;;
  stop) stop ;;
  *)
    echo "usage: compose/engine.sh start|stop" >&2
    exit 2
    ;;
esac
