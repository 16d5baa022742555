# shellcheck shell=bash
# Functions that download files of public corpora and verify their SHA-256. The scripts of this folder source this file.

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
