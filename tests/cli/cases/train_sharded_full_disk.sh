# Two processes that divide the optimiser state (train.shard), of which rank 0 has a full disk: both end soon with status 1, and the last
# state is complete.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
. "$ROOT/tests/cli/processes.sh"
make_text 300 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
printf '[model]\nlayers = 1\nwidth = 16\nffn_dim = 16\n[attention]\nheads = 2\n[train]\nbatch.sequence_length = 16\nbatch.tokens = 64\nlength = "6u"\ncheckpoint.every = "5u"\n' > c.toml
in_processes 0 2 mh-train -q --threads 1 --config c.toml --train t.mhs --out run --set train.shard=optimizer
cp run/last.safetensors before
# with_full_disk COMMAND…: runs COMMAND; in rank 0 with a limit of 40 KiB on the size of a file, which acts as a full disk: the log is
# smaller, the training state is larger.
with_full_disk() { [ "$RANK" != 0 ] || ulimit -f 40; "$@"; }
start=$SECONDS
in_processes 1 2 with_full_disk mh-train -q --threads 1 --resume --out run --set train.length=30u
[ $((SECONDS - start)) -lt 60 ] || fail "expected the end of both processes within 60 s; found $((SECONDS - start)) s"
grep -q "file too large" err.0 || fail "expected the cause in the message of rank 0; found $(cat err.0)"
grep -q "rank 0" err.1 || fail "expected the name of rank 0 in the message of rank 1; found $(cat err.1)"
record_error 1 err.0 "mh-train -q --threads 1 --resume --out run --set train.length=30u, rank 0 of 2"
cmp before run/last.safetensors
[ -z "$(find run -name '*.part*')" ] || fail "expected no partial file; found one"
in_processes 0 2 mh-train -q --threads 1 --resume --out run --set train.length=12u
