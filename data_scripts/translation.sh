# shellcheck shell=bash
# Functions that iwslt14 and wmt14-en-de share; these scripts source this file after corpus.sh. A file appears complete or not at all, and a
# second call makes only the files that are missing or older than the files that they are made from.

translation_scripts=$(dirname "${BASH_SOURCE[0]}")

# translation_is_made FILE INPUT…: succeeds if FILE is newer than each INPUT.
translation_is_made() {
  local input
  [ -f "$1" ] || return 1
  for input in "${@:2}"; do [ "$1" -nt "$input" ] || return 1; done
}

# translation_make FILE INPUT… -- COMMAND…: writes the output of COMMAND to FILE unless FILE is newer than each INPUT.
translation_make() {
  local file=$1 inputs=() status=0
  shift
  while [ "$1" != -- ]; do inputs+=("$1"); shift; done
  shift
  ! translation_is_made "$file" "${inputs[@]}" || return 0
  { "$@" > "$file.part"; } || status=$?
  [ "$status" -eq 0 ] && mv "$file.part" "$file" && return
  rm -f "$file.part"
  echo "${0##*/}: $file: expected a complete file from $1; found exit status $status; correct the error above and call the script again" >&2
  exit 1
}

# translation_wait PID…: waits for the processes and exits with status 1 if one of them failed.
translation_wait() {
  local pid status=0
  for pid; do wait "$pid" || status=1; done
  [ "$status" -eq 0 ] || exit 1
}

# translation_moses LANGUAGE STEP… < in > out: applies steps of moses in this order. An option of a step follows it after a space.
translation_moses() {
  local language=$1 step rest=("${@:3}")
  read -ra step <<< "$2"
  if [ ${#rest[@]} -eq 0 ]; then "$translation_scripts/moses" "${step[@]}" --language "$language"
  else "$translation_scripts/moses" "${step[@]}" --language "$language" | translation_moses "$language" "${rest[@]}"; fi
}

# translation_segments FILE…: prints the texts of the <seg> elements of files in the format of mteval (xml, sgm), one a line, with ' for ’. As in
# fairseq's scripts, entities such as &amp; remain, which an XML parser would decode.
translation_segments() { LC_ALL=C sed -n "/<seg id/{s/<seg id=\"[0-9]*\">[[:space:]]*//g;s/[[:space:]]*<\/seg>[[:space:]]*//g;s/’/'/g;p}" "$@"; }

# translation_lines FILE: prints the number of lines. translation_words FILE: prints the number of words. translation_field FIELD SHARD: prints
# a field of `mh-prep info`. translation_entries VOCABULARY: prints the number of entries.
translation_lines() { wc -l < "$1" | tr -d ' '; }
translation_words() { wc -w < "$1" | tr -d ' '; }
translation_field() { mh-prep info "$2" | sed -n "s/^$1	//p"; }
translation_entries() { sed -n 's/^entries //p;/^$/q' "$1"; }

# translation_mh_prep: succeeds if mh-prep is on the PATH. Otherwise prints that no shards are written.
translation_mh_prep() {
  ! command -v mh-prep > /dev/null || return 0
  echo "${0##*/}: mh-prep is not on the PATH, so no vocabulary and no shards are written" >&2
  return 1
}

# translation_prep FILE INPUT… -- ARGUMENT…: makes FILE with mh-prep ARGUMENT… -o FILE unless FILE is newer than each INPUT.
translation_prep() {
  local file=$1 inputs=()
  shift
  while [ "$1" != -- ]; do inputs+=("$1"); shift; done
  shift
  translation_is_made "$file" "${inputs[@]}" || mh-prep "$@" -o "$file"
}
