# Converts folders of encoder-decoders that transformers saved, and compares logits and the probabilities of each head with recorded outputs of
# transformers, so PyTorch is not needed. Decoding token by token and the conversion back give the same model, and text has the tokens of
# transformers. The case convert_translators_full has changed folders.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
. "$ROOT/tests/cli/huggingface_recorded.sh"
programs=$(dirname "$(command -v mh-convert)")/../tests
recorded() { python3 -B "$ROOT/tests/cli/huggingface_translators.py" "$@"; }
mapfile -t all < <(recorded names)
[ ${#all[@]} -ge 5 ] || fail "expected at least 5 folders; found ${#all[@]}"
# Without MH_FULL: one folder of each family, converted back only for transformers, which reads the written folders.
peer_paths=()
find_transformers torch sentencepiece
is_full=${MH_FULL:-}
[ -n "$is_full" ] || all=(marian-4 mt5-4 t5-4)
recorded text > text
print() { "$programs/model-print" ${3-} "$1" < "$2/rows"; }
for folder in "${all[@]}"; do
  cp -r "$ROOT/tests/cli/recorded/$folder" .
  recorded weights $folder
  convert_exactly $folder $folder.safetensors; expect_stderr "99 entries of the vocabulary"
  print $folder.safetensors $folder --probabilities > $folder.printed
  recorded compare $folder $folder.printed
  # --vocab takes both vocabularies of a checkpoint or of a folder.
  mh-prep -q translation --vocab $folder.safetensors text text -o $folder.mhs
  mh-prep cat --ids $folder.mhs > ids
  recorded ids $folder ids
  mh-prep -q translation --vocab $folder text text -o again.mhs
  diff <(mh-prep cat --ids again.mhs) ids
  if [ -n "$is_full" ]; then
    "$programs/model-print" --probabilities --steps $folder.safetensors < $folder/rows > steps
    recorded compare $folder steps
    expect 0 mh-eval $folder.safetensors $folder.mhs
    # The start token is never generated, so no line has the padding token.
    expect 0 mh-eval translate $folder.safetensors text --beam 2 --max-length-b 8
    [ "$(wc -l < out)" -eq "$(wc -l < text)" ] || fail "$folder: expected a line for each line of text"
    ! grep -q "<pad>" out || fail "$folder: the padding token in a translation"
  elif ! has_transformers; then
    continue
  fi
  expect 0 mh-convert --to huggingface $folder.safetensors $folder.back; expect_stderr "in float32; all parameters"
  recorded config $folder $folder.back
  convert_exactly $folder.back again
  print again $folder --probabilities | cmp - $folder.printed
  mh-prep -q translation --vocab again text text -o again.mhs
  diff <(mh-prep cat --ids again.mhs) ids
done

# transformers computes the recorded outputs, and all logits and probabilities, from the written folders.
compare_with_transformers "${all[@]}"
