# Converts sentence pairs to a shard and back, from two files and from paste(1); checks every error.
make_text 300 | sed 's/^ *//; s/ *$//' > en
sed 's/w/v/g; s/$/ und/' en > de
mh-prep vocab de en > joint.vocab
mh-prep vocab de > de.vocab
mh-prep vocab en > en.vocab
expect 0 mh-prep translation --vocab joint.vocab de en -o joint.mhs;  expect_stderr "300 pairs"; expect_stderr "0 + 0 unknown"
mh-prep cat joint.mhs | cmp - <(paste de en)
[ "$(mh-prep cat --ids joint.mhs | awk -F'\t' 'NF == 2 && $1 ~ / 0$/ && $2 ~ / 0$/' | wc -l)" -eq 300 ] || fail "expected 300 pairs of ids, each ending in the end-of-line token 0"
expect 0 mh-prep info joint.mhs
expect_stdout "kind	translation"; expect_stdout "records	300"; expect_stdout "dropped	{}"
! grep -q source_vocabulary out || fail "expected one vocabulary in the header of a shard with a joint vocabulary"
# The shard does not depend on pipes, on the number of threads, or on whether one option or two options name the joint
# vocabulary.
count_words() { wc -w < "$1" | sed -E "s/([0-9])([0-9]{3})$/\1,\2/"; }  # count_words FILE: number of words, formatted as in messages
print_info() { mh-prep info --format json "$1" | sed 's/"file":"[^"]*",//; s/"provenance".*//'; }
paste de en | mh-prep translation --vocab joint.vocab --threads 3 - | cat > piped.mhs
mh-prep translation --source-vocab joint.vocab --target-vocab joint.vocab --threads 1 de - < en > twice.mhs
for other in piped twice; do [ "$(print_info joint.mhs)" = "$(print_info $other.mhs)" ] || fail "$other.mhs differs from joint.mhs"; done
mh-prep cat - < piped.mhs | cmp - <(paste de en)
expect 0 mh-prep translation --source-vocab de.vocab --target-vocab en.vocab de en -o two.mhs
expect 0 mh-prep info two.mhs
expect_stdout "source_vocabulary	$(($(wc -l < de.vocab) - 5))"
expect_stdout "vocabulary	$(($(wc -l < en.vocab) - 5))"
expect_stdout "source_tokens	$(($(wc -w < de) + 300))"
expect_stdout "target_tokens	$(($(wc -w < en) + 300))"
mh-prep cat two.mhs | cmp - <(paste de en)
expect 0 mh-prep translation --source-vocab en.vocab --target-vocab de.vocab de en -o wrong.mhs
expect_stderr " $(count_words de) + $(count_words en) unknown"
# Filters: dropped pairs are counted, reported, and recorded in the shard.
printf 'a b c d\na b\na\n\na b c\n' > s
printf 'x\nx y\nx\nx\nx y z x y z\n' > t
mh-prep vocab s t > st.vocab
record 3 mh-prep translation --vocab st.vocab s t -o x.mhs
expect 0 mh-prep translation --vocab st.vocab --empty drop --min-length 2 --max-length 5 s t -o few.mhs
expect_stderr "pairs dropped: 1 empty, 1 long, 2 short"; expect_stderr "1 pair,"
[ "$(mh-prep cat few.mhs)" = "a b	x y" ] || fail "expected the pair a b, x y only"
expect 0 mh-prep info few.mhs; expect_stdout 'dropped	{"empty":1,"long":1,"short":2}'; expect_stdout '"max_length":5'
expect 0 mh-prep translation --vocab st.vocab --empty drop --max-ratio 2 s t -o few.mhs; expect_stderr "1 empty, 1 ratio"
record 3 mh-prep translation --vocab st.vocab --empty drop --min-length 9 s t -o x.mhs
record 2 mh-prep translation --vocab st.vocab --min-length 9 --max-length 8 s t
record 2 mh-prep translation --vocab st.vocab --max-ratio 0.5 s t
record 2 mh-prep translation --vocab st.vocab --empty keep s t
# Missing vocabularies and inputs, and vocabularies and inputs that exclude each other.
record 2 mh-prep translation s t
record 2 mh-prep translation --source-vocab st.vocab s t
record 2 mh-prep translation --target-vocab st.vocab s t
record 2 mh-prep translation --vocab st.vocab --target-vocab st.vocab s t
record 2 mh-prep translation --vocab st.vocab s t s
record 2 mh-prep translation --vocab st.vocab - - < s
record 2 mh-prep translation --vocab st.vocab s t -o t
record 3 mh-prep translation --vocab s s t -o x.mhs
record 3 mh-prep translation --vocab st.vocab s missing -o x.mhs
# Files with different numbers of lines; lines with no tab or two tabs, CR LF, bytes that are not UTF-8, an end-of-line token or 10 MB; an
# empty file and a full device.
head -250 en > short
record 3 mh-prep translation --vocab joint.vocab de short -o x.mhs
record 3 mh-prep translation --vocab joint.vocab short de -o x.mhs
record 3 mh-prep translation --vocab st.vocab s -o x.mhs
printf 'a\tx\na\tx\ty\n' | record 3 mh-prep translation --vocab st.vocab - -o x.mhs
printf 'a\tx\r\n' > crlf
record 3 mh-prep translation --vocab st.vocab crlf -o x.mhs
expect 0 mh-prep translation --vocab st.vocab --crlf normalise crlf -o few.mhs; expect_stderr "1 line ended in CR LF"
[ "$(mh-prep cat few.mhs)" = "a	x" ] || fail "the CR is not dropped"
printf 'a\tx\na\t\xff\n' > bad8
record 3 mh-prep translation --vocab st.vocab bad8 -o x.mhs
printf 'a <eos> b\tx\n' > eos
record 3 mh-prep translation --vocab st.vocab eos -o x.mhs
{ printf 'a\tx\n'; head -c 10000000 /dev/zero | tr '\0' a; printf '\tx\n'; } > long
record 3 mh-prep translation --vocab st.vocab long -o x.mhs
: > empty
record 3 mh-prep translation --vocab st.vocab empty -o x.mhs
expect 1 mh-prep translation --vocab st.vocab s t --empty drop -o /dev/full
# A byte vocabulary: source and target must still be UTF-8 text; each sequence ends in a line feed.
mh-prep vocab --type byte s > bytes
expect 0 mh-prep translation --vocab bytes --empty drop s t -o few.mhs
mh-prep cat few.mhs | cmp - <(paste s t | sed 4d)
[ "$(mh-prep cat --ids few.mhs | tail -1)" = "97 32 98 32 99 10	120 32 121 32 122 32 120 32 121 32 122 10" ] || fail "expected the bytes of the last pair as ids"
record 3 mh-prep translation --vocab bytes bad8 -o x.mhs
golden_record refused
# A signal leaves no file.
mh-prep translation --vocab joint.vocab - -o x.mhs < <(paste de en; sleep 3) 2>/dev/null &
sleep 0.5; kill -TERM $!; wait $! && fail "a stopped run succeeded"
[ -z "$(find . -name '*x.mhs*')" ] || fail "expected no partial file; found $(find . -name '*x.mhs*')"
[ ! -e x.mhs ] || fail "a refused run left a shard"
