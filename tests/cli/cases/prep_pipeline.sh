# From text to a vocabulary and a shard and back, through files and pipes.
make_text 500 > text.txt
mh-prep vocab --type word - < text.txt > my.vocab
mh-prep lm --vocab my.vocab text.txt -o a.mhs
mh-prep lm --vocab my.vocab - < text.txt | cat > b.mhs
mh-prep lm --vocab my.vocab --threads 1 text.txt > c.mhs
cmp <(zstd -dc a.mhs 2>/dev/null || true) <(zstd -dc b.mhs 2>/dev/null || true)
tokens=$(awk '{n += NF + 1} END {print n}' text.txt)
expect 0 mh-prep info a.mhs
expect_stdout "tokens	$tokens"
expect_stdout "kind	language-model"
cat a.mhs | mh-prep info --format json - > info.json
grep -q "\"tokens\":$tokens," info.json || fail "expected $tokens tokens in the JSON of mh-prep info"
mh-prep cat c.mhs > back.txt
cmp back.txt <(sed 's/^ *//; s/ *$//' text.txt)
mh-prep cat a.mhs - < c.mhs | cmp - <(cat back.txt back.txt)
cp text.txt $'name\xff.txt'  # a file name may be any bytes, the shard's header is UTF-8
expect 0 mh-prep lm --vocab my.vocab $'name\xff.txt' -o d.mhs
expect 0 mh-prep info --format json d.mhs
for subcommand in info cat; do expect 1 bash -c "mh-prep $subcommand a.mhs >/dev/full"; done
mh-prep info a.mhs | true; [ "${PIPESTATUS[0]}" -eq 0 ] || fail "expected exit status 0 for info into a closed pipe"
[ "$(mh-prep cat --ids a.mhs | wc -l)" -eq 500 ] || fail "expected 500 lines from cat --ids"
mh-prep cat a.mhs | head -1 >out 2>err; [ "${PIPESTATUS[0]}" -eq 0 ] || fail "expected exit status 0 for cat into head"
[ ! -s err ] || fail "expected no message from cat into head"
if command -v zstd >/dev/null; then
  [ "$(zstd -dc a.mhs | wc -c)" -eq $((2 * tokens)) ] || fail "zstd -dc does not print the tokens"
fi
