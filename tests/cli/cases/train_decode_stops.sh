# A run stopped or killed while it translates the validation set leaves no partial file, and resumes to bit-identical
# weights.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_text 80 | awk 'NF' > s
sed 's/w/v/g' s > t
mh-prep vocab s t > v 2>/dev/null
mh-prep translation -q --vocab v s t -o p.mhs
printf '[model]\nbackbone = "encoder-decoder"\nlayers = 1\nwidth = 32\nffn_dim = 32\ndropout_ffn = 0.1\n[attention]\nheads = 4\n' > c.toml
# The translation of the validation set takes far longer than the updates.
printf '[train]\nbatch.sequence_length = 16\nbatch.tokens = 300\nlr = 0.005\nlength = "8u"\nvalidation.every = "2u"\nvalidation.metric = "bleu"\n' >> c.toml
printf 'checkpoint.retain = 2\ncheckpoint.retain_by = "best"\n[train.validation.decode]\nbeam = 10\nmin_length = 60\nmax_length_a = 0\nmax_length_b = 80\n' >> c.toml
start=(mh-train -q --threads 1 --config c.toml --train p.mhs --valid p.mhs --out)
check_killed_run 0.6 valid_bleu "${start[@]}"
# was_in_validation FOLDER: succeeds if the training state of FOLDER was saved during a validation.
was_in_validation() { python3 -c "
import json, struct, sys
b = open('$1/last.safetensors', 'rb').read(); n = struct.unpack('<Q', b[:8])[0]
sys.exit(json.loads(json.loads(b[8:8 + n])['__metadata__']['multihead.training'])['settled'])"; }
stops=0 stops_in_validation=0
"${start[@]}" stopped 2>/dev/null &
pid=$!
for signal in TERM INT USR1 TERM HUP; do
  for _ in $(seq 100); do [ ! -f stopped/last.safetensors ] || break; sleep 0.1; done
  sleep 0.6
  kill -s "$signal" "$pid" 2>/dev/null || break
  status=0; wait "$pid" || status=$?
  [ "$status" -ne 0 ] || break
  [ "$status" -gt 128 ] || fail "expected an exit status above 128 after SIG$signal; found $status"
  stops=$((stops + 1))
  ! was_in_validation stopped || stops_in_validation=$((stops_in_validation + 1))
  [ -z "$(find stopped -name '*.part*')" ] || fail "expected no partial file; found one"
  mh-train -q --threads 1 --resume --out stopped 2>/dev/null &
  pid=$!
done
wait "$pid" || fail "the last resumed run failed"
expect 0 mh-train --threads 1 --resume --out stopped
[ "$stops_in_validation" -gt 0 ] || fail "expected at least one of $stops stops during a validation; found none"
expect 0 python3 "$ROOT/tests/cli/same_run.py" whole stopped valid_bleu
[ "$(ls stopped/checkpoints)" = "$(ls whole/checkpoints)" ] || fail "expected the retained checkpoints of the uninterrupted run; found $(ls stopped/checkpoints)"
