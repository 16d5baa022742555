# shellcheck shell=bash
# Sourced by the scripts that fetch a public corpus.

trap 'rm -f "${corpus_part:-}"' EXIT

# corpus_file FILE SUM MIRROR URL: FILE, whole and of this SHA-256 or not at all, from $MH_DATA/MIRROR (zstd) where that is
# there, else from URL (https, or file:// of a copy of one's own; one that ends in .gz is unpacked). Ends the script with status 1 where it cannot be had.
corpus_file() {
  local file=$1 sum=$2 mirror=${MH_DATA:-}/$3 url=$4 name found from
  name="${0##*/}: ${file##*/}"
  corpus_part=$file.part
  if [ -n "${MH_DATA:-}" ] && [ -f "$mirror" ]; then
    from=$mirror
    zstd -dcq "$mirror" > "$corpus_part" || { echo "$name: expected a file of zstd; found another: $mirror" >&2; exit 1; }
  else
    from=$url
    corpus_unpacked "$url" > "$corpus_part" ||
      { echo "$name: expected a mirror in MH_DATA, or $url; found neither in reach; set MH_DATA" >&2; exit 1; }
  fi
  found=$(sha256sum "$corpus_part" | cut -d' ' -f1)
  [ "$found" = "$sum" ] || { echo "$name: expected sha256 $sum; found $found in $from" >&2; exit 1; }
  mv "$corpus_part" "$file"
}

corpus_unpacked() { if [[ $1 == *.gz ]]; then corpus_get "$1" | gzip -dcq; else corpus_get "$1"; fi; }

# What is at a URL, by whatever is there to get it.
corpus_get() {
  if command -v curl >/dev/null; then curl -fsSL --connect-timeout 10 "$1"
  else python3 -c 'import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1], timeout=10).read())' "$1"; fi 2>/dev/null
}
