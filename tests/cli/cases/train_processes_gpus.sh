# Each process of a job uses the GPU at its local rank. A small library replaces the driver: it reports as many GPUs as CUDA_VISIBLE_DEVICES
# has entries, or 2 without the variable, and writes the value with which the driver starts to the file visible.PID.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
[ ! -e /dev/nvidiactl ] || skip "this machine has a driver"
. "$ROOT/tests/cli/processes.sh"
statuses=()  # set by wait_for_processes
unset CUDA_VISIBLE_DEVICES
make_character_shards 60
{ print_small_model; printf '[attention]\nheads = 4\n[train]\nlength = "2u"\nbatch.sequence_length = 16\nbatch.tokens = 64\n'; } > c.toml
train=(mh-train -q --threads 1 --config c.toml --train t.mhs --out run)
# The following commands need a C compiler, which a machine may lack.
needs_peers
cat > driver.c <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int cuInit(unsigned flags) {
  char name[64];
  snprintf(name, sizeof name, "visible.%d", (int)getpid());
  FILE* file = fopen(name, "w");
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  fprintf(file, "%s\n", visible == NULL ? "all" : visible);
  return fclose(file) + (int)flags;
}
int cuDeviceGetCount(int* count) {
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  *count = visible == NULL ? 2 : 1;
  for (; visible != NULL && *visible != 0; ++visible) *count += *visible == ',';
  return 0;
}
C
mkdir driver
cc -shared -fPIC -o driver/libcuda.so.1 driver.c 2>/dev/null || skip "no C compiler"
export LD_LIBRARY_PATH=$PWD/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# expect_visible VALUE…: fails unless drivers started with exactly these values, in the order of `sort`; removes the files of the drivers.
expect_visible() {
  [ "$(sort visible.*)" = "$(printf '%s\n' "$@")" ] || fail "expected the values $* of CUDA_VISIBLE_DEVICES; found $(sort visible.*)"
  rm visible.*
}
# Each process starts the driver twice: first in a child, which counts all GPUs, then itself, with its own GPU visible. The run then ends with an error if LibTorch has no CUDA libraries.
start_processes 2 "${train[@]}" --device cuda
wait_for_processes
expect_visible 0 1 all all
CUDA_VISIBLE_DEVICES=5,GPU-3f2a,6 start_processes 2 "${train[@]}" --device cuda
wait_for_processes
expect_visible 5 5,GPU-3f2a,6 5,GPU-3f2a,6 GPU-3f2a
in_processes 0 2 "${train[@]}" --device cpu
[ -z "$(find . -name 'visible.*')" ] || fail "expected no driver of processes on the CPU"

# One process uses the first GPU, whatever its local rank.
mv run cpu
LOCAL_RANK=1 "${train[@]}" --device cuda 2>/dev/null || true
expect_visible all

# Refusals, before the processes connect.
job=(env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1)
expect 2 "${job[@]}" "${train[@]}"
expect 4 "${job[@]}" LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 CUDA_VISIBLE_DEVICES=3 "${train[@]}"
expect 4 "${job[@]}" LOCAL_RANK=1 CUDA_VISIBLE_DEVICES=3 "${train[@]}"
expect 4 "${job[@]}" LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 CUDA_VISIBLE_DEVICES=3 mh-eval cpu/last.safetensors t.mhs
