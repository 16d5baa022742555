# Configurations and data that make no sense: what was expected, what was found, the right status.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_shards
printf '[model]\nlayers = 1\nwidth = 16\nffn = 16\n[attention]\nheads = 2\n[train]\nblock = 16\nbatch_tokens = 64\nlength = "4u"\n' > c.toml
try() { expect "$1" mh-train --config c.toml --train t.mhs --out run "${@:3}"; said "$2"; [ ! -d run ] || fail "a folder is left"; }
try 2 "did you mean 'train.lr'?" --set train.lrr=1
try 2 "an integer" --set model.layers=two
try 2 "from 1 to 10000" --set model.layers=0
try 2 "from 1 to 1048576" --set model.width=4611686018427387904
try 2 "finite" --set train.lr=inf
try 2 "a divisor of the width 16" --set attention.heads=3
try 2 "a length with a unit" --set train.length=300
try 2 "at least a block" --set train.batch_tokens=8
try 2 "train.patience, which it is for" --set train.min_improvement=0.2
try 2 "one of: " --set attention.mixer=nnoe
try 3 "missing.mhs" --set data.train=missing.mhs
try 3 "a shard (.mhs)" --set data.train=text
try 3 "the vocabulary" --valid other.mhs
try 3 "missing.toml" --config missing.toml
# Numbers of the command line are decimal; none is read in base 8 or 16, or cut to what 64 bits hold.
for n in 010 0x10 1e3 +7 -1 9223372036854775808; do try 2 "a whole number of at least 0, in decimal digits; found '$n'" --seed "$n"; done
try 2 "from 0 to 1024, in decimal digits; found '010'" --threads 010
[ -e /dev/nvidiactl ] || try 4 "an NVIDIA GPU" --device cuda
expect 2 mh-train --config c.toml --train t.mhs
expect 2 mh-train --out run --cnofig c.toml; said "did you mean '--config'?"
printf '[model\n' > bad.toml
expect 2 mh-train --config bad.toml --train t.mhs --out run; said "bad.toml:1"
expect 0 mh-train --config c.toml --train t.mhs --out run
expect 2 mh-train --resume --out run --set model.layers=2; said "model.layers: 1 -> 2"
expect 2 mh-train --resume --out run --train other.mhs; said "data.vocabulary"
for at in $(seq 0 15); do
  size=$(stat -c %s run/last.safetensors)
  head -c $((size * at / 16)) run/last.safetensors > cut.safetensors
  expect 3 mh-eval cut.safetensors t.mhs
done
expect 3 mh-eval text t.mhs;                       said "a checkpoint"
expect 3 mh-eval run/last.safetensors other.mhs;   said "the vocabulary"
expect 3 mh-eval run/last.safetensors text
expect 2 mh-eval run/last.safetensors
expect 2 mh-eval --context 16 run/last.safetensors t.mhs; said "less than the block"
expect 1 mh-train --config c.toml --train t.mhs --out nan --set train.lr=1e30 --set train.length=20u
said "a finite loss"
[ -f nan/last.safetensors ] || fail "no state saved"
