# mh-swap exchanges heads that --pairs names or that a measure of importance selects: exchanging twice restores the
# checkpoint; reports; errors.
[ -n "$(command -v mh-swap || true)" ] || skip "mh-swap is not built"
make_shards
train() {
  mh-train -q --train t.mhs --valid t.mhs --out "$1" --set model.layers=3 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=4 \
    --set train.batch.sequence_length=16 --set train.batch.tokens=64 --set train.length=6u --set train.lr=0.01 "${@:2}"
}
train run --set attention.mixer=mixhead-a
m=run/best.safetensors s=run/last.safetensors

# Heads that --pairs names: exchanging twice restores the file bit for bit, exchanging once does not.
pairs=decoder.self:0.1-2.3,decoder.self:1.0-2.0
expect 0 mh-swap $m --pairs $pairs -o once.safetensors
expect_stderr "decoder.self:0.1-2.3 decoder.self:1.0-2.0"
expect 0 mh-swap once.safetensors --pairs $pairs -o twice.safetensors
cmp twice.safetensors $m
! cmp -s once.safetensors $m || fail "expected the exchange to change the file"
# Exchanges all tensors of a training state that --with can select, through pipes.
mh-swap -q - --pairs $pairs --with output,stages,optimizer -o - < $s > state.safetensors
! cmp -s state.safetensors $s || fail "expected the exchange to change the file"
mh-swap -q state.safetensors --pairs $pairs --with output,stages,optimizer -o back.safetensors
cmp back.safetensors $s
# mh-swap exchanges the heads of a training state also without exchanging the moments of the optimizer. A run resumes from an exchanged
# state.
mh-swap -q $s --pairs $pairs -o stay.safetensors
expect 0 mh-train -q --resume --out run --set train.length=6u
cp -r run moved; cp state.safetensors moved/last.safetensors
expect 0 mh-train -q --resume --out moved --set train.length=8u

# Heads that --mode selects, by a measure of importance or at random.
for mode in hard soft random; do
  expect 0 mh-swap $m --mode $mode --k 2 --data t.mhs --dry-run --format json --blocks 3
  mv out $mode.json
done
expect 0 mh-swap $m --mode released --k 1 --data t.mhs --dry-run
[ "$(wc -l < out)" -eq 5 ] || fail "expected a header and one pair for each of four heads"
# --mode in-layer pairs heads of one layer, here one pair in each of three layers.
expect 0 mh-swap $m --mode in-layer --k 1 --data t.mhs --dry-run
[ "$(cut -f 3 out | tail -n +2 | sed 's/\.[0-9]//g' | tr '\n' ' ')" = "decoder.self:0-0 decoder.self:1-1 decoder.self:2-2 " ] \
  || fail "expected a pair of heads in each layer; found $(cut -f 3 out)"
# --t-max limits the pairs of layers: five layers form the two pairs 0-4 and 1-3.
train deep --set model.layers=5
print_soft_pairs() { mh-swap -q deep/last.safetensors --mode soft --k 1 --data t.mhs --blocks 3 --dry-run "$@" | cut -f 3 | tail -n +2; }
[ "$(print_soft_pairs | sed 's/\.[0-9]//g' | tr '\n' ' ')" = "decoder.self:0-4 decoder.self:1-3 " ] || fail "expected the pairs of layers 0-4 and 1-3; found $(print_soft_pairs)"
[ "$(print_soft_pairs --t-max 1)" = "$(print_soft_pairs | head -n 1)" ] || fail "expected only the first pair of layers with --t-max 1"
[ "$(print_soft_pairs --t-max 2)" = "$(print_soft_pairs --t-max 0)" ] \
  || fail "expected all pairs of layers with --t-max 2, as with --t-max 0"
# --pairs with the pairs that --mode hard selects gives the same checkpoint. --seed determines the pairs of --mode random.
cat t.mhs | mh-swap -q $m --mode hard --k 2 --data - --blocks 3 -o hard.safetensors
python3 - > pairs <<'P'
import json
rows = [json.loads(line) for line in open("hard.json")]
assert len(rows) == 2 and rows[0]["score"] >= rows[1]["score"] >= rows[1]["other_score"] >= rows[0]["other_score"], rows
assert all(row["blocks"] == 3 and row["measure"] == "avg-l2" and row["block"] == 16 for row in rows)
assert len([json.loads(line) for line in open("soft.json")]) == 2
assert len([json.loads(line) for line in open("random.json")]) == 2
print(",".join(row["pair"] for row in rows))
P
mh-swap -q $m --pairs "$(cat pairs)" -o named.safetensors
cmp named.safetensors hard.safetensors
mh-swap -q $m --mode random --k 3 --seed 5 -o r1.safetensors
mh-swap -q $m --mode random --k 3 --seed 5 -o r2.safetensors
mh-swap -q $m --mode random --k 3 --seed 6 -o r3.safetensors
cmp r1.safetensors r2.safetensors
! cmp -s r1.safetensors r3.safetensors || fail "another seed gives the same pairs"
for measure in received confidence entropy taylor alpha weight-norm avg-l2-outputs; do
  expect 0 mh-swap $m --mode soft --k 1 --by $measure --data t.mhs --dry-run
  expect_stdout "$measure"
done
mh-swap -q $m --mode soft --k 2 --data t.mhs --blocks 4 -o - | mh-eval --format json - t.mhs > swapped.json
# A dry run with --pairs prints no scores, block length or seed.
expect 0 mh-swap $m --pairs $pairs --dry-run
expect_stdout "nan"
expect 0 mh-swap $m --pairs $pairs --dry-run --format json
expect_stdout '"block":null'
expect_stdout '"seed":null'
expect 0 mh-swap report --help
expect_stdout "--blocks"

# A warning names the layers with different options, which a swap does not move, and these options.
train options --set attention.decoder.self.1.window=3 --set attention.decoder.self.1.soft_cap=20
o=options/last.safetensors
expect 0 mh-swap -q $o --pairs decoder.self:0.0-2.0,decoder.self:1.3-0.1,decoder.self:1.0-0.2,decoder.self:1.1-2.1 -o swapped-options
[ "$(cat err)" = "mh-swap: warning: swapped heads compute with the attention options of their new layers, which differ: layers 0 and 1, 1 and 2 of decoder.self in attention.soft_cap, attention.window" ] \
  || fail "expected one warning about two options of two pairs of layers; found $(cat err)"
expect 0 mh-swap -q $o --pairs decoder.self:0.0-1.0 --dry-run
expect_stderr "layers 0 and 1 of decoder.self in attention.soft_cap, attention.window"
expect 0 mh-swap -q $o --pairs decoder.self:0.0-2.0 -o same-options
[ ! -s err ] || fail "expected no warning about layers with equal options; found $(cat err)"

# mh-swap report prints the discrepancy of the heads of each layer, and its change between two models.
expect 0 mh-swap report $m once.safetensors t.mhs --blocks 5 --format json
with_tolerance - <<'P'
import json, tolerance
rows = [json.loads(line) for line in open("out")]
assert len(rows) == 12 and {row["layer"] for row in rows} == {0, 1, 2}, rows
assert all(row["cosine_change"] == row["euclidean_change"] == 0 for row in rows[:6])
# The change, in percent, exceeds the rounding errors of two passes.
assert any(abs(row["euclidean_change"]) > tolerance.chain_bound(tolerance.pass_roundings("run/best.safetensors", 16), 100)
           for row in rows[6:])
assert all(row["cosine"] / 12 == row["cosine_mean"] and row["sequences"] == 5 for row in rows)
P
cat once.safetensors | mh-swap report $m - t.mhs > table
awk -F '\t' 'NF != 18 { exit 1 }' table || fail "expected 18 columns in each line of the report"

# Errors are reported before any file is written.
# expect_refused STATUS MESSAGE ARGUMENT…: mh-swap must exit with STATUS and MESSAGE and leave no file.
expect_refused() {
  expect "$1" mh-swap "${@:3}"
  expect_stderr "$2"
  [ ! -e x ] || fail "expected no output file after an error; found one"
}
expect_refused 2 "a head from 0 to 3 in layer 0" $m --pairs decoder.self:0.4-1.0 -o x
expect_refused 2 "a layer from 0 to 2" $m --pairs decoder.self:0.0-3.0 -o x
expect_refused 2 "each head once" $m --pairs decoder.self:0.0-1.0,decoder.self:1.0-2.0 -o x
expect_refused 2 "of attention that the model has: decoder.self" $m --pairs encoder.self:0.0-1.0 -o x
expect_refused 2 "KIND:LAYER.HEAD-LAYER.HEAD" $m --pairs decoder.self:0.0-encoder.self:1.0 -o x
expect_refused 2 "--pairs or --mode" $m -o x
expect_refused 2 "--mode" $m --pairs $pairs --mode hard -o x
expect_refused 2 "a file for the new checkpoint" $m --pairs $pairs
expect_refused 2 "a shard to rank heads on" $m --mode hard -o x
expect_refused 2 "at most 6 pairs of heads in decoder.self" $m --mode hard --k 7 --data t.mhs -o x
expect_refused 2 "at most 2 pairs of heads per layer in decoder.self" $m --mode in-layer --k 4 --data t.mhs -o x
expect_refused 2 "at most 1, the number of pairs of opposite layers in decoder.self" $m --mode soft --k 1 --t-max 2 --data t.mhs -o x
expect_refused 2 "--mode soft with this option" $m --mode hard --t-max 0 --data t.mhs -o x
expect_refused 2 "set --k, the number of pairs of layers" $m --mode released --k 1 --t-max 1 --data t.mhs -o x
expect_refused 2 "--t-max" $m --pairs $pairs --t-max 1 -o x
for number in 010 0x1 +1 -1 1.5 16777217; do
  expect_refused 2 "expected a whole number from 0 to 16777216 in decimal digits only, without sign or leading zeros; found '$number'" $m --mode soft --k 1 --t-max=$number --data t.mhs -o x
done
expect_refused 2 "of attention that the model has: decoder.self" $m --mode random --kind decoder.cross -o x
expect_refused 2 "--mode hard, soft, released or in-layer, which rank heads" $m --mode random --data t.mhs -o x
expect_refused 2 "--blocks" $m --mode random --blocks 3 -o x
expect_refused 2 "--seed" $m --pairs $pairs --seed 3 -o x
expect_refused 2 "at most" $m --mode hard --data t.mhs --blocks 100000 -o x
expect_refused 2 "the combiner has no head gates" $m --mode hard --by gate --data t.mhs -o x
expect_refused 2 "--by" $m --mode hard --by tailor --data t.mhs -o x
expect_refused 2 "a checkpoint with a training state, such as last.safetensors" $m --pairs $pairs --with optimizer -o x
expect_refused 2 "itself" $m --pairs $pairs -o $m
expect_refused 2 "standard input (-) for at most one file" - --mode hard --data - -o x
expect_refused 2 "did you mean 'report'?" reprot --pairs $pairs -o x
expect_refused 3 "the vocabulary" $m --mode hard --data other.mhs -o x
expect_refused 3 "missing" missing --pairs $pairs -o x
expect_refused 3 "a checkpoint" text --pairs $pairs -o x
expect_refused 2 "one or more models, then the data" report $m
expect_refused 2 "--mode" $m --mode hard report $m t.mhs
expect_refused 3 "the vocabulary" report $m other.mhs
train small --set model.layers=2
expect_refused 2 "the number of layers of $m, 3; found 2" report $m small/last.safetensors t.mhs
train rules --set "train.groups.g.match=['*.layers.0.*']" --set train.groups.g.rule=sgd --set train.groups.g.lr=0.1
expect_refused 1 "2 optimiser moments, as for the same parameter of layer 1; found 1" rules/last.safetensors --pairs decoder.self:0.0-1.1 --with optimizer -o x
train sizes --set attention.decoder.self.1.head_size=3
expect_refused 2 "layers whose heads have equal sizes and parameters" sizes/last.safetensors --mode random --k 1 -o x
# --mode in-layer pairs no heads of two layers, so layers may differ in the size of their heads.
expect 0 mh-swap sizes/last.safetensors --mode in-layer --k 1 --data t.mhs --dry-run

# mh-swap report --plot draws the changes relative to the first model, or the distances of a single model, beside the table.
needs_peers
command -v gnuplot >/dev/null || skip "gnuplot is not installed"
train alphas --set attention.combiner=alphas
alphas=alphas/last.safetensors
mh-swap report -q $m once.safetensors $alphas t.mhs > table
for plot in heads.svg heads.png heads.pdf; do
  expect 0 mh-swap report -q --plot $plot $m once.safetensors $alphas t.mhs
  cmp out table
  [ -s $plot ] || fail "expected a picture in $plot; found an empty file"
done
# The plain models have one curve each; the model with alphas, which mix the heads, has two.
for text in "decoder.self, cosine distance of heads" "decoder.self, Euclidean distance of heads" "alphas/last.safetensors, before mixing" \
  "alphas/last.safetensors, after mixing" "change from $m, %"; do
  grep -qF "$text" heads.svg || fail "expected '$text' in the plot; found none"
done
! grep -qF "once.safetensors, before mixing" heads.svg || fail "expected one curve for a model without alphas"
expect 0 mh-swap report -q --plot - $m t.mhs
expect_stdout "decoder.self, cosine distance of heads"
! grep -q cosine_change out || fail "expected no table with a plot in the terminal"
expect_refused 2 "--plot -, which replaces the table" report --plot - --format json $m t.mhs
expect_refused 2 ".svg, .png or .pdf" report --plot x $m t.mhs
expect_refused 2 "an output that is not an input" report --plot $m $m t.mhs
train single --set attention.heads=1
expect_refused 2 "layers with several heads" report --plot single.svg single/last.safetensors t.mhs
[ ! -e single.svg ] || fail "expected no picture after an error; found one"
