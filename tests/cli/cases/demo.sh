# data_scripts/demo at a tiny size: a demo that failed continues in its folder and completes every step; other folders are refused.
demo=$ROOT/data_scripts/demo
[ -x "$demo" ] || skip "no data_scripts here"
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
expect 2 "$demo" --tniy
expect 2 "$demo" --tiny one two
expect 1 env PATH=/usr/bin:/bin "$demo" --tiny new; expect_stderr "demo: expected mh-train on the PATH; found none; use ./run demo"
[ ! -e new ] || fail "expected no folder of a demo without tools"
mkdir full && touch full/notes
expect 2 "$demo" full
[ "$(ls -A full)" = notes ] || fail "a refused folder has new files: $(ls -A full)"
# ./run demo refuses the same arguments, before it installs packages and builds.
expect 2 "$ROOT/run" demo full; expect_stderr "demo: expected a new folder"
expect 2 "$ROOT/run" demo --tniy
expect 0 env PATH=/usr/bin:/bin "$demo" --check --tiny new
[ ! -e new ] || fail "expected no folder of a demo that only checks its arguments"
needs_peers
command -v gnuplot >/dev/null || skip "gnuplot is not installed"
mkdir -p mirror/wikitext-2 bin
# The numbers give the text enough different pieces for the vocabulary.
for split in train valid test; do { make_text 300; seq 1000 1400; } > mirror/wikitext-2/$split.txt; done
export MH_DATA=$PWD/mirror MH_TEST_SUMS=none
# The first demo ends where gnuplot fails, after the training of all models.
printf '#!/bin/sh\nexit 3\n' > bin/gnuplot; chmod +x bin/gnuplot
status=0
PATH=$PWD/bin:$PATH "$demo" --tiny "a demo" > out 2> err || status=$?
[ "$status" -eq 1 ] || fail "expected exit status 1 after a failure of gnuplot; found $status"
expect_stderr "continue with: "
expect_stderr "/run demo --tiny '$PWD/a demo'"
grep -q "^\$ mh-train --config .* --out one-head" out || fail "expected the command that trains the last model; found $(grep '^\$' out)"
# The second demo resumes the finished runs and completes. All messages about progress are on stderr.
expect 0 "$demo" --tiny "a demo"
for text in "\$ cd '$PWD/a demo'" "\$ mh-train --resume --out plain" "spectrum-attention.svg" "run compare plain mixhead-b" "layer" "c_k"; do expect_stdout "$text"; done
expect_stderr "demo: step 8 of 8"
! grep -q "mh-train: \|demo: step" out || fail "expected progress on stderr; found it on stdout"
# Each command is printed with a word on its output, and each picture and model exists.
[ "$(grep -c '^\$ ' out)" -ge 19 ] || fail "expected at least 19 commands; found $(grep -c '^\$ ' out)"
for file in losses heads spectrum-before-mixing spectrum-attention; do grep -q '<svg' "a demo/$file.svg" || fail "expected a picture in $file.svg"; done
[ "$(awk '$6 == "head"' "a demo/heads.tsv" | wc -l)" -eq 16 ] || fail "expected a row for each of 16 heads in heads.tsv"
[ "$(grep -c '^pruned-.*.safetensors	' out)" -eq 2 ] || fail "expected the perplexity of 2 pruned models"
