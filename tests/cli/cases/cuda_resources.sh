# Registers and spills of CUDA kernels: compile.py records the output of ptxas, and resources.py compares it with the
# table. Each check has a failing input.
expect_resources() { expect "$1" python3 "$ROOT/kernels/cuda/resources.py" "${@:2}"; }

# A stand-in for nvcc that prints the output of ptxas for one kernel, with a warning, and exits with $STATUS.
cat > nvcc <<'END'
#!/bin/sh
cat >&2 <<TEXT
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN2mh7kernels43_GLOBAL__N__f8f57a34_10_dropout_cu_672b6d1e5probeIfLi${SIZE:-64}EEEvPKT_PS2_' for 'sm_90'
ptxas info    : Function properties for _ZN2mh7kernels43_GLOBAL__N__f8f57a34_10_dropout_cu_672b6d1e5probeIfLi${SIZE:-64}EEEvPKT_PS2_
    ${STACK:-0} bytes stack frame, ${SPILL:-0} bytes spill stores, 0 bytes spill loads
ptxas info    : (C7510) Potential Performance Loss
ptxas info    : Used ${REGISTERS:-40} registers, used 1 barriers, 1024 bytes smem, 400 bytes cmem[0]
ptxas info    : Compile time = 8.503 ms
TEXT
exit "${STATUS:-0}"
END
chmod +x nvcc
expect_compile() { expect "$1" python3 "$ROOT/kernels/cuda/compile.py" "$2" "nvcc ${VERSION:-1.2.3}" ./nvcc probe.cu; }

expect_compile 0 log
[ "$(cat out)" = "ptxas info    : (C7510) Potential Performance Loss" ] || fail "expected only the warning of ptxas; found $(cat out)"
STATUS=2 expect_compile 1 none
[ ! -e none ] || fail "a failed compilation left a log"

expect_resources 0 log table --write
expect_stdout "mh-tests: 1 passed, 0 failed, 0 skipped"
printf '# nvcc 1.2.3\nkernel\ttarget\tregisters\tspills\tstack\tshared\nprobe<float, 64>\tsm_90\t40\t0\t0\t1024\n' | cmp - table
expect_resources 0 log table --all

# Errors: different numbers, a new kernel, a removed kernel.
REGISTERS=41 STACK=16 expect_compile 0 other
expect_resources 1 other table
expect_stdout "failed: resources/probe<float, 64> sm_90: expected registers 40, stack 0; found registers 41, stack 16; ./run resources --write"
SIZE=128 expect_compile 0 wide
expect_resources 1 wide table
expect_stdout "failed: resources/probe<float, 128> sm_90: expected this kernel in table; found none"
cat log wide > both
expect_resources 0 both both.table --write
REGISTERS=44 SIZE=128 expect_compile 0 wider
cp both.table part.table
expect_resources 0 wider part.table --write  # replaces one row and keeps the other
printf 'probe<float, 64>\tsm_90\t40\t0\t0\t1024\nprobe<float, 128>\tsm_90\t44\t0\t0\t1024\n' | cmp - <(tail -n +3 part.table)
expect_resources 0 wide part.table --all --write
[ "$(wc -l < part.table)" -eq 3 ] || fail "expected one row with --all"
expect_resources 0 log both.table
expect_resources 1 log both.table --all
expect_stdout "failed: resources/probe<float, 128> sm_90: expected this kernel in the build; found none"
expect_stdout "mh-tests: 1 passed, 1 failed, 0 skipped"

# With another compiler version only spills are compared; the table gives their maximum.
REGISTERS=41 VERSION=2.0 expect_compile 0 later
expect_resources 0 later table --all
expect_stdout "skipped: resources (except spills: table has values of nvcc 1.2.3, this build uses nvcc 2.0)"
VERSION=2.0 SPILL=8 expect_compile 0 spills
expect_resources 1 spills table
expect_stdout "expected no spills; found 8 bytes"
expect_resources 0 spills written --write
expect_resources 0 spills written
VERSION=2.0 SPILL=16 expect_compile 0 more
expect_resources 1 more written
expect_stdout "expected at most 8 bytes of spills; found 16 bytes"

# Spills of a device function that kernels call are reported under the name of the function.
{ cat log; printf '%s\n' 'ptxas info    : Function properties for _Z4deepPKfi' \
  '    776 bytes stack frame, 16 bytes spill stores, 4 bytes spill loads'; } > called
expect_resources 1 called table
expect_stdout "failed: resources/deep sm_90: expected no spills; found 20 bytes"
expect_stdout "mh-tests: 1 passed, 1 failed, 0 skipped"

# Damaged logs are refused: no kernel, an incomplete kernel, two kernels with the same name.
: > empty
expect_resources 3 empty table
expect_stderr "expected the output of ptxas -v for kernels; found none"
grep -v Used log > half
expect_resources 3 half table
expect_stderr "expected registers, shared of"
grep -v stack log > half
expect_resources 3 half table
expect_stderr "expected spills, stack of"
{ cat log; sed 's/probe.cu/twin.cu/' other; } > twins
expect_resources 3 twins table
expect_stderr "found two that differ"
# Missing files, damaged tables and wrong options are refused.
expect_resources 3 missing table
expect_resources 3 log missing
for line in 'probe<float, 64>	sm_90	40	0	0' 'a	sm_90	forty	0	0	0' 'probe<float, 64>	sm_90	40	0	0	1024'; do
  { cat table; echo "$line"; } > bad
  expect_resources 3 log bad
  expect_stderr "bad:4: expected a unique kernel and target and 4 numbers"
done
tail -n +2 table > bad
expect_resources 3 log bad
expect_stderr 'expected a line `# nvcc VERSION` and the header'
expect_resources 2 log
expect_resources 2 log table --al

# A log without its first line, which states the version of nvcc, is refused.
sed 1d log > headless
expect_resources 3 headless table
expect_stderr "expected a line '== nvcc VERSION: FILE' before the kernels"
