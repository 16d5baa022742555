#!/usr/bin/env bash
# Runs all tests and benchmarks that need an NVIDIA GPU in at most eight minutes; builds and installs nothing.
#
#   tests/gpu/run.sh [RESULTS]     in a bundle (./run bundle) or a checkout that ./run test has built
#
# RESULTS is the folder for the log of each step and the benchmark tables attention.tsv, beam.tsv and gpu_training.tsv;
# the default is results/ next to tests/. LibTorch is taken from MH_TORCH (the folder with lib/), else from the PyTorch
# that python3 imports, and must have the version of the build. Exit status: 0 all tests passed, 1 a test or a step
# failed, 2 wrong usage, 3 LibTorch or the build is missing or has another version, 4 no GPU. The bar of a benchmark is
# the required ratio of its speed to the speed of its baseline. A missed bar is reported but is not a failed test.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# die STATUS MESSAGE: exits with an error; MESSAGE states what was expected, what was found and what to do.
die() {
  printf 'gpu: error: %s\n' "$2" >&2
  exit "$1"
}

[ $# -le 1 ] || die 2 "expected at most one RESULTS folder; found $*; pass one folder"
case ${1:-} in -*) die 2 "expected a RESULTS folder; found the option $1; pass a folder" ;; esac

# Prints the folder of the PyTorch that python3 imports, or an empty line.
python_torch() { python3 -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")' 2>/dev/null; }
required_version=$(cat "$root/build/torch-version" 2>/dev/null || sed -n 's/^torch_version=//p' "$root/run" 2>/dev/null)
torch=${MH_TORCH:-$(python_torch)}
[ -n "$torch" ] || die 3 "LibTorch: expected MH_TORCH or a PyTorch that python3 can import; found neither; install torch==$required_version or set MH_TORCH"
[ -e "$torch/lib/libtorch_cpu.so" ] || die 3 "LibTorch: expected $torch/lib/libtorch_cpu.so; found no such file; set MH_TORCH to the folder that has lib/"
torch=$(cd "$torch" && pwd)
version_of() { cat "$1/build-version" 2>/dev/null || sed -n "s/^__version__ = '\(.*\)'/\1/p" "$1/version.py" 2>/dev/null; }
version=$(version_of "$torch")
[ "${version%%+*}" = "$required_version" ] ||
  die 3 "LibTorch: expected version $required_version; found ${version:-none} in $torch; install torch==$required_version or set MH_TORCH"
[ -e "$torch/lib/libtorch_cuda.so" ] || die 3 "LibTorch: expected a build with CUDA; found no libtorch_cuda.so in $torch/lib; install LibTorch with CUDA"

gpus=$(nvidia-smi -L 2>&1) || gpus=
if [ -z "$gpus" ] && [ -e /dev/nvidiactl ]; then gpus="a GPU (nvidia-smi does not report its name)"; fi
[ -n "$gpus" ] || die 4 "expected an NVIDIA GPU and its driver; found neither nvidia-smi output nor /dev/nvidiactl; use a machine with a GPU"

for file in build/tests/torch-tests build/tests/attention-bench build/tests/beam-bench build/tools/mh-finetune build/tools/mh-train build/lib/libmultihead-cuda.so \
  build/lib/libmultihead-nccl.so; do
  [ -e "$root/$file" ] || die 3 "expected $root/$file; found no such file; make a bundle with ./run bundle, or build here with ./run test"
done

results=${1:-$root/results}
mkdir -p "$results" || die 1 "$results: expected a writable folder; pass another RESULTS"
results=$(cd "$results" && pwd)
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

site_packages=$(dirname "$torch")
LD_LIBRARY_PATH=$torch/lib:$root/system$(printf ':%s' "$site_packages"/nvidia/*/lib):${LD_LIBRARY_PATH:-}
export LD_LIBRARY_PATH PATH=$root/build/tools:$PATH TORCHINDUCTOR_CACHE_DIR=$scratch/inductor TRITON_CACHE_DIR=$scratch/triton

{
  echo "$gpus"
  echo "LibTorch $version, $(nproc) cores, $(date -u +%Y-%m-%dT%H:%M:%SZ)"
} | tee "$results/header.log"
nvidia-smi >"$results/nvidia-smi.log" 2>&1 || true
sed -n '/+---/,$p' "$results/nvidia-smi.log"

passed=0 failed=0 skipped=0
notes=()
note() {
  notes+=("$*")
  echo "$*"
}

# run NAME SECONDS COMMAND…: runs COMMAND with the log RESULTS/NAME.log and sets $status to its exit status, or to 124
# after a timeout of SECONDS.
run() {
  local name=$1 seconds=$2 start_time=$SECONDS
  shift 2
  echo "== $name, at most $seconds s"
  timeout -k 2 "$seconds" "$@" >"$results/$name.log" 2>&1 </dev/null
  status=$?
  [ "$status" -ne 137 ] || status=124
  echo "$name: exit status $status after $((SECONDS - start_time)) s"
}
# start NAME SECONDS COMMAND…: does the same as `run` in the background. finish NAME: waits for this step, prints its
# output and sets $status to its exit status.
declare -A step_pids
start() {
  # Two threads per program: with more, the programs oversubscribe the cores and mostly wait.
  (export OMP_NUM_THREADS=2; run "$@" >"$scratch/$1.output"; exit "$status") &
  step_pids[$1]=$!
}
finish() {
  wait "${step_pids[$1]}"
  status=$?
  cat "$scratch/$1.output"
}

# fail NAME REASON: counts a failed step.
fail() {
  failed=$((failed + 1))
  note "FAILED: $1: $2, see $results/$1.log"
}
# skip NAME REASON: counts a skipped step or benchmark.
skip() {
  skipped=$((skipped + 1))
  note "skipped: $1 ($2)"
}

# add_counts NAME: adds the numbers of the last line `mh-tests: …` in the log of step NAME to the totals, and prints the
# failed and skipped tests of the step. Counts the step itself as failed if its log has no such line, or if $status is
# not 0 although no test failed.
add_counts() {
  local failed_before=$failed line log=$results/$1.log
  grep -E '^(skipped|failed): ' "$log"
  line=$(grep '^mh-tests: ' "$log" | tail -n 1)
  if [[ $line =~ ^mh-tests:\ ([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped ]]; then
    passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2])) skipped=$((skipped + BASH_REMATCH[3]))
    if [ "${BASH_REMATCH[2]}" -gt 0 ]; then note "FAILED: $1: ${BASH_REMATCH[2]} tests, see $log"
    elif [ "$status" -ne 0 ]; then fail "$1" "exit status $status"; fi
  elif [ "$status" -eq 124 ]; then fail "$1" "exceeded its time limit"
  else fail "$1" "exit status $status without the line 'mh-tests: …'"; fi
  [ "$failed" -eq "$failed_before" ] || tail -n 40 "$log"
}

# Steps that do not measure speed run in parallel. The kernel tests share one process, since processes on one GPU are
# time-sliced.
torch_tests=$root/build/tests/torch-tests
start kernels 70 stdbuf -oL "$torch_tests" --device cuda "[cuda-device],[device]" -d yes
# compute-sanitizer checks only the kernels of this project; checking the kernels of PyTorch would take minutes.
sanitizer=$(command -v compute-sanitizer || printf '%s\n' /usr/local/cuda*/bin/compute-sanitizer | tail -n 1)
sanitizer_tools=(memcheck racecheck synccheck)
for tool in "${sanitizer_tools[@]}"; do
  [ ! -x "$sanitizer" ] || start "$tool" 60 "$sanitizer" --tool "$tool" --report-api-errors no --kernel-name kns=mh7kernels \
    "$torch_tests" --device cuda "[small]"
done
if [ -n "$(command -v python3)" ]; then
  start command-line 70 python3 "$root/tests/cli/run.py" "$root/build/tools" eval_pipeline on_device train_streams
fi

peer_torch=$(python_torch)
# Fills the cache of torch.compile before the benchmarks, which then spend no time in its compiler.
if [ -n "$peer_torch" ]; then
  # shellcheck disable=SC2016  # expanded by the inner shells
  start compile 65 bash -c 'python3 -B "$1/tests/bench/bench.py" --list-compiled | TORCHINDUCTOR_COMPILE_THREADS=2 xargs -P 5 -I{} sh -c "exec python3 -B \"\$1\" {}" - "$1/tests/bench/peers/attention.py"' - "$root"
fi

finish kernels
add_counts kernels
for tool in "${sanitizer_tools[@]}"; do
  if [ ! -x "$sanitizer" ]; then
    skip "$tool" "compute-sanitizer is not installed"
    continue
  fi
  finish "$tool"
  # racecheck warnings are ignored: they concern lanes of one warp, which the matrix instructions synchronise.
  if grep -qE 'ERROR SUMMARY: 0 |RACECHECK SUMMARY: .*\(0 errors' "$results/$tool.log"; then add_counts "$tool"
  elif grep -qE '(ERROR|RACECHECK) SUMMARY: ' "$results/$tool.log"; then
    fail "$tool" "$(grep -E ' SUMMARY: ' "$results/$tool.log" | tail -n 1)"
  elif [ "$status" -eq 124 ]; then skip "$tool" "exceeded its time limit"
  else skip "$tool" "compute-sanitizer does not work here: $(grep -v '^ *$' "$results/$tool.log" | tail -n 1)"; fi
done
if [ -n "$(command -v python3)" ]; then
  finish command-line
  add_counts command-line
else
  skip command-line "no python3"
fi

[ -z "$peer_torch" ] || finish compile

num_bars=0 num_missed=0
# benchmark SECTION SECONDS ROUNDS: runs a section of bench.py; writes its rows to RESULTS/SECTION.tsv and its stderr to
# RESULTS/SECTION.log.
benchmark() {
  local section=$1 missed_before=$num_missed table=$results/$1.tsv
  # shellcheck disable=SC2016  # expanded by the inner shell
  run "$section" "$2" bash -c 'set -o pipefail; python3 -B "$1/tests/bench/bench.py" --tools "$1/build/tools" --device cuda --only "$3" \
    --rounds "$4" | tee "$2"' - "$root" "$table" "$section" "$3"
  cat "$table" 2>/dev/null
  num_bars=$((num_bars + $(grep -c 'pass$' "$table"))) num_missed=$((num_missed + $(grep -c 'FAIL$' "$table")))
  while IFS=$'\t' read -r name _; do skip "$section: $name" "its baseline does not run here, see $results/$section.log"; done < <(grep 'skip$' "$table")
  while IFS=$'\t' read -r name _ _ _ ratio _ _ bar _; do note "bar missed: $name: $ratio of $bar"; done < <(grep 'FAIL$' "$table")
  # bench.py also exits with status 1 if a benchmark misses its bar.
  if [ "$status" -eq 124 ]; then skip "the rest of $section" "exceeded its time limit"
  elif [ "$status" -ne 0 ] && [ "$num_missed" -eq "$missed_before" ]; then
    fail "$section" "exit status $status: $(tail -n 1 "$results/$section.log")"
  fi
}

if [ -z "$peer_torch" ]; then skip bench "python3 cannot import PyTorch, the baseline"
elif [ "$(version_of "$peer_torch")" != "$version" ]; then skip bench "python3 imports another version of PyTorch: $(version_of "$peer_torch")"
else
  benchmark attention 100 1
  benchmark beam 150 1
  benchmark gpu_training 120 1
fi

echo "== summary"
[ ${#notes[@]} -eq 0 ] || printf '%s\n' "${notes[@]}"
printf 'bars: %d reached, %d missed\n' "$num_bars" "$num_missed"
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped" | tee "$results/summary.log"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
