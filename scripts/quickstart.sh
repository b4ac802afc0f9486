#!/usr/bin/env bash
# From a fresh Debian 12 to a served model: installs what is missing, builds the server, fetches a small model and serves
# it on http://127.0.0.1:8000. Run again, it starts within seconds.
#
#   scripts/quickstart.sh [--port PORT] [--model FILE] [further flags of `hisparse serve`]
set -euo pipefail
start=$PWD
cd "$(dirname "$0")/.."
. scripts/packages.sh

# Files are named from where the user stands, not from the repository.
from_start() { case $1 in /*) echo "$1" ;; *) echo "$start/$1" ;; esac; }

port=8000
model=
flags=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
    --port) port=${2:?--port takes a number}; shift ;;
    --port=*) port=${1#*=} ;;
    --model) model=$(from_start "${2:?--model takes a file}"); shift ;;
    --model=*) model=$(from_start "${1#*=}") ;;
    --config) flags+=(--config "$(from_start "${2:?--config takes a file}")"); shift ;;
    --config=*) flags+=(--config "$(from_start "${1#*=}")") ;;
    *) flags+=("$1") ;;
  esac
  shift
done

port_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
port_taken && die "port $port is taken by another program. Stop it, or choose another: scripts/quickstart.sh --port $((port + 1))"

install_packages "${server_packages[@]}"
if [ -z "$model" ]; then
  install_packages "${model_packages[@]}"
  model=$(scripts/fetch_model.sh)
fi
[ -e "$model" ] || die "there is no model at $model"

say "building the server (minutes the first time)"
configure server
ninja -C build/server hisparse >&2

# Each open connection takes a descriptor.
ulimit -n "$(ulimit -Hn)" 2>/dev/null || true

build/server/src/app/hisparse serve --model "$model" --port "$port" "${flags[@]}" &
server=$!
# Ctrl-C reaches the server by itself; a second signal would end it before it has drained.
trap : INT
trap 'kill -TERM $server 2>/dev/null' TERM

ready() { curl --silent --fail --output /dev/null "http://127.0.0.1:$port/ready"; }
if command -v curl >/dev/null; then
  until ready; do
    kill -0 "$server" 2>/dev/null || { wait "$server"; exit; }
    sleep 0.2
  done
fi
cat <<EOF

The model is served. Ask it something:

  curl http://127.0.0.1:$port/v1/chat/completions -H 'Content-Type: application/json' -d '{"messages":[{"role":"user","content":"What is the capital of France?"}],"temperature":0}'

Ctrl-C stops the server.
EOF
# A trapped signal ends `wait` before the server has drained.
while kill -0 "$server" 2>/dev/null; do wait "$server" && exit 0; done
wait "$server"
