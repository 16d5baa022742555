# Converts folders of encoder-decoders that transformers saved, and compares logits and the probabilities of each head with recorded outputs of
# transformers, so PyTorch is not needed. Decoding token by token and the conversion back give the same model, and text has the tokens of
# transformers. The case convert_translators_full has changed folders.
[ -n "$(command -v mh-convert || true)" ] || skip "mh-convert is not built"
translators() { python3 -B "$ROOT/tests/cli/huggingface_translators.py" "$@"; }
programs=$(dirname "$(command -v mh-convert)")/../tests
mapfile -t all < <(translators names)
[ ${#all[@]} -ge 5 ] || fail "expected at least 5 folders; found ${#all[@]}"
# Without MH_FULL: one folder of each family, converted back only for transformers, which reads the written folders.
peer_paths=()
find_transformers torch sentencepiece
is_full=${MH_FULL:-}
[ -n "$is_full" ] || all=(marian-4 mt5-4 t5-4)
translators text > text
print() { "$programs/model-print" ${3-} "$1" < "$2/rows"; }
for folder in "${all[@]}"; do
  cp -r "$ROOT/tests/cli/recorded/$folder" .
  translators weights $folder
  expect 0 mh-convert $folder -o $folder.safetensors; expect_stderr "99 entries of the vocabulary"
  ! grep -q "warning" err || fail "$folder: a warning"
  print $folder.safetensors $folder --probabilities > $folder.printed
  translators compare $folder $folder.printed
  # --vocab takes both vocabularies of a checkpoint or of a folder.
  mh-prep -q translation --vocab $folder.safetensors text text -o $folder.mhs
  mh-prep cat --ids $folder.mhs > ids
  translators ids $folder ids
  mh-prep -q translation --vocab $folder text text -o again.mhs
  diff <(mh-prep cat --ids again.mhs) ids
  if [ -n "$is_full" ]; then
    "$programs/model-print" --probabilities --steps $folder.safetensors < $folder/rows > steps
    translators compare $folder steps
    expect 0 mh-eval $folder.safetensors $folder.mhs
    # The start token is never generated, so no line has the padding token.
    expect 0 mh-eval translate $folder.safetensors text --beam 2 --max-length-b 8
    [ "$(wc -l < out)" -eq "$(wc -l < text)" ] || fail "$folder: expected a line for each line of text"
    ! grep -q "<pad>" out || fail "$folder: the padding token in a translation"
  elif [ ${#peer_paths[@]} -eq 0 ]; then
    continue
  fi
  expect 0 mh-convert --to huggingface $folder.safetensors $folder.back; expect_stderr "in float32; all parameters"
  translators config $folder $folder.back
  expect 0 mh-convert $folder.back -o again
  ! grep -q "warning" err || fail "$folder.back: a warning"
  print again $folder --probabilities | cmp - $folder.printed
  mh-prep -q translation --vocab again text text -o again.mhs
  diff <(mh-prep cat --ids again.mhs) ids
done

# transformers computes the recorded outputs, and all logits and probabilities, from the written folders.
needs_peers
run_with_transformers translators peer "${all[@]}"
