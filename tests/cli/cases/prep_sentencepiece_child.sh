# SentencePiece trains in a child process: a text that crashes the trainer does not crash mh-prep, and no line is skipped
# silently.
make_word() {
  awk -v n="$1" 'BEGIN { srand(3); s = ""; for (i = 0; i < n; i++) s = s substr("abcdefgh", 1 + int(rand() * 8), 1); print s }'
}
echo 'the cat sat' > small
for n in 32769 40000 70000; do
  (cat small; make_word $n) > long
  expect 3 mh-prep vocab --type bpe --size 40 long -o model
  expect_stderr "long:2: expected words of at most 32,768 characters"
  expect 0 mh-prep vocab --type unigram --size 40 long -o unigram.model
done
(cat small; make_word 32768) | expect 0 mh-prep vocab --type bpe --size 40 - -o model
expect 0 mh-prep lm --vocab model long -o x.mhs
rm model
# mh-prep reports characters that SentencePiece reserves, and uses the lines that contain these characters.
printf 'the cat sat\n\342\226\205 the dog\ndog \342\226\205 cat\n<unk> a\342\226\201cat\n' > reserved
expect 0 mh-prep vocab --type bpe --size 20 reserved -o reserved.model
expect_stderr "U+2585, which SentencePiece reserves, gets no piece: 2 lines, first reserved:2"
expect_stderr "count as unknown characters: 1 line, first reserved:4"
expect_stderr "U+2581, which SentencePiece reserves, is read as a space: 1 line, first reserved:4"
! grep -q 'LOG(' err || fail "expected no raw log line of SentencePiece"
expect 0 mh-prep lm --vocab reserved.model reserved -o x.mhs
# mh-prep reports characters without a piece, which --character-coverage below 1 causes.
(for i in $(seq 200); do echo "the cat sat on the mat"; done; printf 'q\303\251\n') > rare
expect 0 mh-prep vocab --type bpe --size 20 --character-coverage 0.99 rare -o model; expect_stderr "the vocabulary has pieces for"
expect 0 mh-prep vocab --type bpe --size 20 --character-coverage 1 rare -o model
! grep -q 'the vocabulary has pieces for' err || fail "expected no message on coverage, since all characters have a piece"
expect 0 mh-prep vocab -v --type bpe --size 20 rare -o model; expect_stderr "SentencePiece: Loaded all 201 sentences"
! grep -q 'LOG(' err || fail "expected no raw log line of SentencePiece"
rm model
# Refuses vocabulary sizes that the text cannot fill, text without words, and bytes that are not UTF-8.
expect 3 mh-prep vocab --type bpe --size 8000 small -o model
expect 3 mh-prep vocab --type unigram --size 8000 small -o model
expect 3 mh-prep vocab --type bpe --size 5 small -o model
expect 3 mh-prep vocab --type bpe --size 9999999999 small -o model; expect_stderr "found an error status"
expect 3 mh-prep vocab --type bpe --size 2 small -o model;       expect_stderr "expected at least 4"
for text in '\342\226\205\n' '\001\002\n'; do
  for type in bpe unigram; do
    printf "$text" > odd
    expect 3 mh-prep vocab --type $type --size 40 odd -o model
    case "$type$text" in
      unigram*205*) expect_stderr "expected at most 4, the number of pieces that this text yields" ;;
      *) expect_stderr "expected text with at least one character that can become a piece; found no such character" ;;
    esac
    ! grep -q '\.cc(\|\.h(\|Internal' err || fail "expected no raw message of SentencePiece"
    expect 3 mh-prep vocab -v --type $type --size 40 odd -o model
    ! grep -q '\.cc(\|\.h(\|LOG(' err || fail "the message contains source positions of the library"
  done
done
printf ' \n\n' | expect 3 mh-prep vocab --type bpe --size 40 - -o model
printf 'a\n\377\n' > bad
expect 3 mh-prep vocab --type unigram --size 40 bad -o model; expect_stderr "bad:2: byte 2"
[ ! -e model ] || fail "expected no file after an error; found one"
# mh-prep reports that its child process was killed; if mh-prep is killed, its child process ends too.
mkfifo text
awk 'BEGIN { for (i = 0; i < 200000; i++) print "the cat sat" }' > much  # larger than the read buffers
# start_training: starts mh-prep and waits until its child process waits for text; sets $parent and $child to their process ids.
start_training() {
  mh-prep vocab --type bpe --size 40 text -o model 2>err & parent=$!
  exec 5<>text  # read-write, so that opening the pipe does not block if mh-prep has failed
  timeout 60 cat much >&5 || fail "mh-prep does not read its input"
  child=
  for _ in $(seq 100); do
    child=$(awk -v parent=$parent '$4 == parent { print $1 }' /proc/[0-9]*/stat 2>/dev/null || true)
    [ -z "$child" ] || return 0
    sleep 0.1
  done
  fail "no child process"
}
for end in "SEGV 3" "KILL 4" "TERM 1"; do
  signal=${end% *}
  start_training
  kill -$signal "$child"
  exec 5>&-
  status=0
  wait $parent || status=$?
  [ "$status" -eq "${end#* }" ] || fail "expected exit status ${end#* } after $signal; found $status"
  expect_stderr "SentencePiece's trainer: expected "
  expect_stderr "found a process that ended by signal "
  record_error "$status" err "mh-prep vocab --type bpe --size 40 text -o model, whose trainer ends by SIG$signal"
done
for signal in TERM KILL INT; do
  start_training
  kill -$signal $parent
  ! wait $parent 2>/dev/null || fail "a killed run succeeded"
  exec 5>&-
  state=
  for _ in $(seq 100); do
    state=$(awk '{ print $3 }' "/proc/$child/stat" 2>/dev/null || true)
    case "$state" in "" | Z | X) break ;; esac
    sleep 0.1
  done
  case "$state" in "" | Z | X) ;; *) fail "the child outlives its parent after $signal: $state" ;; esac
done
[ ! -e model ] || fail "expected no file of a killed process; found one"
