# A checkpoint of bf16 parameters gives every tool the results of an fp32 checkpoint with the same values, in fp32 and in bf16, from a
# file and from a pipe; mh-convert --dtype writes bf16 and fp16; errors.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
make_shards
train() {
  mh-train -q --train t.mhs --out "$1" --set model.layers=2 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=4 \
    --set train.batch.sequence_length=16 --set train.batch.tokens=64 --set train.length=6u --set train.lr=0.01 "${@:2}"
}
train run --set attention.combiner=alphas
train untied --set model.tied=false --set attention.mixer=mixhead-a
mkdir rounded narrow wide half
for name in run untied; do
  expect 0 mh-convert --average $name/last.safetensors --dtype bfloat16 -o rounded/$name
  expect_stderr "written as bfloat16"
  # The same steps for both files, since the metadata list them.
  expect 0 mh-convert --average rounded/$name --dtype bfloat16 -o narrow/$name
  expect 0 mh-convert --average rounded/$name -o wide/$name
  expect 0 mh-convert --average $name/last.safetensors --dtype float16 -o half/$name
done
python3 - <<'P'
import json, struct
def read(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__")
    return {name: (t["dtype"], data[slice(*t["data_offsets"])]) for name, t in header.items() if not name.startswith("optimizer.")}
def as_bf16(fp32):  # rounds to the nearest number, ties to even
    bits, = struct.unpack("<I", fp32)
    return struct.pack("<H", bits + 0x7FFF + (bits >> 16 & 1) >> 16)
for model in "run", "untied":
    trained, narrow, wide, half = [read(path) for path in (f"{model}/last.safetensors", f"narrow/{model}", f"wide/{model}", f"half/{model}")]
    assert trained.keys() == narrow.keys() == wide.keys() == half.keys()
    for name, (dtype, values) in trained.items():
        assert dtype == "F32" and (narrow[name][0], wide[name][0], half[name][0]) == ("BF16", "F32", "F16"), name
        words = [values[i:i + 4] for i in range(0, len(values), 4)]
        assert b"".join(map(as_bf16, words)) == narrow[name][1], name
        assert b"".join(b"\0\0" + narrow[name][1][i:i + 2] for i in range(0, len(narrow[name][1]), 2)) == wide[name][1], name
        assert b"".join(struct.pack("<e", struct.unpack("<f", w)[0]) for w in words) == half[name][1], name
P

# same_results COMMAND…: the standard output of COMMAND, and its file `table` if it writes one, are the same in the folders `narrow` and `wide`.
same_results() {
  local folder
  for folder in narrow wide; do
    (cd $folder && rm -f table && "$@") > $folder.out
    [ ! -e $folder/table ] || cat $folder/table >> $folder.out
  done
  [ -s wide.out ] || fail "expected results: $*"
  cmp narrow.out wide.out || fail "expected the same results for bf16 and fp32 parameters: $*"
}
for precision in fp32 bf16; do
  p=(-q --precision "$precision")
  # Without MH_FULL, one of the models for each precision.
  models=(run untied)
  [ -n "${MH_FULL:-}" ] || { [ $precision = fp32 ] && models=(run) || models=(untied); }
  for model in "${models[@]}"; do
    same_results mh-eval "${p[@]}" --format json --per-token table $model ../t.mhs
    same_results mh-eval "${p[@]}" generate $model --length 20
    same_results mh-prune scan "${p[@]}" $model ../t.mhs
    same_results mh-spectrum "${p[@]}" --blocks 3 $model ../t.mhs
    same_results mh-swap report "${p[@]}" --blocks 3 $model ../t.mhs
    same_results mh-spectrum -q --of output-value $model
  done
  [ -n "${MH_FULL:-}" ] || [ $precision = bf16 ] || continue
  same_results mh-prune rank "${p[@]}" --by taylor,avg-l2,entropy,confidence,received,ablation,random --blocks 3 run ../t.mhs
  same_results mh-prune rank "${p[@]}" --by taylor,weight-norm,alpha --blocks 3 run ../t.mhs
  same_results mh-prune curve "${p[@]}" --by taylor --blocks 3 --step 25% run ../t.mhs
  same_results mh-spectrum "${p[@]}" --of mixing --blocks 3 untied ../t.mhs
  same_results mh-spectrum -q --of alphas run
  same_results mh-spectrum -q --of weight:decoder.layers.0.self.query.weight run
  same_results mh-prune cut "${p[@]}" --by taylor --data ../t.mhs --count 2 run -o -
  same_results bash -c "mh-eval ${p[*]} - ../t.mhs < run"
done
# In bf16 an fp16 checkpoint gives the same results from a file, whose embedding is read in place, and from a pipe.
mh-eval -q --precision bf16 half/untied t.mhs > file.out
sed 's|half/untied|standard\\x20input|' file.out | cmp - <(mh-eval -q --precision bf16 - t.mhs < half/untied)

# Tools that write a checkpoint read bf16 parameters: mh-swap keeps their type, so exchanging twice restores the file; the others write
# fp32 unless --dtype is given.
pairs=decoder.self:0.1-1.3
mh-swap -q narrow/run --pairs $pairs -o once
! cmp -s once narrow/run || fail "expected the exchange to change the file"
mh-swap -q once --pairs $pairs -o twice
cmp twice narrow/run
same_results mh-convert -q --fold run
for folder in narrow wide; do
  (cd $folder && mh-train -q --from run --train ../t.mhs --out from --set train.length=2u --set train.batch.sequence_length=16 --set train.batch.tokens=64)
done
cmp <(mh-eval -q narrow/from/last.safetensors t.mhs | sed 's/narrow/wide/') <(mh-eval -q wide/from/last.safetensors t.mhs)

expect 2 mh-convert --average run/last.safetensors --dtype bf16 -o x
python3 - <<'P'
# A parameter past the range of fp16: 70000 in place of an element of the first tensor. The checksum is the tool's own error text.
import json, re, struct, subprocess
data = bytearray(open("run/last.safetensors", "rb").read())
n = struct.unpack("<Q", data[:8])[0]
begin = json.loads(data[8:8 + n])["decoder.embedding.weight"]["data_offsets"][0]
data[8 + n + begin:8 + n + begin + 4] = struct.pack("<f", 70000)
open("large", "wb").write(data)
text = subprocess.run(["mh-convert", "--average", "large", "-o", "x"], capture_output=True, text=True).stderr
expected, found = re.search("the checksum ([0-9a-f]{16}); found ([0-9a-f]{16})", text).groups()
header = data[8:8 + n].replace(expected.encode(), found.encode())
open("large", "wb").write(data[:8] + header + data[8 + n:])
P
expect 3 mh-convert --average large --dtype float16 -o x; expect_stderr "decoder.embedding.weight"
[ ! -e x ] || fail "expected no output file after an error; found one"
expect 0 mh-convert --average large --dtype bfloat16 -o x
