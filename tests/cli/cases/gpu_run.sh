# tests/gpu/run.sh reports missing files, adds up the results of its steps and fails if a step fails. Small scripts stand
# in for the GPU programs.
mkdir -p here/{tests/gpu,build/{tests,tools,lib}} torch/lib bin
cp "$ROOT/tests/gpu/run.sh" here/tests/gpu
echo 2.11.0 > here/build/torch-version
# write_program FILE: writes an executable shell script with the standard input as its body to FILE.
write_program() {
  { echo '#!/bin/sh'; cat; } > "$1"
  chmod +x "$1"
}
# expect_run STATUS MESSAGE: runs tests/gpu/run.sh; expects the exit status STATUS, and MESSAGE on stderr unless it is empty.
expect_run() {
  expect "$1" env PATH="$PWD/bin:$PATH" here/tests/gpu/run.sh results
  [ -z "$2" ] || expect_stderr "$2"
}
write_program bin/python3 <<< 'case $* in -c*) cat "$PYTHON_TORCH" 2>/dev/null ;; *"--only attention"*) cat table; exit 1 ;; *"--only beam"*) cat beams ;; *"--only gpu_training"*) cat steps ;; *) echo "mh-tests: 3 passed, 0 failed, 1 skipped" ;; esac'
write_program bin/compute-sanitizer <<< 'case $* in *memcheck*) shift 6; "$@"; echo "ERROR SUMMARY: 0 errors" ;; *) echo "no device"; exit 1 ;; esac'

expect 2 here/tests/gpu/run.sh a b
expect 2 here/tests/gpu/run.sh --help-me
expect_run 3 "found neither; install torch==2.11.0 or set MH_TORCH"
export MH_TORCH=$PWD/torch
expect_run 3 "found no such file; set MH_TORCH"
touch torch/lib/libtorch_cpu.so
expect_run 3 "expected version 2.11.0; found none"
echo 2.9.1+cu128 > torch/build-version
expect_run 3 "expected version 2.11.0; found 2.9.1+cu128"
echo 2.11.0+cu130 > torch/build-version
expect_run 3 "expected a build with CUDA"
touch torch/lib/libtorch_cuda.so
[ -e /dev/nvidiactl ] || expect_run 4 "expected an NVIDIA GPU and its driver; found neither"
write_program bin/nvidia-smi <<< 'echo "GPU 0: a stand-in"'
expect_run 3 "found no such file; make a bundle"
touch here/build/lib/libmultihead-{cuda,nccl}.so here/build/tests/{attention,beam}-bench here/build/tools/mh-{finetune,train}
write_program here/build/tests/torch-tests <<< 'echo "skipped: a case (why)"; echo "mh-tests: 4 passed, 0 failed, 1 skipped"'

# Without PyTorch for Python, run.sh runs no benchmarks; it runs the kernel tests twice (once under memcheck), then the
# command-line cases.
expect_run 0 ""
expect_stdout "GPU 0: a stand-in"; expect_stdout "skipped: a case (why)"
for tool in racecheck synccheck; do expect_stdout "skipped: $tool (compute-sanitizer does not work here: no device)"; done
expect_stdout "skipped: bench (python3 cannot import PyTorch, the baseline)"
expect_stdout "11 passed, 0 failed, 6 skipped"
[ -s results/kernels.log ] && [ -s results/command-line.log ] || fail "expected kernels.log and command-line.log; found $(ls results)"

# A ratio below its bar is reported but is not a failed test; a benchmark whose baseline cannot run is skipped.
echo "$MH_TORCH" > place
export PYTHON_TORCH=$PWD/place
printf 'plain\tms\t2\t1\t0.5\t0.4\t0.6\t0.97\tFAIL\nmixed\tms\t1\t9\t9\t9\t9\t4\tpass\ncompiled\tms\t-\t-\t-\t-\t-\t2\tskip\n' > table
printf 'training\ttokens/s\t9\t1\t9\t9\t9\t3\tpass\n' > steps
printf 'beam\ttokens/s\t5\t1\t5\t5\t5\t3\tpass\n' > beams
expect_run 0 ""
expect_stdout "bar missed: plain: 0.5 of 0.97"; expect_stdout "skipped: attention: compiled"; expect_stdout "bars: 3 reached, 1 missed"
expect_stdout "11 passed, 0 failed, 6 skipped"
cmp table results/attention.tsv
cmp beams results/beam.tsv
cmp steps results/gpu_training.tsv

write_program here/build/tests/torch-tests <<< 'echo "mh-tests: 3 passed, 2 failed, 0 skipped"; exit 2'
expect_run 1 ""
expect_stdout "FAILED: kernels: 2 tests"; expect_stdout "9 passed, 4 failed"
write_program here/build/tests/torch-tests <<< 'echo crashed; exit 139'
expect_run 1 ""
expect_stdout "FAILED: kernels: exit status 139 without the line 'mh-tests: …'"

# steady_training.py reports a training run that ends early.
if [ -n "$(command -v mh-train || true)" ]; then
  tools=$(dirname "$(command -v mh-train)")
  printf '[model]\nlayers = 1\nwidth = 64\nffn_dim = 64\n[attention]\nheads = 3\n[train]\nbatch.tokens = 512\nlength = "9u"\n' > odd.toml
  expect 1 python3 "$ROOT/tests/gpu/steady_training.py" --tools "$tools" --minutes 9 --words 50 --tokens 2000 --device cpu odd.toml
  expect_stderr "expected mh-train to run for 9 minutes; found exit status 2"
fi
