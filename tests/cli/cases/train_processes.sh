# Several processes train or fine-tune one model. Two processes give the same bits as one process with two micro-batches, also after a resume
# with another number of processes. Only rank 0 writes files. A process that ends early, or has another configuration or data, ends the job.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
. "$ROOT/tests/cli/processes.sh"
statuses=()  # set by wait_for_processes
make_text 600 > text  # the run ends before the last update of an epoch, which has fewer rows
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
print_small_model > c.toml
cat >> c.toml <<'T'
dropout_embedding = 0.1
dropout_ffn = 0.1
[attention]
heads = 4
dropout = 0.1
[train]
length = "24u"
batch.sequence_length = 16
batch.tokens = 128
lr = 0.003
optimizer.clip_norm = 1.0
validation.every = "8u"
checkpoint.every = "8u"
log_every = "4u"
timeout = 60
T
cat > xl.toml <<'T'
[model]
backbone = "transformer-xl"
positions = "none"
transformer-xl.memory = 16
[attention]
score = "relative"
[train]
batch.order = "streams"
T
train=(mh-train --threads 1 -q --config c.toml --train t.mhs --valid t.mhs)

# continue_run FOLDER: resumes the run in FOLDER with one process for two more updates.
continue_run() {
  local update
  update=$(python3 -c 'import json, struct, sys
data = open(sys.argv[1] + "/last.safetensors", "rb").read()
metadata = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])["__metadata__"]
print(json.loads(metadata["multihead.training"])["update"])' "$1")
  expect 0 mh-train --threads 1 -q --resume --out "$1" --set "train.length=$((update + 2))u" --set train.batch.micro_tokens=64
}
same_run() { expect 0 python3 "$ROOT/tests/cli/same_run.py" "$1" "$2"; }

for run in decoder xl sentences; do
  options=()
  [ "$run" = decoder ] || options=(--config xl.toml)
  [ "$run" != sentences ] || options+=(--set train.batch.order=sentence-streams)
  # One process with two micro-batches of four rows each.
  expect 0 "${train[@]}" "${options[@]}" --set train.batch.micro_tokens=64 --out one-$run
  in_processes 0 2 "${train[@]}" "${options[@]}" --out two-$run
  same_run one-$run two-$run
  [ ! -s out.1 ] && [ ! -s err.1 ] || fail "expected no output of rank 1"
  grep -q '"processes":2' two-$run/log.jsonl || fail "expected the number of processes in the log"
  # Another number of processes resumes the run.
  in_processes 0 2 "${train[@]}" "${options[@]}" --set train.length=8u --out changed-$run
  expect 0 mh-train --threads 1 -q --resume --out changed-$run --set train.length=16u --set train.batch.micro_tokens=64
  in_processes 0 2 mh-train --threads 1 -q --resume --out changed-$run --set train.length=24u --set train.batch.micro_tokens=0
  same_run one-$run changed-$run
  [ "$run" != sentences ] || continue
  # Three and four processes add the gradients in another order than one process, so their losses differ by rounding.
  if [ "$run" = decoder ]; then
    in_processes 0 3 "${train[@]}" --out three-$run
  else
    in_processes 0 4 "${train[@]}" "${options[@]}" --set train.length=8u --out three-$run
    expect 0 mh-train --threads 1 -q --resume --out three-$run --set train.length=16u
    in_processes 0 3 mh-train --threads 1 -q --resume --out three-$run --set train.length=24u
  fi
  same_losses one-$run three-$run 9
done

# The same holds for fine-tuning. Processes without a stated number of threads divide the processors of the machine.
if [ -n "$(command -v mh-finetune || true)" ]; then
  finetune=(mh-finetune -q --init two-decoder/best.safetensors --train t.mhs --valid t.mhs --set train.length=4u --set train.batch.sequence_length=16
    --set train.batch.tokens=128)
  threads=$(python3 -c 'import os; print(max(1, len(os.sched_getaffinity(0)) // 2))')
  expect 0 "${finetune[@]}" --threads "$threads" --set train.batch.micro_tokens=64 --out one-finetuned
  in_processes 0 2 env -u OMP_NUM_THREADS "${finetune[@]}" --out two-finetuned
  same_run one-finetuned two-finetuned
  grep -q "\"threads\":$threads," two-finetuned/log.jsonl || fail "expected $threads threads in the log; found $(head -1 two-finetuned/log.jsonl)"
fi

# With more processes than rows, the processes without rows contribute zero gradients.
expect 0 "${train[@]}" --set train.batch.tokens=32 --set train.batch.micro_tokens=16 --out two-rows
in_processes 0 3 "${train[@]}" --set train.batch.tokens=32 --out three-of-two-rows
same_run two-rows three-of-two-rows
# Processes without streams contribute zero gradients, too. A resume with another number of processes restores the memories of the streams.
streams=("${train[@]}" --config xl.toml --set train.batch.tokens=32)
expect 0 "${streams[@]}" --set train.batch.micro_tokens=16 --out two-streams
in_processes 0 3 "${streams[@]}" --out three-of-two-streams
same_run two-streams three-of-two-streams
in_processes 0 3 "${streams[@]}" --set train.length=10u --out changed-streams
in_processes 0 2 mh-train --threads 1 -q --resume --out changed-streams --set train.length=14u
in_processes 0 3 mh-train --threads 1 -q --resume --out changed-streams --set train.length=24u
same_tensors two-streams/last.safetensors changed-streams/last.safetensors

# A stop signal to any process saves the state once, after the first save at the start, and ends all processes.
for rank in 0 1; do
  start_processes 2 mh-train --threads 1 -v --config c.toml --train t.mhs --set train.length=100000u --set train.checkpoint.every=0u --out stopped-$rank
  for _ in $(seq 100); do [ ! -f stopped-$rank/last.safetensors ] || break; sleep 0.1; done
  sleep 0.3
  kill -TERM "${pids[rank]}"
  wait_for_processes
  [ "${statuses[*]}" = "143 143" ] || { cat err.*; fail "expected exit status 143 of both processes; found ${statuses[*]}"; }
  [ "$(grep -o 'saved at update .*' err.0 | sed 's/.*: //' | tr '\n' ,)" = "start,stopped by a signal," ] || { cat err.0; fail "expected two saves"; }
  continue_run stopped-$rank
done

# A killed process ends the other processes; the last saved state is complete.
start_processes 2 "${train[@]}" --set train.length=100000u --set train.checkpoint.every=2u --out killed
for _ in $(seq 100); do [ ! -f killed/last.safetensors ] || break; sleep 0.1; done
sleep 0.5
kill -KILL "${pids[1]}"
wait_for_processes
[ "${statuses[*]}" = "1 137" ] || { cat err.*; fail "expected exit statuses 1 and 137; found ${statuses[*]}"; }
grep -q "expected an answer from every process within .*; found no heartbeat of rank 1;" err.0 || fail "expected an error about rank 1; found $(cat err.0)"
sed -E 's/; \[.*(; [^;]*)$/\1/' err.0 > message  # without the message of Gloo, which depends on its version
record_error 1 message "rank 0 of 2 after SIGKILL of rank 1"
continue_run killed

# Refuses processes with different configurations and shards of different content, invalid variables of a launcher, such as a rank that is not below the number of processes,
# and standard input and --seeds in a job of several processes.
mkdir 0 1
ln t.mhs 0
tail -n +2 text | mh-prep lm --vocab v - -o 1/t.mhs 2>/dev/null
start_processes 2 sh -c 'mh-train --threads 1 -q --config c.toml --train $RANK/t.mhs --out refused --set train.lr=0.00$RANK'
wait_for_processes
[ "${statuses[*]}" = "2 2" ] || { cat err.*; fail "expected exit status 2 of both processes; found ${statuses[*]}"; }
record_error 2 err.0 "two processes with train.lr=0.000 and train.lr=0.001, and different shards"
record_error 2 err.1 "the same, rank 1"
RANK=2 WORLD_SIZE=2 expect 2 "${train[@]}" --out refused
WORLD_SIZE=2 expect 2 "${train[@]}" --out refused
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 expect 2 "${train[@]}" --out refused
RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 expect 2 "${train[@]}" --out refused
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_PORT=1x MASTER_ADDR=127.0.0.1 expect 2 "${train[@]}" --out refused
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=1 expect 2 "${train[@]}" --out refused
seq 9 | RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 expect 2 mh-train --from - --train t.mhs --out refused
if [ -n "$(command -v mh-finetune || true)" ]; then
  RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 expect 2 mh-finetune --init two-decoder/best.safetensors --train t.mhs --seeds 2 --out refused
fi

# A job fails at the start if a process is missing, if no process has rank 0, if the port is in use, or if two processes state different
# numbers of processes.
short=("${train[@]}" --set train.timeout=2 --out refused)
MASTER_PORT=$(free_port) RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 expect 1 "${short[@]}"
MASTER_PORT=$(free_port) RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 expect 1 "${short[@]}"
python3 -c 'import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1], flush=True); time.sleep(60)' > port &
listener=$!
for _ in $(seq 50); do [ ! -s port ] || break; sleep 0.1; done
MASTER_PORT=$(cat port) RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 expect 1 "${short[@]}"
kill "$listener"
port=$(free_port)
MASTER_PORT=$port RANK=1 LOCAL_RANK=1 WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 "${short[@]}" 2> err.1 &
other=$!
MASTER_PORT=$port RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 expect 2 "${short[@]}"
status=0
wait "$other" || status=$?
[ "$status" -eq 2 ] || { cat err.1; fail "expected exit status 2 of rank 1; found $status"; }
record_error 2 err.1 "rank 1 of 3 beside rank 0 of 2"
[ ! -e refused ] || fail "expected no run folder after an error"

# Jobs of two processes with the variables of mpirun and of srun give the same bits.
in_processes_of() {
  local rank
  pids=()
  for rank in 0 1; do "$1" "$rank" "${@:2}" > out.$rank 2> err.$rank & pids+=($!); done
  wait_for_processes
  [ "${statuses[*]}" = "0 0" ] || { cat err.*; fail "expected exit status 0 of both processes of $1; found ${statuses[*]}"; }
}
job=$$
by_mpirun() { OMPI_COMM_WORLD_RANK=$1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=$1 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=$job "${@:2}"; }
by_srun() { SLURM_PROCID=$1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=$1 SLURM_JOB_ID=$job SLURM_STEP_ID=0 SLURM_STEP_NODELIST="localhost,other[1-2]" "${@:2}"; }
in_processes_of by_mpirun "${train[@]}" --set train.length=8u --out by-mpirun
in_processes_of by_srun "${train[@]}" --set train.length=8u --out by-srun
same_run by-mpirun by-srun
needs_peers
without=
for launcher in torchrun mpirun; do [ -n "$(command -v $launcher || true)" ] || without+="${without:+ and }$launcher"; done
if [ -n "$(command -v mpirun || true)" ]; then
  expect 0 mpirun --allow-run-as-root --oversubscribe -n 2 "${train[@]}" --set train.length=8u --out mpirun
  same_run by-mpirun mpirun
fi
if [ -n "$(command -v torchrun || true)" ]; then
  expect 0 torchrun --standalone --nproc-per-node 2 --no-python "${train[@]}" --set train.length=8u --out torchrun
  same_run by-mpirun torchrun
fi
[ -z "$without" ] || echo "without $without"
