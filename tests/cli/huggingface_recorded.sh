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
# compare_with_peers PACKAGES PATHS FOLDER…: transformers of each path in the text PATHS computes the recorded outputs from FOLDER.back.
# PACKAGES: Python packages that this needs, separated by commas. Prints a last line "without …" if one is missing.
compare_with_peers() {
  local lacking='' path
  needs_peers
  for path in $2; do
    PYTHONPATH=$path python3 -c "import $1" 2>/dev/null || { lacking=PyTorch; continue; }
    PYTHONPATH=$path recorded peer "${@:3}" 2>peer.err || { cat peer.err; fail "$path"; }
  done
  [ -n "${MH_CHECK_PYTHONPATH:-}" ] || lacking="transformers 4.57.1"
  [ -z "$lacking" ] || echo "without $lacking; compared with recorded outputs only"
}
