# Converts GLUE files and other tables to shards and back; checks each error message.
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' one two three '"' . > vocab.txt
bert="--wordpiece vocab.txt"
write_tsv() { printf '%b' "$1" > "$2"; }
write_tsv '\xEF\xBB\xBFQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tOne "two".\tthree\n0\t9\t9\ttwo\tfour\n' mrpc.tsv
record 0 mh-prep glue --task mrpc $bert mrpc.tsv -o mrpc.mhs
expect 0 mh-prep cat mrpc.mhs
printf 'one " two " .\tthree\t1\ntwo\t[UNK]\t0\n' | cmp - out
record 0 mh-prep cat --ids mrpc.mhs
expect 0 mh-prep info --format json mrpc.mhs
expect_stdout '"kind":"examples"'; expect_stdout '"limits":[10,10,2]'; expect_stdout '"metrics":["accuracy","f1"]'
expect_stdout '"file":"MRPC.tsv"'
write_tsv 'index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\tOne\tthree' test.tsv
record 0 mh-prep glue --task mrpc $bert test.tsv -o x.mhs
record 0 mh-prep glue --task mrpc $bert mrpc.tsv test.tsv -o x.mhs
# CoLA's training file has no header, its test file has one.
write_tsv 'gj04\t1\t\tOne two.\ngj04\t0\t*\t"Two one.\n' cola.tsv
record 0 mh-prep glue --task cola $bert cola.tsv -o x.mhs
write_tsv 'index\tsentence\n0\tOne\n' cola-test.tsv
record 0 mh-prep glue --task cola $bert cola-test.tsv -o x.mhs
write_tsv 'one\ttwo\tthree\n' three.tsv
record 3 mh-prep glue --task cola $bert three.tsv
# The number of columns is bounded.
{ head -c 65536 /dev/zero | tr "\0" "\t"; echo; } > wide.tsv
expect 3 mh-prep glue --task cola $bert wide.tsv; expect_stderr "wide.tsv:1: expected at most 65536 columns; found 65537"
# Columns may be in any order. Options select columns with other names.
write_tsv 'label\tsentence\n1\tone\n' swapped.tsv
record 0 mh-prep glue --task sst2 $bert swapped.tsv -o x.mhs
write_tsv 'label\tcontent\n1\tone\n' content.tsv
record 3 mh-prep glue --task sst2 $bert content.tsv -o no.mhs
record 0 mh-prep glue --task sst2 $bert --text content content.tsv -o x.mhs
record 3 mh-prep glue --task sst2 $bert --text content --label class content.tsv -o no.mhs
record 2 mh-prep glue --task sst2 $bert --text-b content content.tsv
# A column name that occurs twice is refused; a column number is accepted.
write_tsv 'sentence\tsentence\tlabel\none\ttwo\t1\n' doubled.tsv
record 3 mh-prep glue --task sst2 $bert doubled.tsv -o no.mhs
expect 0 mh-prep glue --task sst2 $bert --text 2 doubled.tsv -o x.mhs; mh-prep cat x.mhs | grep -q '^two' || fail "expected the text of the second column"
# The STS benchmark has no header, sometimes additional columns, and labels within bounds.
write_tsv 'g\tf\ty\t1\t3.800\tone\ttwo\ng\tf\ty\t2\t5\tone\ttwo\tx\ty\n' sts.csv
columns="--no-header --text 6 --text-b 7 --label 5"
record 0 mh-prep glue --task stsb $bert $columns sts.csv -o x.mhs
record 0 mh-prep cat x.mhs
record 2 mh-prep glue --task stsb $bert --no-header --text 6 sts.csv
record 3 mh-prep glue --task stsb $bert $columns mrpc.tsv
write_tsv 'g\tf\ty\t1\t5.1\tone\ttwo\n' sts2.csv
record 3 mh-prep glue --task stsb $bert $columns sts2.csv -o no.mhs
expect 2 mh-prep examples --no-header --text 1 --label 2 --labels "$(printf 'a\tb,c')" $bert three.tsv -o no.mhs
# Labels may be words. Malformed lines are refused or, with --malformed drop, dropped.
write_tsv 'index\tsentence1\tsentence2\tlabel\n0\tone\ttwo\tnot_entailment\n1\tone\ttwo\tcontradiction\n' rte.tsv
record 3 mh-prep glue --task rte $bert rte.tsv -o no.mhs
expect 0 mh-prep glue --task mnli $bert --label label <(sed s/not_// rte.tsv) -o x.mhs; expect_stderr "2 labelled"
write_tsv 'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tone\ttwo\t1\n1\t1\t2\tone\n2\t1\t2\tone\t\t0\n' qqp.tsv
record 3 mh-prep glue --task qqp $bert qqp.tsv -o no.mhs
record 0 mh-prep glue --task qqp $bert --malformed drop qqp.tsv -o x.mhs
write_tsv 'id\tquestion1\tquestion2\n0\tone\n' qqp-test.tsv
record 3 mh-prep glue --task qqp $bert --malformed drop qqp-test.tsv -o no.mhs
# CR LF at line ends, bytes that are not UTF-8, a table without rows, and missing or wrong options.
write_tsv 'sentence\tlabel\r\none\t1\r\n' crlf.tsv
record 3 mh-prep glue --task sst2 $bert crlf.tsv
record 0 mh-prep glue --task sst2 $bert --crlf normalise crlf.tsv -o x.mhs
write_tsv 'sentence\tlabel\none\xff\t1\n' bad8.tsv
record 3 mh-prep glue --task sst2 $bert bad8.tsv -o no.mhs
write_tsv 'sentence\tlabel\n' none.tsv
record 3 mh-prep glue --task sst2 $bert none.tsv -o no.mhs
record 2 mh-prep glue --task snli $bert none.tsv
record 2 mh-prep glue $bert none.tsv
record 2 mh-prep glue --task sst2 none.tsv
record 2 mh-prep glue --task sst2 $bert none.tsv -o none.tsv
# Messages show the start of a long first line, cut between characters.
{ printf 'a'; printf 'ü%.0s' $(seq 300); printf '\n'; } > long.tsv
expect 3 mh-prep glue --task sst2 $bert long.tsv -o no.mhs; expect_stderr "$(printf 'a'; printf 'ü%.0s' $(seq 99))…;"
# mh-prep examples reads any table.
write_tsv 'stars\treview\n4.5\tone two\n1\ttwo\n' reviews.tsv
expect 0 mh-prep examples --text review --label stars --number 1,5 --name reviews $bert reviews.tsv -o x.mhs
record 0 mh-prep cat x.mhs
record 0 mh-prep info x.mhs
record 0 mh-prep examples --text 2 --label 1 --labels 1,4.5 --metrics f1,accuracy $bert reviews.tsv -o x.mhs
expect_stderr "reviews.tsv:1 is read as a header, since --no-header is not given: stars, review"
record 0 mh-prep glue --task cola $bert --text 4 --label 2 cola.tsv -o y.mhs
record 2 mh-prep examples --text review --label stars --labels 1,2,4.5 --metrics f1 $bert reviews.tsv -o no.mhs
record 2 mh-prep examples --text review --labels a,b --metrics f1,f1 $bert reviews.tsv -o no.mhs
record 2 mh-prep examples --text review --labels a,b --name '' $bert reviews.tsv -o no.mhs
# A byte order mark at the start of a vocabulary is dropped.
printf '\xEF\xBB\xBF' | cat - vocab.txt > marked.txt
record 0 mh-prep vocab --type wordpiece --from marked.txt
mh-prep vocab --type wordpiece --from vocab.txt | cmp - out
record 0 mh-prep info x.mhs
record 0 mh-prep examples --text review --labels a,b $bert reviews.tsv -o x.mhs
# Refuses columns that the table lacks, labels out of range, and missing or contradictory options.
record 3 mh-prep examples --text text --label stars --number 1,5 $bert reviews.tsv
record 3 mh-prep examples --text review --label stars --number 2,5 $bert reviews.tsv
record 3 mh-prep examples --no-header --text review --labels a,b $bert reviews.tsv
record 2 mh-prep examples --label stars --number 1,5 $bert reviews.tsv
record 2 mh-prep examples --text review $bert reviews.tsv
record 2 mh-prep examples --text review --labels a,b --number 1,5 $bert reviews.tsv
record 2 mh-prep examples --text review --labels a,a $bert reviews.tsv
record 2 mh-prep examples --text review --labels a $bert reviews.tsv
record 2 mh-prep examples --text review --number 5,1 $bert reviews.tsv
record 2 mh-prep examples --text review --number 5 $bert reviews.tsv
record 2 mh-prep examples --text review --labels a,b --metrics pearson $bert reviews.tsv
golden_record refused
[ ! -e no.mhs ] || fail "a partial shard remains after an error"
# A truncated shard is refused.
size=$(stat -c %s mrpc.mhs)
for i in $(seq 0 9); do
  head -c $((size * i / 10)) mrpc.mhs > cut.mhs
  expect 3 mh-prep cat cut.mhs
done
