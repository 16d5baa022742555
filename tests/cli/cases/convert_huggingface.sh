# Models of transformers, random ones in every form that they are saved in: converted they compute what they computed, and
# converted back transformers loads them whole.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
PYTHONPATH=${MH_CHECK_PYTHONPATH:-} python3 -c 'import torch, transformers' 2>/dev/null || skip "Python lacks transformers and torch"
peer() { PYTHONPATH=$MH_CHECK_PYTHONPATH python3 -B "$ROOT/tests/cli/huggingface_parity.py" "$@"; }
programs=$(dirname "$(command -v mh-convert)")/../tests
peer make
all=(gpt2 gpt2-bin gpt2-base gpt2-shards gpt2-shards-bin gpt2-half gpt2-bfloat gpt2-other gpt2-old gpt2-padded
  bert bert-bin bert-old bert-words bert-base bert-base-bare bert-classes bert-number bert-span)
for folder in "${all[@]}"; do
  options=()
  [ $folder != gpt2-padded ] || options=(--padded-vocabulary)
  expect 0 mh-convert "$folder/" "${options[@]}" -o $folder.safetensors; said "parameters"
  case $folder in
    bert-base) said "the head of masked words"; said "the head of next sentences" ;;
    bert-base-bare) said "the head of masked words" ;;
    gpt2-padded) said "13 rows" ;;
    *) ! grep -q "seed" err || fail "$folder: nothing of it is made" ;;
  esac
  "$programs/model-print" $folder.safetensors < $folder/rows > $folder.printed
  expect 0 mh-convert --to huggingface $folder.safetensors $folder.back
  expect 0 mh-convert $folder.back "${options[@]}" -o again
  "$programs/model-print" again < $folder/rows | cmp - $folder.printed
done
peer check "${all[@]}"
mh-convert -q gpt2 | cmp - gpt2.safetensors
expect 0 mh-convert bert-base --seed 2 -o other
! cmp -s other bert-base.safetensors || fail "another seed, the same head"
