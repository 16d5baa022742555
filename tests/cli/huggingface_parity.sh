# Cases source this file with $path, the PYTHONPATH of one version of transformers, and $other, the PYTHONPATH of
# another version, or "". Converts random models in every format that the version in $path saves: the converted model
# gives the same outputs, the version in $path loads the model that is converted back, without missing tensors, and both
# versions read its configuration and tokenizer.
parity() { PYTHONPATH=$1 python3 -B "$ROOT/tests/cli/huggingface_parity.py" "${@:2}" 2>parity.err || { cat parity.err; fail "$*"; }; }
programs=$(dirname "$(command -v mh-convert)")/../tests
parity "$path" make
mapfile -t all < <(parity "$path" names)
[ ${#all[@]} -gt 10 ] || fail "expected more than 10 folders; found ${#all[@]}"
for folder in "${all[@]}"; do
  options=()
  [ "$folder" != gpt2-padded ] || options=(--padded-vocabulary)
  expect 0 mh-convert "$folder/" "${options[@]}" -o "$folder.safetensors"; expect_stderr "parameters"
  case $folder in
    bert-base) expect_stderr "the masked-word head"; expect_stderr "the next-sentence head" ;;
    bert-base-bare) expect_stderr "the masked-word head" ;;
    gpt2-padded) expect_stderr "13 embedding rows" ;;
    gpt2-added) expect_stderr "not special (2): 'w1 w2', 'w100'" ;;
    bert-added) expect_stderr "not special (2): '[NEW]', 'w1w1'" ;;
    *) ! grep -q "seed\|warning" err || fail "$folder: a part of the model is initialised at random" ;;
  esac
  "$programs/model-print" "$folder.safetensors" < "$folder/rows" > "$folder.printed"
  expect 0 mh-convert --to huggingface "$folder.safetensors" "$folder.back"
  expect 0 mh-convert "$folder.back" "${options[@]}" -o again
  "$programs/model-print" again < "$folder/rows" | cmp - "$folder.printed"
done
parity "$path" check "${all[@]}"
[ -z "$other" ] || parity "$other" read "${all[@]}"
