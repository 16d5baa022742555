# data_scripts/glue: reads every task from archives of the form of the public ones, from a folder and from the mirror; test shards have no labels; a damaged
# archive leaves no shard. Nothing is downloaded.
scripts=$ROOT/data_scripts
[ -d "$scripts" ] || skip "no data_scripts here"
data=${MH_DATA:-$ROOT/../shared/data}
export MH_DATA=
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' one two three four '"' > pieces.txt
mh-prep vocab -q --type wordpiece --from pieces.txt > pieces
mkdir zips
# Three examples for each file, beside files of other names as in the public archives; a quote is text, QQP has a line of five columns.
python3 - <<'PYTHON'
import pathlib
import zipfile

columns = {
    "SST-2": (["sentence", "label"], ["index", "sentence"]), "QQP": (["id", "qid1", "qid2", "question1", "question2", "is_duplicate"], ["id", "question1", "question2"]),
    "STS-B": (["index", "sentence1", "sentence2", "score"], ["index", "sentence1", "sentence2"]),
    "QNLI": (["index", "question", "sentence", "label"], ["index", "question", "sentence"]),
    "RTE": (["index", "sentence1", "sentence2", "label"], ["index", "sentence1", "sentence2"]),
    "WNLI": (["index", "sentence1", "sentence2", "label"], ["index", "sentence1", "sentence2"]),
    "MNLI": (["index", "sentence1", "sentence2", "label1", "gold_label"], ["index", "sentence1", "sentence2"]),
}
labels = {"STS-B": ["0.000", "2.500", "5.000"], "MNLI": ["neutral", "contradiction", "entailment"],
          "QNLI": ["entailment", "not_entailment", "entailment"], "RTE": ["entailment", "not_entailment", "entailment"]}
archives = {"QQP": "QQP-clean", "QNLI": "QNLIv2"}


def field(column, name, row):
    if column in ("sentence", "sentence1", "question", "question1"):
        return ("one", 'two "', "three ")[row]
    if column in ("sentence2", "question2") or (column == "sentence" and name == "QNLI"):
        return "four"
    if column in ("label", "label1", "gold_label", "score", "is_duplicate"):
        return labels.get(name, ["1", "0", "1"])[row]
    return str(row)


for name, (labelled, unlabelled) in columns.items():
    splits = ["train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"] if name == "MNLI" else ["train", "dev", "test"]
    line_end = "\r\n" if name == "WNLI" else "\n"
    with zipfile.ZipFile(f"zips/{archives.get(name, name)}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for split in splits:
            header = unlabelled if split.startswith("test") else labelled
            rows = [header] + [[field(column, name, row) for column in header] for row in range(3)]
            if name == "QQP" and split == "train":
                rows.insert(2, ["9", "9", "9", "one", "two"])
            text = "".join("\t".join(row) + line_end for row in rows)
            archive.writestr(f"{name}/{split}.tsv", ("\ufeff" if name == "RTE" else "") + text)
        archive.writestr(f"{name}/original/train.tsv", "another form\n")
        archive.writestr(f"__MACOSX/{name}/._train.tsv", b"\0\0")
with zipfile.ZipFile("zips/CoLA.zip", "w") as archive:
    for split in ("train", "dev"):
        archive.writestr(f"CoLA/{split}.tsv", "ab1\t1\t\tone\nab2\t0\t*\ttwo \"\nab3\t1\t\tthree\n")
    archive.writestr("CoLA/test.tsv", "index\tsentence\n0\tone\n1\ttwo\n2\tthree\n")
path = pathlib.Path("zips/AX.tsv")
path.write_text("index\tsentence1\tsentence2\n0\tone\tfour\n1\ttwo\tfour\n2\tthree\tfour\n")
header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
pathlib.Path("zips/msr_paraphrase_train.txt").write_text(header + "1\t10\t11\tone\ttwo\n0\t12\t13\ttwo\t\"three\n1\t14\t15\tfour\tone\n0\t10\t13\tone\tthree\n")
pathlib.Path("zips/msr_paraphrase_test.txt").write_text(header + "1\t20\t21\tone\tfour\n0\t22\t23\ttwo\tfour\n")
pathlib.Path("zips/mrpc_dev_ids.tsv").write_text("12\t13\n")
PYTHON
url=file://$PWD/zips
mkdir -p mirror/glue; echo other > mirror/glue/RTE.zip  # a URL comes before the mirror
expect 0 env MH_TEST_SUMS=none MH_DATA="$PWD/mirror" "$scripts/glue" "all tasks" all pieces "$url"
expect_stderr "mh-prep: 3 examples of qqp, 3 labelled"
expect_stderr "dropped"  # the line of five columns
expect_stderr "ended in CR LF"
expect_stderr "the byte order mark at the start is dropped"
expect_stderr "examples of mnli in valid-mm.mhs: expected 9832; found 3"
[ "$(cd "all tasks" && ls -d */*.mhs | sed 's|/.*||' | uniq -c | awk '{ print $2 $1 }' | paste -sd ' ')" = "ax1 cola3 mnli5 mrpc4 qnli3 qqp3 rte3 sst23 stsb3 wnli3" ] ||
  fail "expected the shards of every task; found $(ls "all tasks"/*)"
for shard in "all tasks"/*/*.mhs; do
  mh-prep cat "$shard" > text
  case $shard in
    */test-gold.mhs) printf 'one\tfour\t1\ntwo\tfour\t0\n' | cmp - text ;;
    */test*.mhs) ! awk -F'\t' '$NF != ""' text | grep -q . || fail "expected a test set without labels in $shard; found $(cat text)" ;;
    */rte/train.mhs) printf 'one\tfour\tentailment\ntwo "\tfour\tnot_entailment\nthree\tfour\tentailment\n' | cmp - text ;;
    */cola/*.mhs) printf 'one\t\t1\ntwo "\t\t0\nthree\t\t1\n' | cmp - text ;;
    */mrpc/valid.mhs) printf 'two\t" three\t0\n' | cmp - text ;;
    */mrpc/train.mhs) printf 'one\ttwo\t1\nfour\tone\t1\none\tthree\t0\n' | cmp - text ;;
  esac
done
expect_predictions() { mh-prep info "all tasks/$1" | grep -qF "$2" || fail "expected $2, the file of predictions, for $1; found $(mh-prep info "all tasks/$1")"; }
expect_predictions mnli/valid.mhs MNLI-m.tsv
expect_predictions mnli/test-mm.mhs MNLI-mm.tsv
expect_predictions ax/test.mhs AX.tsv
# A second call reads the archives of the first.
mv zips away
expect 0 env MH_TEST_SUMS=none "$scripts/glue" "all tasks/rte" rte pieces "$url"
# Without the network: the error names the file.
expect 1 env MH_TEST_SUMS=none "$scripts/glue" new rte pieces "$url"; expect_stderr "RTE.zip"
mv away zips
# A public sum is required; a cut archive and a wrong number of examples leave no shard.
expect 1 "$scripts/glue" new rte pieces "$url"; expect_stderr "glue: RTE.zip: expected bytes 697150; found"
expect 1 "$scripts/glue" new mrpc pieces "$url"; expect_stderr "msr_paraphrase_train.txt: expected bytes 1047044"
mkdir cut
head -c 400 zips/RTE.zip > cut/RTE.zip
expect 1 env MH_TEST_SUMS=none "$scripts/glue" new rte pieces "file://$PWD/cut"
printf 'Quality\t#1 ID\n1\t2\n' > cut/msr_paraphrase_train.txt
cp zips/msr_paraphrase_test.txt zips/mrpc_dev_ids.tsv cut
expect 1 env MH_TEST_SUMS=none "$scripts/glue" new mrpc pieces "file://$PWD/cut"; expect_stderr "msr_paraphrase_train.txt:1: expected 5 columns"
[ -z "$(find new -name '*.mhs' -o -name '*.part')" ] || fail "expected no shards after an error; found $(ls new)"
# A folder of GLUE: missing test sets are reported; MRPC in either form, whose sums are checked.
mkdir -p own/MRPC own/MNLI
cp zips/msr_paraphrase_train.txt zips/msr_paraphrase_test.txt own/MRPC
cp "all tasks/mnli"/{train,dev_matched}.tsv own/MNLI
expect 0 "$scripts/glue" mnli mnli pieces own 2; expect_stderr "own/MNLI/test_mismatched.tsv does not exist, so test-mm.mhs is not written"
expect_files_of() { [ "$(ls "$1" | paste -sd ' ')" = "$2" ] || fail "expected $2 in $1; found $(ls "$1")"; }
expect_files_of mnli "train.mhs valid.mhs"
expect 1 "$scripts/glue" mrpc mrpc pieces own; expect_stderr "own/MRPC/mrpc_dev_ids.tsv: expected a file of GLUE; found no such file"
cp zips/mrpc_dev_ids.tsv own/MRPC/dev_ids.tsv
expect 1 "$scripts/glue" mrpc mrpc pieces own; expect_stderr "(SentEval); found $(sha256sum < own/MRPC/msr_paraphrase_train.txt | cut -d' ' -f1)"
expect 0 env MH_TEST_SUMS=none "$scripts/glue" mrpc mrpc pieces own; expect_stderr "a form without a published checksum"
for split in train dev test; do cmp "mrpc/$split.tsv" "all tasks/mrpc/$split.tsv"; done
expect 1 "$scripts/glue" ax ax pieces own; expect_stderr "own/AX.tsv: expected a file of GLUE; found no such file"
# With the mirror: MRPC made from the original files equals the files of GLUE byte for byte, and the numbers of examples are GLUE's.
[ -d "$data/glue/MRPC" ] || { echo "without the mirror of GLUE"; exit 0; }
rm -rf own mrpc
mkdir -p own/MRPC
for file in msr_paraphrase_train.txt msr_paraphrase_test.txt dev.tsv train.tsv test.tsv; do zstd -dcq "$data/glue/MRPC/$file.zst" > "own/MRPC/$file"; done
tail -n +2 own/MRPC/dev.tsv | cut -f2,3 > own/MRPC/dev_ids.tsv
mkdir glue
mv own/MRPC/{train,dev,test}.tsv glue
expect 0 "$scripts/glue" mrpc mrpc pieces own; expect_stderr "Microsoft's original form"
for split in train dev test; do cmp "mrpc/$split.tsv" "glue/$split.tsv"; done
# A full disk leaves no incomplete file.
! (trap '' XFSZ; ulimit -f 100; exec "$scripts/glue" full mrpc pieces own) 2> err || fail "expected an error of a file of more than 100 KiB"
[ -z "$(find full -name '*.part')" ] || fail "expected no incomplete files; found $(ls full)"
expect 0 env MH_DATA="$data" "$scripts/glue" mirrored mrpc pieces; expect_stderr "examples of mrpc in train.mhs: expected 3668; found 3668"
for split in train valid test test-gold; do cmp <(mh-prep cat "mrpc/$split.mhs") <(mh-prep cat "mirrored/$split.mhs"); done
for task in cola rte sst2 stsb; do
  expect 0 env MH_DATA="$data" "$scripts/glue" "mirrored $task" "$task" pieces "" 30; expect_stderr "30 examples of $task, 30 labelled"
  expect 0 mh-prep cat "mirrored $task/test.mhs"
  ! awk -F'\t' '$NF != ""' out | grep -q . || fail "expected a test set of $task without labels"
done
