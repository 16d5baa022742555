# Shards with valid checksums and invalid parts are refused when they are read as a stream.
printf 'one two\nthree\n' > text
mh-prep vocab -q --type word text > v
mh-prep lm -q --vocab v text -o whole.mhs
# change_shard CODE: makes x.mhs, a shard of three tokens whose parts the Python CODE changes.
change_shard() { python3 -B "$ROOT/tests/cli/shard_bytes.py" whole.mhs x.mhs "$1"; }
change_shard ''
expect 0 mh-prep info x.mhs
# expect_refused MESSAGE CODE: mh-prep must refuse the shard with MESSAGE.
expect_refused() { change_shard "$2"; expect 3 mh-prep info x.mhs; expect_stderr "$1"; }
expect_refused 'header: expected at most' 's.json_bytes = 1 << 40'
expect_refused 'header: expected a JSON object' 's.header_text = b"[1]"'
expect_refused 'header: expected all keys' 'del s.header["kind"]'
expect_refused 'header: expected a source tokenizer of at most' \
  's.header.update(kind="pairs", fields=["source", "target"], source_vocabulary=5, source_fingerprint="f", source_tokenizer_bytes=9999)'
expect_refused 'trailer: expected all keys' 's.without = "runs"'
expect_refused 'below 2^32; found a larger length' 's.varints = b"\x80" * 5 + b"\1"'
expect_refused 'below 2^32; found 34359738367' 's.varints = b"\xff" * 4 + b"\x7f"'
expect_refused '1 sequence, in total 3 tokens; found 1 sequence, in total 2 tokens' 's.varints = b"\2"'
expect_refused 'bytes of sequence lengths, as the trailer states; found more' 's.trailer = {"lengths_bytes": 0}'
expect_refused 'one complete zstd stream of sequence lengths' 's.lengths = zstd(s.varints)[:-1]'
expect_refused 'a larger frame' 's.token_frame = zstd(s.content)[:6] + (struct.pack("<I", 0x1FFFFF << 3)[:3] + bytes(0x1FFFFF)) * 9'
expect_refused '4 tokens in 1 sequence, as the trailer states; found 3' 's.trailer = {"tokens": 4}; s.varints = b"\4"'
expect_refused 'content with a matching checksum' 's.trailer = {"content_xxh64": 1}'
head -c 6 whole.mhs > x.mhs
expect 3 mh-prep info x.mhs; expect_stderr "byte 6: expected a header"

# Paths of inputs that exceed the size limit of a header's JSON text, in which each character of $folder takes six bytes.
folder=$(printf '\1%.0s' $(seq 250))
mkdir -p "$folder/$folder/$folder/$folder" && cp text "$folder/$folder/$folder/$folder"
inputs=()
for _ in $(seq 400); do inputs+=("$folder/$folder/$folder/$folder/text"); done
prepare_many_inputs() { mh-prep lm --vocab v "${inputs[@]}" -o none.mhs; }
expect 2 prepare_many_inputs; expect_stderr "bytes for the names of inputs"
[ ! -e none.mhs ] || fail "expected no file after an error; found one"
