# Functions for cases that start several processes of one job. The processes compute on the CPU, also on a machine with one GPU.
export CUDA_VISIBLE_DEVICES=

# make_character_shards LINES: makes the text shard t.mhs and the shard p.mhs of pairs, whose targets are the reversed lines of the text.
make_character_shards() {
  make_text "$1" > text
  rev text > reversed
  mh-prep vocab --type char text -o v 2>/dev/null
  mh-prep lm --vocab v text -o t.mhs 2>/dev/null
  mh-prep translation --vocab v text reversed -o p.mhs 2>/dev/null
}
# print_small_model: prints the start of a configuration, the sizes in the section [model].
print_small_model() { printf '[model]\nlayers = 2\nwidth = 32\nffn_dim = 64\n'; }
# free_port: prints a TCP port that no program uses.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# start_processes SIZE COMMAND…: starts COMMAND in SIZE processes of one job, with their output in the files out.RANK and err.RANK.
# wait_for_processes sets the array `statuses` to their exit statuses.
start_processes() {
  local size=$1 rank port
  shift
  port=$(free_port)
  pids=()
  for ((rank = 0; rank < size; rank++)); do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$size MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" >out.$rank 2>err.$rank &
    pids+=($!)
  done
}
wait_for_processes() {
  local pid status
  statuses=()
  for pid in "${pids[@]}"; do
    status=0
    wait "$pid" || status=$?
    statuses+=("$status")
  done
}
# in_processes STATUS SIZE COMMAND…: runs COMMAND in SIZE processes; fails unless each ends with exit status STATUS.
in_processes() {
  local status
  start_processes "${@:2}"
  wait_for_processes
  for status in "${statuses[@]}"; do
    [ "$status" -eq "$1" ] || { cat err.*; fail "expected exit status $1 of all processes; found ${statuses[*]}: ${*:3}"; }
  done
}
# same_losses ONE OTHER COUNT: fails unless the runs ONE and OTHER logged COUNT losses each, which are equal up to the roundings of 24
# updates.
same_losses() {
  with_tolerance - "$@" <<'P' || fail "expected the losses of $1 in $2"
import json
import sys

import tolerance

def losses(folder):
    lines = [json.loads(line) for line in open(f"{folder}/log.jsonl")]
    return [line.get("nll", line.get("valid_nll")) for line in lines if "nll" in line or "valid_nll" in line]

a, b = map(losses, sys.argv[1:3])
assert len(a) == len(b) == int(sys.argv[3]), (a, b)
bound = tolerance.chain_bound(24 * 512, 5)
assert all(abs(x - y) <= bound * x for x, y in zip(a, b)), (a, b, bound)
P
}
# same_tensors A B: fails unless the checkpoints A and B have the same tensors, bit for bit; their metadata may differ.
same_tensors() {
  with_tolerance -c 'import checkpoint_header, sys
a, b = map(checkpoint_header.read, sys.argv[1:])
assert a[0] == b[0] and a[2] == b[2]' "$@" || fail "expected the tensors of $1 in $2"
}
