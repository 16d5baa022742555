# Compares tables and messages of the analysis tools with golden files: columns, names and counts exactly, results
# masked.
[ -n "$(command -v mh-spectrum || true)" ] || skip "mh-spectrum is not built"
fixed_text 40 > text
mh-prep vocab -q text > v
mh-prep lm -q --vocab v text -o t.mhs
mh-train -q --threads 1 --train t.mhs --out run --set model.layers=2 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 \
  --set attention.combiner=mae --set attention.mae.hidden=4 --set train.batch.sequence_length=16 --set train.batch.tokens=128 --set train.length=1u
mh-train -q --threads 1 --train t.mhs --out alphas --set model.layers=2 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 \
  --set attention.combiner=alphas --set train.batch.sequence_length=16 --set train.batch.tokens=128 --set train.length=1u
m=run/last.safetensors a=alphas/last.safetensors
golden --masked eval 0 mh-eval $m t.mhs --context 4 --per-token tokens.tsv
golden --masked eval-per-token 0 cat tokens.tsv
golden --masked eval-json 0 mh-eval --format json $m $a t.mhs
golden --masked prune-scan 0 mh-prune scan $m t.mhs
golden --masked prune-scan-summary-json 0 mh-prune scan --summary --format json $m t.mhs
golden --masked prune-rank 0 mh-prune rank --by random $m t.mhs
golden --masked prune-curve-json 0 mh-prune curve --by random --step 50% --format json $m t.mhs
golden --stderr prune-cut 0 mh-prune cut $a --heads 0:1,1:0 -o cut.safetensors
golden --stderr swap-pairs 0 mh-swap $m --pairs decoder.self:0.1-1.0 -o swapped.safetensors
golden --masked swap-random 0 mh-swap $m --mode random --k 1 --dry-run
golden --masked swap-report 0 mh-swap report $m swapped.safetensors t.mhs
golden --masked spectrum 0 mh-spectrum $m t.mhs --blocks 2
golden --masked spectrum-output-value-json 0 mh-spectrum $m --of output-value --format json
golden --masked spectrum-experts 0 mh-spectrum experts $m t.mhs --blocks 2
golden --stderr convert-average 0 mh-convert --average $a $a -o average.safetensors
golden --stderr convert-fold 0 mh-convert --fold $a -o folded.safetensors
