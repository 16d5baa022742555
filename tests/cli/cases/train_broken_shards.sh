# Shards with valid checksums and invalid parts are refused when they are mapped into memory.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
printf 'one two\nthree\n' > text
mh-prep vocab -q --type word text > v
mh-prep lm -q --vocab v text -o whole.mhs
mh-prep translation -q --vocab v text text -o pairs.mhs
train="mh-train --train x.mhs --out run --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 \
  --set train.batch.sequence_length=2 --set train.batch.tokens=2 --set train.length=1u"
# expect_refused MESSAGE CODE: mh-train must refuse, with MESSAGE, a shard whose parts the Python CODE changes.
expect_refused() { python3 -B "$ROOT/tests/cli/shard_bytes.py" whole.mhs x.mhs "$2"; expect 3 $train; expect_stderr "$1"; }
expect_refused 'the seek table descriptor 0; found 1' 's.descriptor = 1'
expect_refused 'a trailer, then the seek table' 's.num_frames = 2'
mv pairs.mhs whole.mhs
train="$train --set model.backbone=encoder-decoder"
expect_refused 'content with a matching checksum' \
  's.content = struct.pack("<4H", 2, 0, 3, 0); s.varints = bytes([2, 2]); s.trailer = {"tokens": 4, "runs": 2, "content_xxh64": 1}'
