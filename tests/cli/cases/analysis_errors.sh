# The analysis tools with incompatible models, diverged models and unusual file names: each error is reported before the
# first result, and no file remains.
for tool in mh-prune mh-swap mh-spectrum; do [ -n "$(command -v $tool || true)" ] || skip "$tool is not built"; done
make_text 200 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
# train OUT KEY=VALUE...: trains a small model with the configuration keys in the folder OUT.
train() {
  local sets=() key out=$1
  shift
  for key in "$@"; do sets+=(--set "$key"); done
  mh-train -q --train t.mhs --out "$out" --set model.layers=2 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=4 \
    --set train.batch.sequence_length=16 --set train.batch.tokens=64 --set train.length=4u "${sets[@]}"
}
train run
train long train.batch.sequence_length=64
train mixed attention.mixer=mixhead-a
a=run/last.safetensors long=long/last.safetensors mixed=mixed/last.safetensors
mkdir no
# expect_refused STATUS MESSAGE COMMAND...: COMMAND fails with MESSAGE, prints no result and writes no file to the folder `no`.
expect_refused() {
  expect "$1" "${@:3}"
  expect_stderr "$2"
  [ ! -s out ] || fail "expected no output; found some: ${*:3}"
  [ -z "$(ls no)" ] || fail "expected no file in the folder 'no'; found some: ${*:3}"
}

# Options that do not fit the second of two models are refused before the first result is printed.
expect_refused 2 "at most 22, the number of full blocks of 64 tokens in the text" mh-prune scan --blocks 30 $a $long t.mhs
expect_refused 2 "at most 22" mh-prune rank --by random --blocks 30 $a $long t.mhs
expect_refused 2 "at most 22" mh-spectrum --blocks 30 $a $long t.mhs --curves no/c
expect_refused 2 "at most 22" mh-swap report --blocks 30 $a $long t.mhs
expect_refused 2 "a model with head mixing" mh-spectrum --blocks 4 --of before-mixing $mixed $a t.mhs
expect_refused 2 "a model with head mixing" mh-spectrum --blocks 4 --of mixing $mixed $a t.mhs
# Matrices that a model does not have, and a text that is shorter than a block of the second model, are refused.
expect_refused 2 "matrices across heads" mh-spectrum --of alphas $mixed $a
train fewer attention.combiner=alphas attention.output_heads=2
expect_refused 2 "equal numbers of output heads and value heads" mh-spectrum --of output-value fewer/last.safetensors
head -n 3 text > few
mh-prep lm --vocab v few -o few.mhs 2>/dev/null
expect_refused 2 "the length of a block" mh-spectrum --blocks 0 $a $long few.mhs
# A context of the length of a block leaves no token to score.
for tool in "mh-prune scan" "mh-prune rank --by random" "mh-spectrum" "mh-swap report"; do
  expect_refused 2 "less than the sequence length, 16 tokens" $tool --blocks 4 --context 16 $a t.mhs
done
# Standard input can replace only one file, and --format needs a command that prints a table.
expect_refused 2 "for at most one file" mh-prune cut - --by random --data - --fraction 50% -o no/x
expect_refused 2 "for at most one file" mh-prune curve --by random --rank-data - - t.mhs
expect_refused 2 "for at most one file" mh-spectrum - -
expect_refused 2 "for at most one file" mh-spectrum experts - -
expect_refused 2 "for at most one file" mh-swap report - -
expect_refused 2 "--dry-run or the subcommand report" mh-swap $a --pairs 0.0-0.1 --format table -o no/x
# A model whose heads have all been pruned has no spectra; its scan succeeds.
expect 0 mh-prune cut $a --by random --data t.mhs --blocks 5 --seed 3 --fraction 100% -o none.safetensors
expect_stderr "by random in blocks of 16 tokens, 5 of them; seed 3"
expect_stderr "decoder.self:1:3"
expect_refused 2 "attention layers with heads" mh-spectrum --of output-value none.safetensors
expect_refused 2 "attention layers with heads" mh-spectrum --blocks 4 $a none.safetensors t.mhs
expect 0 mh-prune scan --summary --format json none.safetensors $a $long t.mhs
[ "$(grep -c '"change":null' out)" -eq 4 ] || fail "expected no change for layers that the first model lacks"
# A swap exchanges at least one pair of heads.
expect_refused 2 "expected a whole number from 1 to" mh-swap $a --mode random --k 0 --dry-run

# Diverged models: the perplexity of `wild` is inf, and the heads of `lost` cannot be ranked.
train wild train.lr=1e4 train.length=1u
wild=wild/last.safetensors
expect 0 mh-prune scan $wild t.mhs
[ "$(awk 'NR == 2 {print $8}' out)" = inf ] || fail "expected perplexity inf; found $(awk 'NR == 2 {print $8}' out)"
! grep -q null out || fail "expected nan for missing numbers in a table; found null"
train lost train.lr=1e30 train.length=1u
lost=lost/last.safetensors
for measure in ablation taylor avg-l2; do
  expect_refused 1 "a finite importance" mh-prune rank --by $measure $lost t.mhs
  expect_refused 1 "a finite importance" mh-prune cut $lost --by $measure --data t.mhs --fraction 50% -o no/x
  expect_refused 1 "a finite importance" mh-swap $lost --mode hard --by $measure --data t.mhs -o no/x
done
# Output paths are checked before any computation; with this model the computation would fail with another error.
expect_refused 1 "missing/x" mh-prune cut $lost --by ablation --data t.mhs --fraction 50% -o missing/x
expect_refused 1 "missing/x" mh-swap $lost --mode hard --by ablation --data t.mhs -o missing/x
# Paths of plots are checked before any computation, too; this gnuplot fails, so a later check would report another error.
mkdir bin
printf '#!/bin/sh\nexit 1\n' > bin/gnuplot
chmod +x bin/gnuplot
PATH=$PWD/bin:$PATH
expect_refused 1 "missing/x.svg" mh-prune rank --by random --plot missing/x.svg $a t.mhs
expect_refused 1 "missing/x.svg" mh-prune curve --by random --plot missing/x.svg $a t.mhs
expect_refused 1 "missing/x.svg" mh-spectrum --blocks 4 --plot missing/x.svg $a t.mhs
expect_refused 1 "missing/x.svg" mh-swap report --plot missing/x.svg $a t.mhs
mkdir folder.svg
expect_refused 2 "a folder" mh-prune rank --by random --plot folder.svg $a t.mhs
cp t.mhs r.svg
expect_refused 2 "an output that is not an input" mh-prune curve --by random --rank-data r.svg --plot r.svg $a t.mhs

# Spaces in model names are replaced in tables, so that columns stay separable; JSON keeps them.
cp $a "a model.safetensors"
for tool in "mh-prune scan" "mh-prune rank --by random" "mh-spectrum --blocks 4" "mh-swap report"; do
  expect 0 $tool "a model.safetensors" t.mhs
  [ "$(awk '{print NF}' out | sort -u | wc -l)" -eq 1 ] || fail "expected equally many fields in all lines: $tool"
  cat $a | expect 0 $tool - t.mhs
  [ "$(awk '{print NF}' out | sort -u | wc -l)" -eq 1 ] || fail "expected equally many fields in all lines: $tool on standard input"
done
expect 0 mh-prune scan --format json "a model.safetensors" t.mhs
expect_stdout '"model":"a model.safetensors"'
