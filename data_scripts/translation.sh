# shellcheck shell=bash
# Functions that the scripts of translation share. These scripts source this file after corpus.sh.

translation_scripts=$(dirname "${BASH_SOURCE[0]}")
translation_groups=()  # process groups that run, each with a minus sign
# shellcheck disable=SC2154  # corpus_make assigns corpus_part
trap '[ ${#translation_groups[@]} -eq 0 ] || kill -- "${translation_groups[@]}" 2> /dev/null; rm -f "${corpus_part:-}"' EXIT

# translation_sides FUNCTION LANGUAGE LANGUAGE: runs FUNCTION for both languages at the same time and exits with status 1 if one of them fails. A signal
# that ends the script ends both, which would otherwise write the files of a second call.
translation_sides() {
  local l pids=() pid status=0
  set -m  # each language is a process group
  "$translation_scripts/moses" tokenize --language en < /dev/null || exit 1  # installs the packages before two processes need them
  for l in "$2" "$3"; do
    # shellcheck disable=SC2154  # corpus_make assigns corpus_part
    (trap 'rm -f "${corpus_part:-}"' EXIT; "$1" "$l") &
    pids+=($!) translation_groups+=("-$!")
  done
  set +m
  for pid in "${pids[@]}"; do wait "$pid" || status=1; done
  translation_groups=()
  [ "$status" -eq 0 ] || exit 1
}

# translation_moses LANGUAGE STEP… < in > out: applies steps of moses in this order; a STEP may have options after spaces.
translation_moses() {
  local language=$1 step rest=("${@:3}")
  read -ra step <<< "$2"
  if [ ${#rest[@]} -eq 0 ]; then "$translation_scripts/moses" "${step[@]}" --language "$language"
  else "$translation_scripts/moses" "${step[@]}" --language "$language" | translation_moses "$language" "${rest[@]}"; fi
}

# translation_segments FILE…: prints the texts of the <seg> elements of files in the format of mteval (xml, sgm), one a line. As in fairseq's
# scripts, entities such as &amp; remain, which an XML parser would decode. translation_plain_quotes < in > out: writes ' for ’.
translation_segments() { LC_ALL=C sed -n '/<seg id/{s/<seg id="[0-9]*">[[:space:]]*//g;s/[[:space:]]*<\/seg>[[:space:]]*//g;p}' "$@"; }
translation_plain_quotes() { LC_ALL=C sed "s/’/'/g"; }

# translation_clean RATIO MIN MAX SOURCE TARGET CLEANED-SOURCE CLEANED-TARGET: runs clean-pairs unless both outputs are newer than the inputs.
translation_clean() {
  if [ "$6" -nt "$4" ] && [ "$6" -nt "$5" ] && [ "$7" -nt "$4" ] && [ "$7" -nt "$5" ]; then return; fi
  "$translation_scripts/clean-pairs" "$@"
}

# translation_lengths VOCABULARY FILE: prints the number of subwords of each line.
translation_lengths() { mh-prep lm -q --vocab "$1" "$2" | mh-prep cat --ids - | awk '{ print NF - 1 }'; }

# translation_lines FILE: prints the number of lines. translation_words FILE: prints the number of words; wc in the C locale would ignore words
# without ASCII characters. translation_entries VOCABULARY: prints the number of entries. translation_field FIELD SHARD: prints a field of
# `mh-prep info`.
translation_lines() { LC_ALL=C awk 'END { printf "%.0f", NR }' "$1"; }
translation_words() { LC_ALL=C awk '{ words += NF } END { printf "%.0f", words }' "$1"; }
translation_entries() { sed -n '1,/^$/s/^entries //p' "$1"; }
translation_field() { mh-prep info "$2" | sed -n "s/^$1\t//p"; }
