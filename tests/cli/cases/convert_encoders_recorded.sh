# Converts folders of encoders that transformers 4.57.1 saved, and compares hidden states, outputs of heads and the probabilities of each head with
# recorded outputs of transformers, so PyTorch is not needed. Converting back and again gives the same model and the same tokens. The case
# convert_encoders_full has changed folders.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
. "$ROOT/tests/cli/huggingface_recorded.sh"
programs=$(dirname "$(command -v mh-convert)")/../tests
recorded() { python3 -B "$ROOT/tests/cli/huggingface_encoders.py" "$@"; }
huggingface_recorded text > text
mapfile -t all < <(recorded names)
[ ${#all[@]} -ge 7 ] || fail "expected at least 7 folders; found ${#all[@]}"
# Without MH_FULL: one folder of each family, converted back only for transformers, which reads the written folders.
peer_paths=()
find_transformers torch
is_full=${MH_FULL:-}
[ -n "$is_full" ] || all=(roberta-4 xlm-roberta-span-4 camembert-number-4 modernbert-4)
# print MODEL FOLDER: prints the outputs of a model for the rows of FOLDER.
print() { "$programs/model-print" --probabilities "$1" < "$2/rows"; }
for folder in "${all[@]}"; do
  cp -r "$ROOT/tests/cli/recorded/$folder" .
  recorded weights $folder
  convert_exactly $folder $folder.safetensors; expect_stderr "entries of the vocabulary"
  print $folder.safetensors $folder > $folder.printed
  recorded compare $folder $folder.printed
  mh-prep -q vocab --type tokenizer-json --from $folder -o $folder.v
  "$programs/token-ids" $folder.v < text | sed "s/ $//" > ids
  cmp ids "$(recorded tokenizer $folder)/ids"
  [ -n "$is_full" ] || has_transformers || continue
  expect 0 mh-convert --to huggingface $folder.safetensors $folder.back; expect_stderr "in float32; all parameters"
  recorded config $folder $folder.back
  convert_exactly $folder.back again
  print again $folder | cmp - $folder.printed
  mh-prep -q vocab --type tokenizer-json --from $folder.back -o again.v
  cmp again.v $folder.v
done

# transformers computes the recorded outputs, and all hidden states, logits and probabilities, from the written folders, which need no other file.
compare_with_transformers "${all[@]}"
