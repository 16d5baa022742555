# Paths in configurations, checkpoints, training states and Hugging Face folders lead no tool to write outside the files
# and folders on the command line, or to read weights outside a folder of weights.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
untouched() { python3 -B "$ROOT/tests/cli/untouched.py" "$@"; }
untouched --check > reason 2>&1 || skip "$(cat reason)"
mkdir -p outside/checkpoints work/deep
base=$PWD
cd work/deep || exit 1
out=../../outside
small="--set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 --set train.batch.sequence_length=8 --set train.batch.tokens=32"
make_text 40 > text
mh-prep vocab -q text > v
mh-prep lm -q --vocab v text -o t.mhs
mh-train -q --threads 1 --train t.mhs --out run $small --set train.length=2u --set train.checkpoint.retain=1 --set train.checkpoint.every=1u
echo keep > $out/x
cp t.mhs $out/t.mhs
cp run/last.safetensors run/config.toml run/log.jsonl $out
cp run/checkpoints/* $out/checkpoints
touch $out/x.safetensors.part $out/checkpoints/update-000000009.safetensors.part
cp "$ROOT/tests/cli/recorded/gpt2-4/config.json" $out
mkdir link_targets; ln -s ../$out/x link_targets/x; ln -s ../$out/new link_targets/new

# Sets each configuration key whose value is free text, and the names of sections, to paths of existing and new files.
python3 -B - "$ROOT/tests/cli" "$base/outside" <<'P'
import json, shutil, subprocess, sys
sys.path.insert(0, sys.argv[1])
from untouched import Watch
outside = sys.argv[2]
rows = [line.split("\t") for line in subprocess.run(["mh-train", "--list", "keys"], check=True, capture_output=True, text=True)
        .stdout.splitlines()[1:]]
texts = {key: kind for key, kind, _, meaning, _ in rows if kind in ("text", "texts") and not meaning.endswith(")")}
paths = [key for key, _, _, meaning, _ in rows if meaning.startswith("path of")]
assert paths == ["data.train", "data.valid"], paths
cases = [(key, path) for key in paths for path in ("../../outside/t.mhs", outside + "/new", "link_targets/x", "../../outside/x\\u0000.mhs")]
cases += [("data.train list", path) for path in ("../../outside/t.mhs", outside + "/new", "link_targets/x")]
cases += [(key, "../../outside/x") for key in texts if key not in paths]
cases += [("include", path) for path in ("../../outside/config.toml", "link_targets/new")]
cases += [(f'train.groups."{outside}/x".match', "*"), ('train.regularisers."../../outside/x".type', "head-balance")]
for key, path in cases:
    # NAME in a key is the name of a section, which the user chooses.
    key = key.replace(".NAME.", '."../../outside/x".')
    is_list, key = key.endswith(" list"), key.removesuffix(" list")
    value = f'["t.mhs", "{path}"]' if is_list else f'["{path}"]' if texts.get(key) == "texts" or key.endswith(".match") else f'"{path}"'
    with open("c.toml", "w") as file:
        file.write(f"{key} = {value}\n")
    command = ["mh-train", "-q", "--threads", "1", "--config", "c.toml", "--out", "try"]
    command += [] if key == "data.train" else ["--train", "t.mhs"]
    for option in ("layers=1", "width=16", "ffn_dim=16"):
        command += ["--set", "model." + option]
    command += ["--set", "attention.heads=2", "--set", "train.batch.sequence_length=8", "--set", "train.batch.tokens=32", "--set", "train.length=1u"]
    with Watch([outside, "link_targets"], readable=True) as watch:
        process = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=20)
    assert not watch.problems, (key, path, watch.problems)
    assert process.returncode in (0, 2, 3), (key, path, process.returncode, process.stderr)
    assert process.returncode == 0 or (key, path) not in cases[:1] + [("data.valid", cases[0][1])], process.stderr
    shutil.rmtree("try", ignore_errors=True)
P
# A file that a configuration names must be a regular file, also in the configuration of a resumed run: a device could
# supply bytes without end, and a tool would wait forever for a pipe without a writer.
mkfifo pipe
for path in /dev/zero pipe -; do
  echo "include = '$path'" > c.toml
  expect 3 timeout 20 mh-train --config c.toml --train t.mhs --out try; expect_stderr "a regular file"
  for key in train valid; do
    { echo '[data]'; [ $key = train ] || echo 'train = "t.mhs"'; echo "$key = '$path'"; } > c.toml
    expect 3 timeout 20 mh-train --config c.toml --out try $small --set train.length=1u; expect_stderr "a regular file"
    rm -rf named; cp -r run named
    sed -i "/^$key = /d; s|^\\[data\\]|&\\n$key = '$path'|" named/config.toml
    expect 3 timeout 20 mh-train --resume --out named; expect_stderr "a regular file"
  done
  printf '[data]\ntrain = ["t.mhs", "%s"]\n' "$path" > c.toml
  expect 3 timeout 20 mh-train --config c.toml --out try $small --set train.length=1u; expect_stderr "a regular file"
  rm -rf named; cp -r run named
  sed -i "/^train = /d; s|^\\[data\\]|&\\ntrain = ['t.mhs', '$path']|" named/config.toml
  expect 3 timeout 20 mh-train --resume --out named; expect_stderr "a regular file"
done
[ ! -e try ] || fail "expected no run folder after an error; found one"
rm -r pipe named

# Paths in the configuration, the origin and the training state of a checkpoint. Only a resume may read the shards that
# the configuration names.
python3 -B - "$ROOT/tests/cli" "$base/outside" <<'P'
import json, sys
sys.path.insert(0, sys.argv[1])
import checkpoint_header
tensors, metadata, data = checkpoint_header.read("run/last.safetensors")
lines = metadata["multihead.config"].splitlines()
lines = [f'{line.split(" = ")[0]} = "{sys.argv[2]}/t.mhs"' if line.startswith(("train = ", "valid = ")) else line for line in lines]
metadata["multihead.config"] = 'include = "../../outside/config.toml"\n' + "\n".join(lines) + "\n"
metadata["multihead.origin"] = json.dumps([{"average": ["../../outside/x", sys.argv[2] + "/x"]}])
state = json.loads(metadata["multihead.training"])
state["procedures"]["../../outside/x"] = "{}"
state["steps"]["../../outside/x"] = 1
state["kept"] = {"-1": 1.0, "9": 1.0, "1": 2.0}
metadata["multihead.training"] = json.dumps(state)
metadata["../../outside/x"] = sys.argv[2]
checkpoint_header.write("hostile.safetensors", tensors, metadata, data)
tensors["../../outside/x"] = tensors.pop("decoder.layers.0.self.query.weight")
checkpoint_header.write("named.safetensors", tensors, metadata, data)
P
h=hostile.safetensors
expect 0 untouched $out -- mh-eval -q $h t.mhs
expect 0 untouched $out -- mh-eval -q generate $h --length 3
expect 0 untouched $out -- mh-convert -q --average $h run/last.safetensors -o mean.safetensors
expect 0 untouched $out -- mh-prune -q cut $h --heads 0:1 -o cut.safetensors
expect 0 untouched $out -- mh-spectrum -q $h --of output-value
expect 0 untouched $out -- mh-swap -q $h --pairs decoder.self:0.0-0.1 -o swapped.safetensors
expect 0 untouched $out -- mh-train -q --threads 1 --from $h --train t.mhs --out from $small --set train.length=1u
expect 3 untouched $out -- mh-eval -q named.safetensors t.mhs; expect_stderr "../../outside/x"
cp -r run resumed; cp $h resumed/last.safetensors
resume="mh-train -q --threads 1 --resume --set train.length=3u --set data.train=$out/t.mhs"
status=0; untouched --readable $out -- $resume --out resumed 2>err || status=$?
[[ $status = 0 || $status = 3 ]] || fail "expected exit status 0 or 3 after a resume from a hostile training state; found $status"
[ "$status" = 0 ] || record_error 3 err "$resume --out resumed"
expect 0 untouched --readable $out -- $resume --out run

# A symbolic link in a run folder is refused, since the run would change the target of the link.
expect_link_refused() { expect 3 "$@"; expect_stderr "a symbolic link"; }
for name in lock config.toml log.jsonl last.safetensors best.safetensors diverged.safetensors checkpoints; do
  rm -rf linked; cp -r run linked; rm -rf linked/$name; ln -s "$base/outside/$name" linked/$name
  expect_link_refused untouched --readable $out -- mh-train --resume --out linked
done
for name in lock log.jsonl; do
  rm -rf linked; mkdir linked; ln -s "$base/outside/new" linked/$name
  expect_link_refused untouched --readable $out -- mh-train --train t.mhs --out linked $small --set train.length=1u
done
rm -rf linked; cp -r run linked; rm linked/checkpoints/*; ln -s "$base/outside/x" linked/checkpoints/update-000000003.safetensors
expect 3 untouched --readable $out -- $resume --out linked; expect_stderr "update-000000003"
mkdir seeds; ln -s "$base/outside" seeds/seed1
expect 3 untouched $out -- mh-finetune --resume --seeds 1 --out seeds; expect_stderr "a symbolic link"
[ ! -e $out/new ] || fail "a run created a file through a link"

# File names in the files of a Hugging Face folder, such as the index of its weights, lead to no file outside the folder.
cp -r "$ROOT/tests/cli/recorded/gpt2-4" whole
python3 -B "$ROOT/tests/cli/huggingface_recorded.py" weights whole
copy_whole() { rm -rf f; cp -r whole f; }
copy_whole
cp f/model.safetensors $out
mv f/model.safetensors f/part.safetensors
for name in ../../../outside/model.safetensors "$base/outside/model.safetensors" .. "" 'part.safetensors\u0000'; do
  python3 - "$name" <<'P'
import json, struct, sys
with open("f/part.safetensors", "rb") as file:
    names = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
text = json.dumps({"metadata": {}, "weight_map": {name: "NAME" for name in names if name != "__metadata__"}})
open("f/model.safetensors.index.json", "w").write(text.replace("NAME", sys.argv[1]))
P
  expect 3 untouched $out -- mh-convert f -o x
  [ ! -e x ] || fail "expected no output for the file name '$name'; found one"
done
# Links to files within the folder are followed; the cache of huggingface_hub has such links.
copy_whole; mv f/model.safetensors f/part; ln -s part f/model.safetensors
expect 0 untouched $out -- mh-convert -q f -o x
# Paths in config.json and tokenizer_config.json are ignored.
python3 - "$base/outside" <<'P'
import json, sys
for name, changes in {"config.json": {"auto_map": {"AutoModel": "../../outside/x--x.Model"}, "_name_or_path": sys.argv[1]},
                      "tokenizer_config.json": {"vocab_file": "../../outside/x", "tokenizer_file": sys.argv[1] + "/x",
                                                "name_or_path": sys.argv[1]}}.items():
    values = json.load(open("f/" + name))
    json.dump({**values, **changes}, open("f/" + name, "w"))
P
expect 0 untouched $out -- mh-convert -q f -o x
expect 0 untouched $out -- mh-prep -q vocab --type byte-bpe --from f -o x.v
expect 0 untouched $out -- mh-convert -q --to huggingface x back
# A device or a pipe in the place of a file is refused instead of read without end.
for name in config.json tokenizer_config.json tokenizer.json; do
  copy_whole; ln -sf /dev/zero f/$name
  expect 3 timeout 20 mh-convert f -o x; expect_stderr "f/$name: expected a regular file"
  [ $name = config.json ] || continue
  rm f/$name; mkfifo f/$name
  expect 3 timeout 20 mh-convert f -o x; expect_stderr "f/$name: expected a regular file"
done
copy_whole; rm f/model.safetensors; ln -s /dev/zero f/model.safetensors.index.json
expect 3 timeout 20 mh-convert f -o x; expect_stderr "a regular file"
