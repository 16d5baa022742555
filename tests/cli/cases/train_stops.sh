# mh-train saves its state before a signal ends it, keeps the last state if the disk is full, and refuses a second
# process in the same folder.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_text 300 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
printf '[model]\nlayers = 1\nwidth = 16\nffn_dim = 16\n[attention]\nheads = 2\n[train]\nbatch.sequence_length = 16\nbatch.tokens = 64\nlength = "100ku"\ncheckpoint.every = "5u"\n' > c.toml
mh-train --config c.toml --train t.mhs --out run --set train.log_every=1ku 2>log &
pid=$!
for _ in $(seq 100); do [ ! -f run/last.safetensors ] || break; sleep 0.1; done
expect 1 mh-train --resume --out run
kill -TERM "$pid"
status=0; wait "$pid" || status=$?
[ "$status" -eq 143 ] || fail "expected exit status 143 after SIGTERM; found $status"
grep -q "stopped by signal 15" log || fail "the log does not mention the signal"
expect 2 mh-train --config c.toml --train t.mhs --out run
updates=$(python3 -c "
import json, struct
b = open('run/last.safetensors', 'rb').read(); n = struct.unpack('<Q', b[:8])[0]
print(json.loads(json.loads(b[8:8 + n])['__metadata__']['multihead.training'])['update'])")
# on_full_disk COMMAND…: runs COMMAND with a limit of 40 KiB on the size of a file, which acts as a full disk: the log is smaller, the
# training state is larger.
on_full_disk() { ( ulimit -f 40; "$@" ) }
cp run/last.safetensors before
expect 1 on_full_disk mh-train -q --resume --out run --set train.length="$((updates + 50))u"
cmp before run/last.safetensors
[ -z "$(find run -name '*.part*')" ] || fail "expected no partial file; found one"
expect 0 mh-train --resume --out run --set train.length="$((updates + 5))u"
expect 3 mh-train --resume --out none
# A run is stopped by a signal in the first update of an epoch and resumed: exchanges of heads before this update stay in
# the log.
r=train.procedures.head-rotation
mh-train --config c.toml --train t.mhs --out turns -q --threads 1 --set train.batch.tokens=16384 --set train.length=100ku --set model.layers=2 \
  --set $r.mode=random --set $r.k=1 --set $r.start=1 --set $r.frequency=1 --set $r.end=100000 &  # one update per epoch
pid=$!
for _ in $(seq 100); do [ "$(cat turns/log.jsonl 2>/dev/null | wc -l)" -lt 5 ] || break; sleep 0.1; done
kill -TERM "$pid"
wait "$pid" || true
count_rotations() { grep -c '"head-rotation"' turns/log.jsonl; }
before=$(count_rotations)
last=$(tail -1 turns/log.jsonl | sed 's/.*"update":\([0-9]*\).*/\1/')
expect 0 mh-train --resume --out turns --threads 1 --set train.length="${last}u"
[ "$(count_rotations)" -eq "$before" ] || fail "expected $before exchanges in the log after resuming; found $(count_rotations)"
