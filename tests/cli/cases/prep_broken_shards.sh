# Shards truncated at each sixteenth of their size, a text file, and shards with a flipped bit in each section are
# refused.
make_text 400 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text > whole.mhs 2>/dev/null
size=$(stat -c %s whole.mhs)
for i in $(seq 0 15); do
  head -c $((size * i / 16)) whole.mhs > cut.mhs
  expect 3 mh-prep info cut.mhs
  status=0; mh-prep info - < cut.mhs >/dev/null 2>err || status=$?
  [ "$status" -eq 3 ] || fail "expected exit status 3 for $i/16 of a shard from a pipe; found $status"
  record_error 3 err "mh-prep info - < cut.mhs"
done
expect 3 mh-prep info text
expect 3 mh-prep cat text
for at in 5 20 100 $((size / 2)) $((size - 200)) $((size - 30)) $((size - 3)); do
  python3 -c "
import sys
b = bytearray(open('whole.mhs', 'rb').read()); b[$at] ^= 16; open('flip.mhs', 'wb').write(b)"
  expect 3 mh-prep info flip.mhs
done
