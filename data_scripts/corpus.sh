# shellcheck shell=bash
# Functions that download files and archives of public corpora and verify their sums. The scripts of this folder source this file.
#
# Tests set MH_TEST_SUMS=none, so that the scripts read small made archives: no published sum is compared, and counts that differ are no error.

trap 'rm -f "${corpus_part:-}"' EXIT

# corpus_file FILE SUM MIRROR URL: writes FILE atomically if its SHA-256 is SUM. Reads $MH_DATA/MIRROR (zstd) if that
# file exists, else URL (https://, or file:// for a local copy; a URL that ends in .gz is decompressed). Exits with
# status 1 if neither can be read or the content has another SHA-256.
corpus_file() {
  local file=$1 sum=$2 mirror=${MH_DATA:-}/$3 url=$4 name actual_sum from
  name="${0##*/}: ${file##*/}"
  corpus_part=$file.part
  if [ -n "${MH_DATA:-}" ] && [ -f "$mirror" ]; then
    from=$mirror
    zstd -dcq "$mirror" > "$corpus_part" || { echo "$name: expected a zstd file; found another format in $mirror; delete this file or download it again" >&2; exit 1; }
  else
    from=$url
    corpus_unpacked "$url" > "$corpus_part" ||
      { echo "$name: expected the file in the mirror MH_DATA or from $url; found no readable file at either place; set MH_DATA to the folder of the mirror" >&2; exit 1; }
  fi
  actual_sum=$(sha256sum "$corpus_part" | cut -d' ' -f1)
  [ "$actual_sum" = "$sum" ] || { echo "$name: expected sha256 $sum; found $actual_sum in $from; download from another URL, or replace the file in the mirror MH_DATA" >&2; exit 1; }
  mv "$corpus_part" "$file"
}

# corpus_unpacked URL: writes the content of URL to stdout, decompressed if URL ends in .gz.
corpus_unpacked() { if [[ $1 == *.gz ]]; then corpus_get "$1" | gzip -dcq; else corpus_get "$1"; fi; }

# corpus_get URL: writes the content of URL to stdout, with curl or, if curl is not installed, Python.
corpus_get() {
  if command -v curl >/dev/null; then curl -fsSL --connect-timeout 10 "$1"
  else python3 -c 'import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1], timeout=10).read())' "$1"; fi 2>/dev/null
}

# corpus_archive FILE SUM MIRROR URL: writes an archive to FILE, atomically; a FILE with the correct sums is not downloaded again. Reads
# $MH_DATA/MIRROR or $MH_DATA/MIRROR.zst (zstd) if one of them exists, else URL (https://, or file:// for a local copy). SUM: published sums, each
# as sha256:…, sha1:…, md5:… or bytes:…, joined by commas; "" prints the SHA-256 found. A second call continues a broken download with known sums.
corpus_archive() { corpus_run archive "$1" "$2" "$3" "$4"; }

# corpus_members ARCHIVE FOLDER MEMBER=NAME…: writes members of a zip or tar archive (also .gz, .bz2 and .xz) to FOLDER/NAME, each atomically. A file
# that already has the content of its member keeps its time of modification. Exits with status 1 if a member is missing or incomplete.
corpus_members() { corpus_run members "$@"; }

# corpus_python PACKAGE==VERSION…: prints a PYTHONPATH with these packages: the present PYTHONPATH if Python finds them, else a folder of
# ${XDG_CACHE_HOME:-$HOME/.cache}/multihead, into which the first call installs them from PyPI. Use: PYTHONPATH=$(corpus_python …); export PYTHONPATH
corpus_python() { corpus_run python "$@"; }

# corpus_run COMMAND ARGUMENT…: runs corpus.py, or exits with status 1.
corpus_run() {
  command -v python3 >/dev/null || { echo "${0##*/}: expected Python 3; found no python3 on the PATH; install the package python3" >&2; exit 1; }
  MH_SCRIPT=${0##*/} python3 -B "$(dirname "${BASH_SOURCE[0]}")/corpus.py" "$@" || exit 1
}

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
