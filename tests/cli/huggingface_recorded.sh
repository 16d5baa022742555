# Functions for the cases that convert recorded folders of transformers (huggingface_recorded.py). A case defines the functions
#   recorded COMMAND…             runs the script of its models, such as huggingface_decoders.py
#   copy_to_bad FOLDER CHANGE…    makes the folder `bad`, a copy of the recorded FOLDER with changed tensors
#   print MODEL FOLDER            prints the outputs of a model for the rows of FOLDER
huggingface_recorded() { python3 -B "$ROOT/tests/cli/huggingface_recorded.py" "$@"; }

# convert_exactly FOLDER MODEL: converts FOLDER to MODEL without a warning; the message of mh-convert stays in the file err.
convert_exactly() {
  expect 0 mh-convert "$1" -o "$2"
  ! grep -q "warning" err || fail "$1: a warning"
}
# expect_same_models: each line of stdin has a folder and changes of its tensors, with which the folder must give the same model.
expect_same_models() {
  local folder changes
  while read -r folder changes; do
    copy_to_bad $folder $changes
    expect 0 mh-convert bad -o same
    print same $folder | cmp - <(print $folder.safetensors $folder)
  done
}
# expect_refused_tensors: each line of stdin has a folder, changes of its tensors, and words of the error for the changed folder.
expect_refused_tensors() {
  local folder changes words
  while IFS='|' read -r folder changes words; do
    copy_to_bad $folder $changes
    expect 3 mh-convert bad -o x; expect_stderr "$words"
    [ ! -e x ] || fail "expected no output file after an error; found one"
  done
}
# expect_refused_settings: each line of stdin has a folder, new settings of its config.json, and words of the error for the changed folder.
expect_refused_settings() {
  local folder settings words
  while IFS='|' read -r folder settings words; do
    copy_to_bad $folder
    huggingface_recorded update bad/config.json "$settings"
    expect 3 mh-convert bad -o x; expect_stderr "$words"
  done
}
# find_transformers MODULE…: sets peer_paths to the PYTHONPATH of each version of transformers that ./run installed together with the Python
# modules MODULE…, and lacking to what the other versions lack.
peer_paths=() lacking=
find_transformers() {
  local i names=("transformers 4" "transformers 5") paths=("${MH_CHECK_PYTHONPATH:-}" "${MH_NEWEST_PYTHONPATH:-}") missing
  for i in 0 1; do
    missing=${names[i]}
    [ -z "${paths[i]}" ] || missing=$(PYTHONPATH=${paths[i]} python3 -c 'import importlib.util, sys
print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None), sep=" and ")' transformers "$@")
    if [ -z "$missing" ]; then peer_paths+=("${paths[i]}")
    else lacking+="${lacking:+, }$missing${paths[i]:+ for ${names[i]}}"; fi
  done
}
# has_transformers: succeeds if find_transformers found a version of transformers.
has_transformers() { [ ${#peer_paths[@]} -gt 0 ]; }
# compare_with_transformers FOLDER…: each version of find_transformers computes from FOLDER.back the recorded outputs, and all numbers of
# FOLDER.printed. Prints a last line "without …" if a version lacks something.
compare_with_transformers() {
  local path
  needs_peers
  for path in "${peer_paths[@]}"; do
    PYTHONPATH=$path recorded peer "$@" 2>peer.err || { cat peer.err; fail "$path"; }
  done
  [ -z "$lacking" ] || echo "without $lacking; compared with recorded outputs only"
}
