# A line of 100 MB is encoded in constant memory.
printf 'one two\n' > small
mh-prep vocab small > v 2>/dev/null
# Builds with sanitizers have no memory limit here, since sanitizers reserve terabytes of address space.
( [ -n "${ASAN_OPTIONS:-}" ] || ulimit -v 700000
  head -c 100000000 < <(yes 'one two three' || true) | tr '\n' ' ' | mh-prep lm --vocab v --threads 1 - > long.mhs ) 2>err || fail "mh-prep lm failed on a line of 100 MB"
expect 0 mh-prep info long.mhs
expect_stdout "records	1"
head -c 20000000 /dev/zero | tr '\0' x > word
expect 3 mh-prep lm --vocab v word
