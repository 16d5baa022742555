# Examples of GLUE's forms and of other files to shards and back; what is refused, and how it is said.
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' one two three '"' . > vocab.txt
bert="--wordpiece vocab.txt"
tsv() { printf '%b' "$1" > "$2"; }
tsv '\xEF\xBB\xBFQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tOne "two".\tthree\n0\t9\t9\ttwo\tfour\n' mrpc.tsv
expect 0 mh-prep glue --task mrpc $bert mrpc.tsv -o mrpc.mhs;  said "2 examples of mrpc, 2 labelled, 8 tokens, 1 unknown"
expect 0 mh-prep cat mrpc.mhs
printf 'one " two " .\tthree\t1\ntwo\t[UNK]\t0\n' | cmp - out
expect 0 mh-prep cat --ids mrpc.mhs;                           printed "5 8 6 8 9	7	1"
expect 0 mh-prep info --format json mrpc.mhs
printed '"kind":"examples"'; printed '"limits":[10,10,2]'; printed '"metrics":["accuracy","f1"]'; printed '"file":"MRPC.tsv"'
tsv 'index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\tOne\tthree' test.tsv
expect 0 mh-prep glue --task mrpc $bert test.tsv -o x.mhs;     said "1 examples of mrpc, 0 labelled"
expect 0 mh-prep glue --task mrpc $bert mrpc.tsv test.tsv -o x.mhs; said "3 examples of mrpc, 2 labelled"
# CoLA has no header, but its test has.
tsv 'gj04\t1\t\tOne two.\ngj04\t0\t*\t"Two one.\n' cola.tsv
expect 0 mh-prep glue --task cola $bert cola.tsv -o x.mhs;     said "2 examples of cola, 2 labelled, 7 tokens, 0 unknown"
tsv 'index\tsentence\n0\tOne\n' cola-test.tsv
expect 0 mh-prep glue --task cola $bert cola-test.tsv -o x.mhs; said "1 examples of cola, 0 labelled"
tsv 'one\ttwo\tthree\n' three.tsv
expect 3 mh-prep glue --task cola $bert three.tsv;             said "three.tsv:1"; said "the columns sentence, label"
# Columns in any order, and of other names once these are given.
tsv 'label\tsentence\n1\tone\n' swapped.tsv
expect 0 mh-prep glue --task sst2 $bert swapped.tsv -o x.mhs;  said "1 labelled"
tsv 'label\tcontent\n1\tone\n' content.tsv
expect 3 mh-prep glue --task sst2 $bert content.tsv -o no.mhs; said "found label, content"; said "--text"
expect 0 mh-prep glue --task sst2 $bert --text content content.tsv -o x.mhs; said "1 labelled"
expect 3 mh-prep glue --task sst2 $bert --text content --label class content.tsv -o no.mhs; said "class"
expect 2 mh-prep glue --task sst2 $bert --text-b content content.tsv; said "tasks of two sentences"
# A name that two columns have names neither; a number does.
tsv 'sentence\tsentence\tlabel\none\ttwo\t1\n' doubled.tsv
expect 3 mh-prep glue --task sst2 $bert doubled.tsv -o no.mhs; said "doubled.tsv:1"; said "2 of this name"
expect 0 mh-prep glue --task sst2 $bert --text 2 doubled.tsv -o x.mhs; mh-prep cat x.mhs | grep -q '^two' || fail "the second column"
# The STS benchmark: no header, sometimes more columns; numbers within bounds.
tsv 'g\tf\ty\t1\t3.800\tone\ttwo\ng\tf\ty\t2\t5\tone\ttwo\tx\ty\n' sts.csv
columns="--no-header --text 6 --text-b 7 --label 5"
expect 0 mh-prep glue --task stsb $bert $columns sts.csv -o x.mhs; said "2 examples of stsb, 2 labelled"
expect 0 mh-prep cat x.mhs;                                    printed "one	two	3.800"
expect 2 mh-prep glue --task stsb $bert --no-header --text 6 sts.csv; said "--text-b"
expect 3 mh-prep glue --task stsb $bert $columns mrpc.tsv;     said "mrpc.tsv:1"
tsv 'g\tf\ty\t1\t5.1\tone\ttwo\n' sts2.csv
expect 3 mh-prep glue --task stsb $bert $columns sts2.csv -o no.mhs; said "sts2.csv:1"; said "a number from 0 to 5"; said "5.1"
# Words as labels, and lines that are none.
tsv 'index\tsentence1\tsentence2\tlabel\n0\tone\ttwo\tnot_entailment\n1\tone\ttwo\tcontradiction\n' rte.tsv
expect 3 mh-prep glue --task rte $bert rte.tsv -o no.mhs;      said "rte.tsv:3"; said "entailment, not_entailment"; said "'contradiction'"
expect 0 mh-prep glue --task mnli $bert --label label <(sed s/not_// rte.tsv) -o x.mhs; said "2 labelled"
tsv 'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tone\ttwo\t1\n1\t1\t2\tone\n2\t1\t2\tone\t\t0\n' qqp.tsv
expect 3 mh-prep glue --task qqp $bert qqp.tsv -o no.mhs;      said "qqp.tsv:3"; said "6 columns"; said "--malformed drop"
expect 0 mh-prep glue --task qqp $bert --malformed drop qqp.tsv -o x.mhs; said "1 lines of another number of columns"
tsv 'id\tquestion1\tquestion2\n0\tone\n' qqp-test.tsv
expect 3 mh-prep glue --task qqp $bert --malformed drop qqp-test.tsv -o no.mhs; said "by the number of a line"
tsv 'sentence\tlabel\r\none\t1\r\n' crlf.tsv
expect 3 mh-prep glue --task sst2 $bert crlf.tsv;              said "--crlf normalise"
expect 0 mh-prep glue --task sst2 $bert --crlf normalise crlf.tsv -o x.mhs; said "1 labelled"
tsv 'sentence\tlabel\none\xff\t1\n' bad8.tsv
expect 3 mh-prep glue --task sst2 $bert bad8.tsv -o no.mhs;    said "bad8.tsv:2"
tsv 'sentence\tlabel\n' none.tsv
expect 3 mh-prep glue --task sst2 $bert none.tsv -o no.mhs;    said "examples, one a line"
expect 2 mh-prep glue --task snli $bert none.tsv;              said "one of: cola"
expect 2 mh-prep glue $bert none.tsv;                          said "--task"
expect 2 mh-prep glue --task sst2 none.tsv;                    said "--wordpiece"
expect 2 mh-prep glue --task sst2 $bert none.tsv -o none.tsv;  said "itself"
# A long first line is shown in part, in whole characters.
{ printf 'a'; printf 'ü%.0s' $(seq 300); printf '\n'; } > long.tsv
expect 3 mh-prep glue --task sst2 $bert long.tsv -o no.mhs; said "$(printf 'a'; printf 'ü%.0s' $(seq 99))…;"
# Any file.
tsv 'stars\treview\n4.5\tone two\n1\ttwo\n' reviews.tsv
expect 0 mh-prep examples --text review --label stars --number 1,5 --name reviews $bert reviews.tsv -o x.mhs
expect 0 mh-prep cat x.mhs;                                    printed "one two		4.500"
expect 0 mh-prep info x.mhs;                                   printed '"name":"reviews","number":[1.0,5.0],"sentences":1'
expect 0 mh-prep examples --text 2 --label 1 --labels 1,4.5 --metrics f1,accuracy $bert reviews.tsv -o x.mhs; said "2 labelled"
said "reviews.tsv:1 is taken for a header, as --no-header is not given: stars, review"
expect 0 mh-prep glue --task cola $bert --text 4 --label 2 cola.tsv -o y.mhs; said "1 examples"; said "cola.tsv:1 is taken for a header"
expect 2 mh-prep examples --text review --label stars --labels 1,2,4.5 --metrics f1 $bert reviews.tsv -o no.mhs; said "found 3 labels"
expect 2 mh-prep examples --text review --labels a,b --metrics f1,f1 $bert reviews.tsv -o no.mhs; said "each once"
expect 2 mh-prep examples --text review --labels a,b --name '' $bert reviews.tsv -o no.mhs; said "--name"
printf '\xEF\xBB\xBF' | cat - vocab.txt > marked.txt
expect 0 mh-prep vocab --type wordpiece --from marked.txt; said "marked.txt: the byte order mark at the start is dropped"
mh-prep vocab --type wordpiece --from vocab.txt | cmp - out
expect 0 mh-prep info x.mhs;                                   printed '"metrics":["f1","accuracy"]'
expect 0 mh-prep examples --text review --labels a,b $bert reviews.tsv -o x.mhs; said "0 labelled"
expect 3 mh-prep examples --text text --label stars --number 1,5 $bert reviews.tsv; said "found stars, review"
expect 3 mh-prep examples --text review --label stars --number 2,5 $bert reviews.tsv; said "reviews.tsv:3"
expect 3 mh-prep examples --no-header --text review --labels a,b $bert reviews.tsv; said "numbers from 1"
expect 2 mh-prep examples --label stars --number 1,5 $bert reviews.tsv; said "--text"
expect 2 mh-prep examples --text review $bert reviews.tsv;     said "--labels"
expect 2 mh-prep examples --text review --labels a,b --number 1,5 $bert reviews.tsv; said "both"
expect 2 mh-prep examples --text review --labels a,a $bert reviews.tsv; said "words that differ"
expect 2 mh-prep examples --text review --labels a $bert reviews.tsv; said "two words"
expect 2 mh-prep examples --text review --number 5,1 $bert reviews.tsv; said "the lower one first; found 5, 1"
expect 2 mh-prep examples --text review --number 5 $bert reviews.tsv; said "the lower one first"
expect 2 mh-prep examples --text review --labels a,b --metrics pearson $bert reviews.tsv; said "accuracy, f1, matthews"
[ ! -e no.mhs ] || fail "half a shard was left"
# Broken anywhere, it is refused.
size=$(stat -c %s mrpc.mhs)
for i in $(seq 0 9); do
  head -c $((size * i / 10)) mrpc.mhs > cut.mhs
  expect 3 mh-prep cat cut.mhs
done
