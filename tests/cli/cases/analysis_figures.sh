# Compares results and errors of the analysis tools with golden files. The models are untrained, so their weights depend
# only on the seed.
[ -n "$(command -v mh-spectrum || true)" ] || skip "mh-spectrum is not built"
fixed_text 40 > text
mh-prep vocab -q text > v
mh-prep lm -q --vocab v text -o t.mhs
fixed_text 20 > other
mh-prep vocab -q other > v2
mh-prep lm -q --vocab v2 other -o other.mhs
train() {
  mh-train -q --threads 1 --train t.mhs --out "$1" --set model.layers=2 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 \
    --set train.batch.sequence_length=16 --set train.batch.tokens=128 --set train.length=1u --set train.lr=0.0 "${@:2}"
}
train run
train mixed --set attention.mixer=talking-heads --set attention.talking-heads.init=xavier --set attention.combiner=gates
m=run/last.safetensors mixed=mixed/last.safetensors
golden --near eval 0 mh-eval $m $mixed t.mhs
golden --near eval-context-json 0 mh-eval --format json --context 4 $m t.mhs
golden --near prune-scan 0 mh-prune scan --layers --all-but-one $m t.mhs
for measure in entropy taylor; do golden --near prune-rank-$measure 0 mh-prune rank --by $measure $m t.mhs; done
golden --near prune-curve 0 mh-prune curve --by weight-norm --step 50% $m t.mhs
golden --near swap-hard 0 mh-swap $m --mode hard --k 1 --by weight-norm --data t.mhs --dry-run
golden --near swap-report 0 mh-swap report $m $mixed t.mhs
golden --near spectrum 0 mh-spectrum $m t.mhs --blocks 2
golden --near spectrum-mixed-summary 0 mh-spectrum $m $mixed t.mhs --blocks 2 --summary
golden --near spectrum-mixing-json 0 mh-spectrum $mixed t.mhs --blocks 2 --of mixing --format json

# Each command must fail before any computation, with the exit status of its kind of error.
record 3 mh-eval missing.safetensors t.mhs
record 3 mh-eval $m other.mhs
record 2 mh-eval $m t.mhs --context 16
golden_record refused-eval
record 2 mh-prune rank --by alpha $m t.mhs
record 2 mh-prune scan --side output $m t.mhs
record 2 mh-prune cut $m --heads 0:2 -o x
golden_record refused-prune
record 2 mh-swap $m --pairs decoder.self:0.0-0.2 -o x
record 2 mh-swap $m --mode hard --dry-run
golden_record refused-swap
record 2 mh-spectrum $m t.mhs --of mixing
record 2 mh-spectrum $m --of weight:none
record 2 mh-spectrum experts $m t.mhs
golden_record refused-spectrum
[ ! -e x ] || fail "expected no file after an error; found one"
