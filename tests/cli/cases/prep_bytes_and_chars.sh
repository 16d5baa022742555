# mh-prep cat reproduces any input from a shard with a byte vocabulary, and text from one with a character vocabulary.
head -c 100000 /dev/urandom > any
mh-prep vocab --type byte any > byte.vocab
mh-prep lm --vocab byte.vocab any > any.mhs
mh-prep cat any.mhs | cmp - any
# A compressed file is encoded as bytes, with a warning.
zstd -qf any -o any.zst
expect 0 mh-prep lm --vocab byte.vocab any.zst -o packed.mhs; expect_stderr "any.zst is a zstd file"
expect 0 mh-prep vocab --type byte any.mhs -o x; expect_stderr "any.mhs is a shard file"
expect 0 mh-prep lm --vocab byte.vocab any -o any.mhs; ! grep -q "compressed" err || fail "$(cat err)"
# Text with a character vocabulary.
printf 'grün\nweiß\n\n' > text
mh-prep vocab --type char text > char.vocab
mh-prep lm --vocab char.vocab text | mh-prep cat - | cmp - text
