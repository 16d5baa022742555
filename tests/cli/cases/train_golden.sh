# Lists, dry runs and the configuration file of a run match the golden files.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
for table in stages keys backbones; do golden list-$table 0 mh-train --list $table; done
fixed_text 60 > text
mh-prep vocab -q text > v
mh-prep lm -q --vocab v text -o t.mhs
mh-prep translation -q --vocab v text text -o p.mhs
cat > lm.toml <<'C'
[model]
layers = 2
width = 16
ffn_dim = 32
[attention]
heads = 4
[train]
batch.sequence_length = 16
batch.tokens = 64
length = "2u"
C
printf '[model]\nbackbone = "encoder-decoder"\nencoder-decoder.encoder_layers = 2\nlayers = 1\nwidth = 16\nffn_dim = 32\n[attention]\nheads = 4\n[train]\nlength = "2e"\n' > mt.toml
golden dry-run 0 mh-train --dry-run --config lm.toml --train t.mhs
golden dry-run-json 0 mh-train --dry-run --format json --config lm.toml --train t.mhs
golden dry-run-translation-json 0 mh-train --dry-run --format json --config mt.toml --train p.mhs
golden dry-run-mixhead 0 mh-train --dry-run --config lm.toml --train t.mhs --set attention.mixer=mixhead-a --set attention.combiner=mae
golden dry-run-rows 0 mh-train --dry-run --config lm.toml --set model.vocabulary_rows=8 --set train.schedule.warmup=1u
# The configuration file without its section [data], which contains absolute paths and file checksums that depend on the
# version of zstd.
mh-train -q --config lm.toml --train t.mhs --valid t.mhs --out run --set train.lr=3e-4 --set attention.mixer=mixhead-a
golden config 0 sed '/^\[data\]/,$d' run/config.toml
golden dry-run-finetune-json 0 mh-finetune --dry-run --format json --init run/last.safetensors --train t.mhs --train-only attention --set train.length=2u
