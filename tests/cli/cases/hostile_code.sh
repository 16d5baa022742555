# Python files, shared libraries and pickles in a model folder, a run folder or the working directory are never opened by
# a tool, except a pickle of weights, which is parsed and refused.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
untouched() { python3 -B "$ROOT/tests/cli/untouched.py" "$@"; }
untouched --check > reason 2>&1 || skip "$(cat reason)"
marker=$PWD/marker

# Writes the hostile files to a folder. The names of the libraries include those that the tools link or load by name.
write_hostile_files() {
  python3 - "$1" "$marker" <<'P'
import os, pathlib, pickle, sys, zipfile
folder, marker = pathlib.Path(sys.argv[1]), sys.argv[2]
folder.mkdir(exist_ok=True)
for name in ("modeling_evil.py", "configuration_evil.py", "tokenization_evil.py", "sitecustomize.py", "usercustomize.py", "torch.py", "__init__.py",
             "conftest.py"):
    (folder / name).write_text(f"# a program\nopen({marker!r}, 'w')\n")
class Evil:
    def __reduce__(self):
        return os.system, (f"touch {marker}",)
for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "evil.pickle"):
    (folder / name).write_bytes(pickle.dumps({"x": Evil()}, protocol=2))
with zipfile.ZipFile(folder / "evil.pt", "w") as archive:
    archive.writestr("m/data.pkl", pickle.dumps({"x": Evil()}, protocol=2))
(folder / "gnuplot").write_text(f"#!/bin/sh\ntouch {marker}\n")
(folder / ".gnuplot").write_text(f"system 'touch {marker}'\n")
(folder / "gnuplotrc").write_text(f"system 'touch {marker}'\n")
for name in ("gnuplot", "sitecustomize.py"):
    (folder / name).chmod(0o755)
P
  local name
  for name in evil.so custom_ops.so libmultihead.so libmultihead-core.so libmultihead-cuda.so libmultihead-graph.so libmultihead-nccl.so \
    libtorch_cpu.so libtorch_cuda.so libc10.so libcuda.so.1 libstdc++.so.6 libgomp.so.1 libsentencepiece.so.0 libzstd.so.1; do cp evil.so "$1/$name"; done
}
printf 'void __attribute__((constructor)) begin(void) { __builtin_trap(); }\n' > evil.c
cc -shared -fPIC -o evil.so evil.c 2>/dev/null || echo "not a library, since this machine has no C compiler" > evil.so
cp -r "$ROOT/tests/cli/recorded/gpt2-4" model
python3 -B "$ROOT/tests/cli/huggingface_recorded.py" weights model
python3 - <<'P'
import json
for name, key in (("config.json", "AutoModelForCausalLM"), ("tokenizer_config.json", "AutoTokenizer")):
    values = json.load(open("model/" + name))
    json.dump({**values, "auto_map": {key: "modeling_evil.Evil"}, "trust_remote_code": True, "custom_ops": "custom_ops.so"}, open("model/" + name, "w"))
P
make_text 40 > text
mkdir cwd
for folder in cwd model run; do write_hostile_files $folder; done
cd cwd || exit 1
evil=()
for folder in . ../model ../run; do
  for name in ../cwd/* ../cwd/.gnuplot; do evil+=("$folder/${name#../cwd/}"); done
done
# expect_harmless STATUS COMMAND…: runs COMMAND in the folder of hostile files, and fails if it opens one of them.
expect_harmless() {
  local status=$1
  shift
  expect "$status" untouched "${evil[@]}" -- "$@"
  [ ! -e "$marker" ] || fail "ran code of a file: $*"
}
expect_harmless 0 mh-convert -q ../model -o ../c.safetensors
expect_stderr "auto_map"
expect_harmless 0 mh-prep -q vocab --type byte-bpe --from ../model -o ../v
expect_harmless 0 mh-prep -q lm --vocab ../v ../text -o ../t.mhs
expect_harmless 0 mh-prep -q cat ../t.mhs
expect_harmless 0 mh-eval -q ../c.safetensors ../t.mhs
expect_harmless 0 mh-eval -q generate ../c.safetensors --length 3
expect_harmless 0 mh-convert -q --to huggingface ../c.safetensors ../back
expect_harmless 0 mh-spectrum -q ../c.safetensors --of output-value
expect_harmless 0 mh-prune -q cut ../c.safetensors --heads 0:1 -o ../cut.safetensors
expect_harmless 0 mh-train -q --threads 1 --from ../c.safetensors --train ../t.mhs --out ../run --set train.batch.sequence_length=8 --set train.batch.tokens=32 \
  --set train.length=1u
expect_harmless 0 mh-train -q --threads 1 --resume --out ../run --set train.length=2u
! command -v gnuplot >/dev/null || expect_harmless 0 mh-spectrum -q ../c.safetensors --of output-value --plot ../x.svg
# A plot path that begins with |, which gnuplot would run as a command.
! command -v gnuplot >/dev/null || expect_harmless 0 mh-spectrum -q ../c.safetensors --of output-value --plot '|touch marker;.svg'
[ ! -e marker ] || fail "the path of a plot was executed"
# Pickles in place of the weights of a folder or of a checkpoint are refused.
rm ../model/model.safetensors; cp evil.pt ../model/pytorch_model.bin
expect 3 mh-convert ../model -o ../x; expect_stderr "system"
cp evil.pickle ../model/pytorch_model.bin
expect 3 mh-convert ../model -o ../x
for file in evil.pt modeling_evil.py; do
  expect 3 mh-eval $file ../t.mhs
  expect 3 mh-prep cat $file
  expect 3 mh-train --from $file --train ../t.mhs --out ../y
done
[ ! -e "$marker" ] && [ ! -e ../x ] || fail "ran code of a pickle"

# The loader takes no library from a relative path, such as a folder in the working directory. With LD_DEBUG, the
# loader lists the paths that it tries.
for tool in "$(dirname "$(command -v mh-convert)")"/mh-*; do
  [ -x "$tool" ] && [ -f "$tool" ] || continue
  LD_DEBUG=libs "$tool" --version > libs 2>&1
  ! grep -E 'trying file=[^/]' libs > relative || fail "$tool takes libraries from a relative path: $(head -n 1 relative)"
done
