# ./run compare: every method builds; the table has the mean result of each method; finished runs are not
# repeated, stopped runs are resumed, runs with another configuration are refused.
[ -n "$(command -v mh-eval || true)" ] || skip "mh-eval is not built"
make_text 200 > text
mh-prep vocab text > v 2>/dev/null
mkdir -p runs/data-wikitext2
for split in train valid test; do mh-prep lm --vocab v text -o runs/data-wikitext2/$split.mhs 2>/dev/null; done
for method in "$ROOT"/configs/methods/*.toml "$ROOT"/configs/small/*.toml; do
  body=("--config" "$ROOT/configs/small/wikitext2.toml")
  case $method in
    */small/glue.toml) continue ;;  # applies to fine-tuning only
    */skip-retain.toml) body+=("--config" "$ROOT/configs/small/transformer-xl.toml") ;;
  esac
  expect 0 mh-train --dry-run "${body[@]}" --config "$method" --train runs/data-wikitext2/train.mhs
done
cp -r "$ROOT/configs" configs
sed -i 's/"1000u"/"4u"/; s/"250u"/"2u"/; s/"100u"/"1u"/; s/^width = 128/width = 16/; s/^ffn_dim = 512/ffn_dim = 16/; s/^layers = 4/layers = 1/' configs/small/wikitext2.toml
compare() { expect "$1" python3 -B configs/experiments compare --seeds 2 --threads 1 --out runs "${@:2}"; }
# table_of FILE: prints the rows of a table without its heading, its footer and the seconds of training.
table_of() { grep -v '^#' "$1" | tail -n +2 | cut -f 1-13; }
compare 0 plain mixhead-a+sigsoftmax
expect_stderr "run 4 of 4, 0 more to do"
[ "$(table_of out | cut -f 1,4 | tr '\t\n' '  ')" = "plain 2 mixhead-a+sigsoftmax 2 " ] || fail "$(cat out)"
table_of out > first
# The runs use copies of the tools, which the table identifies.
version=$(mh-train --version)
tools_copy=$(ls runs/tools)
expect_stdout "# tools: $version $tools_copy"
expect_stdout "# seeds: 1, 2"
expect_stdout "# command of plain: mh-train --config configs/small/wikitext2.toml"
cmp "runs/tools/$tools_copy/bin/mh-train" "$(command -v mh-train)"
[ ! -e "$(dirname "$(command -v mh-train)")/../lib/libmultihead.so" ] || [ -s "runs/tools/$tools_copy/lib/libmultihead.so" ] || fail "no copy of the library"
compare 0 plain mixhead-a+sigsoftmax
! grep -q "run . of" err || fail "a finished run was repeated"
table_of out | cmp - first
rm runs/wikitext2/plain/seed2/result.json
rm -f runs/wikitext2/mixhead-a+sigsoftmax/seed1/{result.json,last.safetensors}
compare 0 plain mixhead-a+sigsoftmax
expect_stderr "run 3 of 4, 0 more to do"
table_of out | cmp - first
# The table distinguishes runs with tools of another build.
mkdir -p other/bin; cp "$(command -v mh-prep)" "$(command -v mh-train)" other/bin
printf '#!/bin/sh\nexec %s "$@"\n' "$(command -v mh-eval)" > other/bin/mh-eval; chmod +x other/bin/mh-eval
cp -r "$(dirname "$(command -v mh-train)")/../lib" other/lib 2>/dev/null || true
rm runs/wikitext2/plain/seed2/result.json
PATH=$PWD/other/bin:$PATH compare 0 plain
[ "$(ls runs/tools | wc -l)" -eq 2 ] || fail "expected copies of the tools of two builds; found $(ls runs/tools)"
grep "^# tools: " out | grep -qF "$version $tools_copy" || fail "$(cat out)"
grep -q "^# tools: $version [0-9a-f]*, $version [0-9a-f]*$" out || fail "$(cat out)"
# Refuses runs with another configuration, an unknown method, and --seeds 0.
echo "# a comment changes no value" >> configs/methods/mixhead-a.toml
compare 0 mixhead-a+sigsoftmax
echo "train.lr = 1e-3" >> configs/methods/sigsoftmax.toml
compare 0 plain
compare 1 mixhead-a+sigsoftmax; expect_stderr "found a run with another configuration"
compare 2 nonsense; expect_stderr "expected a method of wikitext2"; expect_stderr "found nonsense; see ./run compare --help"
compare 2 mixhed-b; expect_stderr "found mixhed-b; write mixhead-b, or see ./run compare --help"
compare 2 plain --seeds 0; expect_stderr "--seeds: expected a positive number of seeds"
# Translation, with generated text in place of the corpus: the table reports BLEU.
data=runs/data-multi30k
mkdir "$data"
for split in train valid test; do make_text 60 | awk 'NF' > "$data/$split.de"; sed 's/w/v/g' "$data/$split.de" > "$data/$split.en"; done
mh-prep vocab "$data"/train.* > joint 2>/dev/null
for split in train valid test; do mh-prep translation -q --vocab joint "$data/$split.de" "$data/$split.en" -o "$data/$split.mhs"; done
sed -i 's/"8e"/"6u"/; s/"300u"/"2u"/; s/"1e"/"3u"/; s/^width = 256/width = 16/; s/^ffn_dim = 1024/ffn_dim = 16/; s/^layers = 3/layers = 1/' \
  configs/recipes/multi30k-small.toml
compare 0 --corpus multi30k plain alphas
expect_stderr "run 4 of 4, 0 more to do"
[ "$(table_of out | cut -f 1,2,4 | tr '\t\n' '  ')" = "plain multi30k 2 alphas multi30k 2 " ] || fail "$(cat out)"
head -n 1 out | grep -q "dev BLEU.*test BLEU" || fail "$(cat out)"
expect 0 mh-eval --format json runs/multi30k/plain/seed1/best.safetensors "$data/test.mhs" --beam 5 --references "$data/test.en"
python3 -c "
import json
assert json.load(open('out'))['bleu'] == json.load(open('runs/multi30k/plain/seed1/result.json'))['scores']['test BLEU']"
compare 2 --corpus multi30k rotation-sof; expect_stderr "write rotation-soft"
# GLUE: `compare` fine-tunes the model of --init, refuses a folder with runs that started from another model, and needs no
# test set.
cat > bert.toml <<'T'
include = "configs/recipes/base/bert.toml"
[model]
layers = 1
width = 16
ffn_dim = 16
max_positions = 32
[attention]
heads = 2
[train]
length = "2u"
batch.sequence_length = 32
batch.rows = 4
T
mh-prep vocab -q --type wordpiece --size 60 text > pieces
awk '1; NR % 20 == 0 { print "" }' text | mh-prep mlm -q --vocab pieces - > mlm.mhs
mh-train -q --config bert.toml --train mlm.mhs --out bert --threads 1
mkdir glue glue/CoLA
awk 'NF { print "x\t" NR % 2 "\t\t" $0 }' text > glue/CoLA/dev.tsv
head -n 9 glue/CoLA/dev.tsv > glue/CoLA/train.tsv
expect 0 "$ROOT/data_scripts/glue" runs/data-cola cola bert/last.safetensors "$PWD/glue" 5
expect_stderr "5 examples of cola, 5 labelled"
sed -i 's/sequence_length = 128/sequence_length = 32/' configs/recipes/base/bert-fine-tuning.toml
compare 0 --corpus cola --init bert/last.safetensors plain mixhead-b+mixing-rate
expect_stderr "run 4 of 4, 0 more to do"
[ "$(table_of out | cut -f 1,2,4 | tr '\t\n' '  ')" = "plain cola 2 mixhead-b+mixing-rate cola 2 " ] || fail "$(cat out)"
head -n 1 out | grep -q "dev Matthews" || fail "$(cat out)"
! head -n 1 out | grep -q test || fail "$(cat out)"
tail -n 1 out | grep -q "mh-finetune --init bert/last.safetensors .*configs/methods/mixhead-b.toml --config configs/small/glue/mixing-rate.toml" || fail "$(cat out)"
expect 0 mh-eval --format json runs/cola/plain/seed2/best.safetensors runs/data-cola/valid.mhs
python3 -c "
import json
assert json.load(open('out'))['matthews'] == json.load(open('runs/cola/plain/seed2/result.json'))['scores']['dev Matthews']"
compare 2 --corpus cola plain; expect_stderr "--init: expected a model, which the runs fine-tune; found none"
compare 2 --init bert/last.safetensors plain; expect_stderr "--init: expected none"
compare 2 --corpus cola --init bert/best.safetensors plain; expect_stderr "found no file bert/best.safetensors"
mh-train -q --config bert.toml --train mlm.mhs --out other-bert --threads 1 --seed 2
compare 1 --corpus cola --init other-bert/last.safetensors plain; expect_stderr "found a run with another configuration"
# Pre-training, compared by the accuracy on masked words.
sed -i 's/"3000u"/"4u"/; s/"500u"/"2u"/; s/"300u"/"1u"/; s/^width = 128/width = 16/; s/^ffn_dim = 512/ffn_dim = 16/; s/^layers = 4/layers = 1/' \
  configs/recipes/bert-small.toml
mkdir runs/data-bert
for split in train valid test; do cp mlm.mhs runs/data-bert/$split.mhs; done
compare 0 --corpus bert plain fixhead
[ "$(table_of out | cut -f 1,2,4 | tr '\t\n' '  ')" = "plain bert 2 fixhead bert 2 " ] || fail "$(cat out)"
head -n 1 out | grep -q "dev word accuracy.*test word accuracy" || fail "$(cat out)"
