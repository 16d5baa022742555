# Trains a small translation model and scores it with BLEU: hypotheses of a shard, translation of lines, and errors.
[ -n "$(command -v mh-eval || true)" ] || skip "mh-eval is not built"
fixed_text 300 > s
sed 's/w/v/g' s > t
mh-prep vocab s > sv 2>/dev/null
mh-prep vocab --min-count 2 t > tv 2>/dev/null
mh-prep translation -q --source-vocab sv --target-vocab tv s t -o p.mhs
printf '[model]\nbackbone = "encoder-decoder"\nlayers = 1\nwidth = 32\nffn_dim = 32\n[attention]\nheads = 4\n[train]\nbatch.sequence_length = 16\n' > c.toml
printf 'batch.tokens = 1000\nlr = 0.005\nlength = "60u"\nvalidation.every = "20u"\n' >> c.toml
mh-train -q --threads 1 --config c.toml --train p.mhs --valid p.mhs --out mt --set train.validation.metric=bleu --set train.validation.decode.beam=2
grep -q '"valid_bleu"' mt/log.jsonl || fail "expected valid_bleu in log.jsonl; found no such key"
m=mt/best.safetensors

expect 0 mh-eval $m p.mhs --beam 3 --hypotheses hyp --format json
expect_stdout '"beam":3,"length_penalty":1.0,"max_length_a":0.0,"max_length_b":200,"min_length":1,"no_unknown":false'; expect_stdout '"perplexity"'; expect_stdout '"length_ratio"'
[ "$(wc -l < hyp)" -eq "$(wc -l < t)" ] || fail "expected a hypothesis for each line; found $(wc -l < hyp)"
mv out first
expect 0 mh-eval $m p.mhs --beam 3 --references t --tokenize none --smooth none --format json
# mh-eval translate gives the same words in the same order for lines of text as for the shard, and mh-eval bleu the same
# score.
expect 0 mh-eval translate $m s --beam 3; cmp out hyp
cat s | mh-eval translate $m - --beam 3 --batch-tokens 40 -q | cmp - hyp
expect 0 mh-eval bleu hyp t --tokenize none --smooth none --format json; mv out metric
expect 0 mh-eval $m p.mhs --beam 3 --references t --tokenize none --smooth none --format json
python3 - <<'P'
import json
first, metric, second = json.load(open("first")), json.load(open("metric")), json.load(open("out"))
assert first["references"] == "p.mhs" and second["references"] == "t"
assert second["bleu"] == metric["score"] and second["length_ratio"] == metric["length_ratio"], (second, metric)
assert second["signature"] == metric["signature"]
P
expect 0 mh-eval $m mt/last.safetensors p.mhs --beam 1 --hypotheses two
[ -s two.0 ] && [ -s two.1 ] || fail "expected the files two.0 and two.1; found: $(ls two*)"

# Columns: line, score, text; the best hypothesis comes first.
head -3 s > three
expect 0 mh-eval translate $m three --beam 4 --nbest 3
[ "$(cut -f1 out | tr '\n' ' ')" = "1 1 1 2 2 2 3 3 3 " ] || fail "expected three hypotheses of each line; found $(cut -f1 out)"
awk -F'\t' '$1 == line && $2 > score { exit 1 } { line = $1; score = $2 }' out || fail "expected falling scores of each line; found $(cut -f1,2 out)"
cut -f3 out | awk 'NR % 3 == 1' > best
expect 0 mh-eval translate $m three --beam 4; cmp out best
expect 0 mh-eval translate $m three --beam 4 --scores; [ "$(cut -f3 out)" = "$(cat best)" ] || fail "expected the best hypotheses in column 3; found $(cut -f3 out)"
# Samples do not depend on the size of the batches.
expect 0 mh-eval translate $m three --samples 2 --seed 4 --top-k 9; cut -f1,3 out > samples
expect_stderr "2 samples at temperature 1 of the 9 likeliest, length penalty 1, hypotheses of 1 to 0·x + 200 tokens (x: source length)"
expect 0 mh-eval translate $m three --samples 2 --seed 4 --top-k 9 --batch-tokens 1; cut -f1,3 out | cmp - samples
# Translations begin with their prefixes. An empty line has an empty translation.
printf 'v3 v5\n\nv1\n' > begin
expect 0 mh-eval translate $m three --prefix-file begin
sed -n 1p out | grep -q '^v3 v5' || fail "expected the prefix of line 1; found $(sed -n 1p out)"
sed -n 3p out | grep -q '^v1' || fail "expected the prefix of line 3; found $(sed -n 3p out)"
printf 'w1 w2\n\nw3\n' > gap
expect 0 mh-eval translate $m gap; [ "$(wc -l < out)" -eq 3 ] || fail "expected a line for the empty line; found $(wc -l < out) lines"
[ -z "$(sed -n 2p out)" ] || fail "expected an empty translation of an empty line; found $(sed -n 2p out)"
expect 0 mh-eval translate $m gap --samples 2
[ "$(cut -f1 out | tr '\n' ' ')" = "1 1 2 2 3 3 " ] || fail "expected two samples of each line; found $(cut -f1 out)"
# Tokens outside the vocabulary are reported; --no-unknown excludes them from translations.
printf 'v3 never\n\nseen\n' > new
expect 0 mh-eval translate $m three --prefix-file new; expect_stderr "the prefixes have 2 tokens outside the vocabulary"
expect 0 mh-eval translate $m three --no-unknown; ! grep -q '<unk>' out || fail "expected no unknown word; found one"
printf 'w1 never seen\n' > new
expect 0 mh-eval translate $m new; expect_stderr "the input has 2 tokens outside the vocabulary"

printf 'w1\r\n' > cr
expect 3 mh-eval translate $m cr

# Errors come before anything is written.
record_refused() { record "$1" mh-eval "${@:2}"; [ ! -s out ] || fail "expected no output before the error; found $(cat out)"; [ ! -e none ] || fail "expected no file after an error; found one"; }
{ printf 'w1 %.0s' $(seq 10000); printf '\nw2\n'; } > long
record_refused 3 translate $m long
expect 0 mh-eval translate $m long --truncate --max-source 30 --beam 2; expect_stderr "truncated 1 source sentence to"; [ "$(wc -l < out)" -eq 2 ] || fail "expected 2 lines; found $(wc -l < out)"
record_refused 2 translate $m s --beam 60000
record_refused 2 $m p.mhs --beam 60000 --hypotheses none
record_refused 2 translate $m s --nbest 6
record_refused 2 translate $m s --temperature 1
record_refused 2 translate $m s --samples 2 --nbest 1
record_refused 2 translate $m s --samples 2 --beam 5
record_refused 2 translate $m s --length-penalty 11
printf 'v3\nv1\n\n' > begin2
record_refused 3 translate $m gap --prefix-file begin2
printf '\nv1 <eos> v2\n\n' > begin2
record_refused 3 translate $m three --prefix-file begin2
printf 'w1\nw1 <eos>\n' > ended
record_refused 3 translate $m ended
record_refused 2 $m p.mhs --per-token none --hypotheses ./none
record_refused 2 translate - -
record_refused 2 translate $m s --beam 0
record_refused 3 translate $m missing
printf 'w1\r\nw2\r\n' > crlf
printf 'w1\n\xff\xfe\n' > latin
record_refused 3 translate $m crlf
record_refused 3 translate $m latin
head -2 begin > short
record_refused 3 translate $m three --prefix-file short
printf 'v1 %.0s' $(seq 300) > much
head -1 s > one
record_refused 2 translate $m one --prefix-file much
head -20 t > few
record_refused 3 $m p.mhs --beam 2 --references few --hypotheses none
record_refused 3 $m p.mhs --references missing
record_refused 2 $m p.mhs --hypotheses -
record_refused 2 $m p.mhs --hypotheses p.mhs
mh-prep lm -q --vocab tv t -o t.mhs
mh-train -q --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 --set train.batch.sequence_length=16 \
  --set train.batch.tokens=64 --set train.length=2u --train t.mhs --out lm
record_refused 2 translate lm/last.safetensors s
record_refused 2 generate $m --prompt w1
record_refused 2 lm/last.safetensors t.mhs --beam 2
record_refused 3 lm/last.safetensors p.mhs --beam 2
record_refused 3 $m lm/last.safetensors p.mhs  # before the first model is scored
# A shard with valid checksums whose target ids exceed the vocabulary: it has the header of another shard.
mh-prep vocab --size 9 t > few.vocab 2>/dev/null
mh-prep translation -q --source-vocab sv --target-vocab few.vocab s t -o few.mhs
mh-train -q --threads 1 --config c.toml --train few.mhs --out fewrun --set train.length=1u
python3 - <<'P'
import struct
few, all_ = open("few.mhs", "rb").read(), open("p.mhs", "rb").read()
size = [8 + struct.unpack("<I", b[4:8])[0] for b in (few, all_)]
frames = struct.unpack("<I", all_[-9:-5])[0]
bytes_ = bytearray(few[:size[0]] + all_[size[1]:])
struct.pack_into("<I", bytes_, len(bytes_) - 8 * frames - 9, size[0])
open("evil.mhs", "wb").write(bytes_)
P
record_refused 3 fewrun/last.safetensors evil.mhs
golden_record refused
expect 3 mh-train --config c.toml --train evil.mhs --out no; expect_stderr "expected token ids below 9"
expect 3 mh-train --config c.toml --train few.mhs --valid evil.mhs --out no; expect_stderr "expected token ids below 9"
# A validation sentence longer than the model's positions is refused before the run begins.
{ printf 'w1 %.0s' $(seq 30); echo; } > longer
mh-prep translation -q --source-vocab sv --target-vocab tv longer longer -o longer.mhs
expect 2 mh-train --config c.toml --train p.mhs --valid longer.mhs --out no --set model.positions=learned --set model.max_positions=20; expect_stderr "at most model.max_positions, 20 tokens"
# Refuses BLEU without a validation set or for a language model, an unknown score, and invalid or unused keys of decoding.
expect 2 mh-train --config c.toml --train p.mhs --out no --set train.validation.metric=bleu
expect 2 mh-train --config c.toml --train p.mhs --valid p.mhs --out no --set train.validation.metric=bleu --set train.validation.decode.beam=9999
expect 2 mh-train --config c.toml --train p.mhs --valid p.mhs --out no --set train.validation.metric=blue
expect 2 mh-train --config c.toml --train p.mhs --valid p.mhs --out no --set train.validation.decode.beam=2; expect_stderr "train.validation.decode.beam: 5 -> 2"
expect 2 mh-train --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 --set train.batch.sequence_length=16 \
  --set train.batch.tokens=64 --set train.length=2u --train t.mhs --valid t.mhs --out no --set train.validation.metric=bleu
expect 2 mh-train --resume --out mt --set train.validation.metric=loss
[ ! -e no ] || fail "expected no output folder after an error; found one"

# A byte-level model may generate any bytes; the printed output is still valid lines of text.
mh-prep vocab --type byte s > bytes 2>/dev/null
mh-prep translation -q --vocab bytes s t -o bytes.mhs
mh-train -q --threads 1 --config c.toml --train bytes.mhs --out bm --set train.length=1u --set train.batch.sequence_length=80
expect 0 mh-eval translate bm/last.safetensors three --samples 40 --max-length-b 30
[ "$(wc -l < out)" -eq 120 ] || fail "expected 120 lines of the byte-level model; found $(wc -l < out)"
awk -F'\t' 'NF != 3 { exit 1 }' out || fail "expected 3 columns in each line of the byte-level model; found $(head -1 out)"
iconv -f utf-8 -t utf-8 out > /dev/null || fail "expected UTF-8; found other bytes"
! LC_ALL=C grep -q "$(printf '[\001-\010\013-\037\177]')" out || fail "expected no control characters; found some"
LC_ALL=C grep -q "$(printf '\357\277\275')" out || fail "expected the replacement character for invalid bytes"
expect 0 mh-eval bm/last.safetensors bytes.mhs --beam 2 --max-length-b 10 --hypotheses hyp --format json
expect 0 mh-eval bleu hyp t
