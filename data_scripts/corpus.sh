# shellcheck shell=bash
# Downloads files of public corpora and verifies their SHA-256. Sourced by the scripts of this folder.

trap 'rm -f "${corpus_part:-}"' EXIT

# corpus_file FILE SUM MIRROR URL: writes FILE atomically if its SHA-256 is SUM. Reads $MH_DATA/MIRROR (zstd) if that
# file exists, else URL (https://, or file:// for a local copy; a URL that ends in .gz is decompressed). Exits with
# status 1 if the file cannot be read or has another SHA-256.
corpus_file() {
  local file=$1 sum=$2 mirror=${MH_DATA:-}/$3 url=$4 name found from
  name="${0##*/}: ${file##*/}"
  corpus_part=$file.part
  if [ -n "${MH_DATA:-}" ] && [ -f "$mirror" ]; then
    from=$mirror
    zstd -dcq "$mirror" > "$corpus_part" || { echo "$name: expected a zstd file; found another format: $mirror" >&2; exit 1; }
  else
    from=$url
    corpus_unpacked "$url" > "$corpus_part" ||
      { echo "$name: expected a mirror in MH_DATA, or $url; could read neither; set MH_DATA" >&2; exit 1; }
  fi
  found=$(sha256sum "$corpus_part" | cut -d' ' -f1)
  [ "$found" = "$sum" ] || { echo "$name: expected sha256 $sum; found $found in $from" >&2; exit 1; }
  mv "$corpus_part" "$file"
}

corpus_unpacked() { if [[ $1 == *.gz ]]; then corpus_get "$1" | gzip -dcq; else corpus_get "$1"; fi; }

# corpus_get URL: writes the content of URL to stdout, with curl or, if curl is not installed, Python.
corpus_get() {
  if command -v curl >/dev/null; then curl -fsSL --connect-timeout 10 "$1"
  else python3 -c 'import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1], timeout=10).read())' "$1"; fi 2>/dev/null
}
