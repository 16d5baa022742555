# Texts of mh-eval: characters that other programs treat as line ends are ordinary characters, a byte order mark is
# dropped, and a line feed inside the bytes of a character is refused.
[ -n "$(command -v mh-eval || true)" ] || skip "mh-eval is not built"
print_score() { mh-eval bleu -q --tokenize none --format json "$@" | with_tolerance -c '
import json, math, sys, tolerance
row = json.load(sys.stdin)
# BLEU is the exponential of the mean of four logarithms of percentages; a logarithm is at most ln 100 and has four roundings.
bound = tolerance.chain_bound(4 * 4 + 2, 100 * math.log(100), tolerance.FP64)
print(row["sentences"], row["hypothesis_tokens"], 100.0 if abs(row["score"] - 100) <= bound else row["score"])'; }
line='the cat sat on the mat'
printf '%s\n%s\n' "$line" "$line" > plain
# Each row of the list: a name, the bytes of a character, and the number of tokens into which the character, between "a"
# and "b", divides the word. This word begins the second line of the text.
while read -r name byte tokens; do
  printf "%s\na${byte}b on the mat\n" "$line" > odd
  [ "$(print_score odd odd)" = "2 $((9 + tokens)) 100.0" ] || fail "$name: $(print_score odd odd)"
  # The last line feed is optional.
  head -c -1 odd > short
  [ "$(print_score short odd)" = "2 $((9 + tokens)) 100.0" ] || fail "$name without the last line feed: $(print_score short odd)"
done <<'T'
NUL \000 1
U+2028 \342\200\250 2
U+0085 \302\205 2
FF \014 2
VT \013 2
CR \015 2
U+001C \034 2
U+00A0 \302\240 2
U+FEFF \357\273\277 1
T
(printf '\xef\xbb\xbf'; cat plain) > marked
expect 0 mh-eval bleu --tokenize none marked plain; expect_stderr "marked: the byte order mark at the start is dropped"
expect_stdout "	100"
expect 0 mh-eval bleu --tokenize none plain marked plain; expect_stderr "marked: the byte order mark"
expect 0 mh-eval bleu --tokenize none - plain < marked; expect_stderr "standard input: the byte order mark"
printf 'the cat\ncaf\xc3\n\xa9 au lait\n' > broken
for files in "broken plain" "plain broken" "plain plain broken"; do
  # shellcheck disable=SC2086
  expect 3 mh-eval bleu $files; expect_stderr "broken:2: byte 11 of the file: expected UTF-8 text; found the byte 0xC3"
done
printf 'fine\n\xff\n' > bad
expect 3 mh-eval bleu bad plain; expect_stderr "bad:2: byte 5 of the file"

# Prompts, source sentences and target prefixes.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
tiny=(--set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 --set model.layers=1 --set train.batch.sequence_length=16
  --set train.batch.tokens=64 --set train.length=2u)
mh-prep vocab -q plain > v
mh-prep lm -q --vocab v plain -o t.mhs
mh-train -q "${tiny[@]}" --train t.mhs --out lm
printf 'the cat' > prompt
(printf '\xef\xbb\xbf'; cat prompt) > marked.prompt
generate() { mh-eval generate -q lm/last.safetensors --length 3 --seed 1 "$@"; }
expect 0 mh-eval generate lm/last.safetensors --length 3 --seed 1 --prompt-file marked.prompt
expect_stderr "marked.prompt: the byte order mark at the start is dropped"
generate --prompt-file prompt | cmp - out
expect 3 mh-eval generate lm/last.safetensors --prompt-file broken; expect_stderr "broken:2: byte 11 of the file"
expect 3 mh-eval generate lm/last.safetensors --prompt-file - < broken; expect_stderr "standard input:2: byte 11 of the file"
mh-prep translation -q --vocab v plain plain -o p.mhs
mh-train -q "${tiny[@]}" --set model.backbone=encoder-decoder --train p.mhs --out mt
expect 0 mh-eval translate mt/last.safetensors marked; expect_stderr "marked: the byte order mark at the start is dropped"
mh-eval translate -q mt/last.safetensors plain | cmp - out
expect 3 mh-eval translate mt/last.safetensors broken; expect_stderr "broken:2: byte 11 of the file"
expect 3 mh-eval translate mt/last.safetensors plain --prefix-file broken; expect_stderr "broken:2: byte 11 of the file"
