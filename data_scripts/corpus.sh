# shellcheck shell=bash
# Functions that download files and archives of public corpora and verify their sums. The scripts of this folder source this file.
#
# Tests set MH_TEST_SUMS=none, so that the scripts read small made archives: no published checksum is compared, and counts that differ are no error.

trap 'rm -f "${corpus_part:-}"' EXIT

# corpus_arguments "$@": checks the arguments of a script by the line "# usage: …" of its header. A word in brackets is optional, an ellipsis permits any
# number of arguments, and an optional argument may be empty, which selects its default. -h and --help print the header and exit with status 0; another
# option, or a wrong number of arguments, exits with status 2.
corpus_arguments() {
  local usage words word argument min=0 max=0 index=0
  for argument; do
    case $argument in -h | --help) awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"; exit 0 ;; esac
  done
  usage=$(sed -n 's/^# usage: //p' "$0")
  read -ra words <<< "$usage"
  for word in "${words[@]:1}"; do
    case $word in \[*) ;; *) min=$((min + 1)) ;; esac
    case $word in *…*) max=$# ;; *) max=$((max + 1)) ;; esac
  done
  refuse_arguments() { echo "${0##*/}: expected $1; found $2; usage: $usage" >&2; exit 2; }
  for argument; do
    index=$((index + 1))
    case $argument in -?*) refuse_arguments "arguments without options" "$argument" ;; esac
    [ -n "$argument" ] || [ "$index" -gt "$min" ] || refuse_arguments "the argument ${words[index]}" "an empty text"
  done
  if [ $# -lt "$min" ]; then refuse_arguments "the argument ${words[$# + 1]}" "none"; fi
  if [ $# -gt "$max" ]; then refuse_arguments "no argument after ${words[max]}" "${*:max+1:1}"; fi
}

# corpus_folder FOLDER: makes FOLDER and locks it until the script ends, since two scripts that write the same files would destroy them.
corpus_folder() {
  mkdir -p "$1" 2> /dev/null || { echo "${0##*/}: expected a folder that can be written; found none at $1; name another folder" >&2; exit 1; }
  exec {corpus_lock}< "$1"
  corpus_run lock "$corpus_lock" "$1"
}

# corpus_file FILE SUM MIRROR URL: writes a text or an archive to FILE, atomically; a FILE with the correct sums is not downloaded again. Reads
# $MH_DATA/MIRROR or $MH_DATA/MIRROR.zst (zstd) if one of them exists, else URL (https://, or file:// for a local copy; decompressed if URL ends in
# .gz and FILE does not end in gz). SUM: published sums of FILE, each as sha256:…, sha1:…, md5:… or bytes:…, joined by commas; "" prints the SHA-256
# found. A second call continues a broken download with known sums.
corpus_file() { corpus_run file "$1" "$2" "$3" "$4"; }

# corpus_members ARCHIVE FOLDER MEMBER=NAME…: writes members of a zip or tar archive (also .gz, .bz2 and .xz) to FOLDER/NAME, each atomically. A file
# that already has the content of its member keeps its time of modification. Exits with status 1 if a member is missing or incomplete. With a NAME
# that ends in /, a folder, MEMBER is a pattern (* also matches /), and each member that matches is written to this folder under its own name.
corpus_members() { corpus_run members "$@"; }

# corpus_python PACKAGE==VERSION…: prints a PYTHONPATH with these packages: the present PYTHONPATH if Python finds them, else a folder of
# ${XDG_CACHE_HOME:-$HOME/.cache}/multihead, into which the first call installs them from PyPI. Use: PYTHONPATH=$(corpus_python …); export PYTHONPATH
corpus_python() { corpus_run python "$@"; }

# corpus_run COMMAND ARGUMENT…: runs corpus.py, or exits with status 1.
corpus_run() {
  command -v python3 >/dev/null || { echo "${0##*/}: expected Python 3; found no python3 on the PATH; install the package python3" >&2; exit 1; }
  MH_SCRIPT=${0##*/} python3 -B "$(dirname "${BASH_SOURCE[0]}")/corpus.py" "$@" || exit 1
}

# corpus_make FILE INPUT… -- COMMAND…: writes the stdout of COMMAND to FILE, atomically, unless FILE is newer than each INPUT.
corpus_make() {
  local file=$1 is_new=yes
  shift
  [ -f "$file" ] || is_new=
  while [ "$1" != -- ]; do
    [ "$file" -nt "$1" ] || is_new=
    shift
  done
  [ -z "$is_new" ] || { echo "${0##*/}: ${file##*/}: present, not written again" >&2; return 0; }
  corpus_part=$file.part
  "${@:2}" > "$corpus_part" ||
    { echo "${0##*/}: ${file##*/}: expected the complete output of $2; found an error, which the lines above state; correct it and run the script again" >&2; exit 1; }
  mv "$corpus_part" "$file"
}

# corpus_setting FILE TEXT: writes TEXT to FILE unless FILE has it, so that FILE, an input of corpus_make, is newer after a change of the setting.
corpus_setting() { [ "$(cat "$1" 2> /dev/null)" = "$2" ] || echo "$2" > "$1"; }

# corpus_has_prep: returns whether mh-prep is on the PATH; prints a message if it is not.
corpus_has_prep() { command -v mh-prep >/dev/null || { echo "${0##*/}: mh-prep is not on the PATH, so no shards are written" >&2; return 1; }; }

# corpus_count WHAT EXPECTED FOUND: prints the known and the found count of WHAT. corpus_counts_end: exits with status 1 if a count differed.
corpus_count() {
  echo "${0##*/}: $1: expected $2; found $3" >&2
  [ "$2" = "$3" ] || corpus_counts_differ=$1
}
corpus_counts_end() {
  [ -n "${corpus_counts_differ:-}" ] || return 0
  [ "${MH_TEST_SUMS:-}" != none ] || { echo "${0##*/}: counts differ from the published corpus, which MH_TEST_SUMS=none permits" >&2; return 0; }
  echo "${0##*/}: $corpus_counts_differ: expected the count of the published corpus; found another; delete the files and download the archive again" >&2
  exit 1
}

# corpus_count_text NAME LINES TOKENS FILE…: compares the numbers of lines and tokens (words, and an end of each line) in the files with the known numbers.
# Counts with awk, since wc in the C locale ignores words without ASCII characters.
corpus_count_text() {
  local counts
  counts=$(LC_ALL=C awk '{ words += NF } END { printf "%.0f %.0f", NR, words + NR }' "${@:4}")
  corpus_count "$1: lines" "$2" "${counts% *}"
  corpus_count "$1: tokens" "$3" "${counts#* }"
}
# corpus_count_shard SHARD TOKENS: compares the number of tokens in a shard with the known number. corpus_count_entries VOCABULARY ENTRIES: likewise for entries.
corpus_count_shard() { corpus_count "${1##*/}: tokens" "$2" "$(mh-prep info "$1" | sed -n 's/^tokens\t//p')"; }
corpus_count_entries() { corpus_count "${1##*/}: entries" "$2" "$(sed -n '1,/^$/s/^entries //p' "$1")"; }

# corpus_split_bytes FOLDER NAME VALUES: splits the 100,000,000 bytes of FOLDER/NAME by position into train.txt (the first 90%), valid.txt (the next
# 5%) and test.txt (the last 5%), and compares the known number of distinct byte values, VALUES, with that of the file.
corpus_split_bytes() {
  local folder=$1 whole=$1/$2 num_bytes num_held_out
  num_bytes=$(wc -c < "$whole")
  num_held_out=$((num_bytes / 20))
  corpus_count "$2: bytes" 100000000 "$num_bytes"
  corpus_count "$2: byte values" "$3" "$(python3 -c 'import sys; print(len(set(open(sys.argv[1], "rb").read())))' "$whole")"
  corpus_make "$folder/train.txt" "$whole" -- head -c $((num_bytes - 2 * num_held_out)) "$whole"
  corpus_make "$folder/valid.txt" "$whole" -- corpus_slice "$whole" $((num_bytes - num_held_out)) "$num_held_out"
  corpus_make "$folder/test.txt" "$whole" -- tail -c "$num_held_out" "$whole"
}
# corpus_slice FILE END BYTES: prints the BYTES bytes of FILE that end at byte END. `head` ends before `tail`, so no broken pipe occurs.
corpus_slice() { head -c "$2" "$1" | tail -c "$3"; }
