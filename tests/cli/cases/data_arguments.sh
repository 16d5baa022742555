# Every script of data_scripts prints its header for -h and --help with exit status 0, and its usage with exit status 2 for a missing or an empty
# argument, for an unknown option and for an argument too many, before it writes a file.
scripts=$ROOT/data_scripts
[ -d "$scripts" ] || skip "no data_scripts here"
# refused SCRIPT ARGUMENT…: the script must end with status 2 and its usage; the messages of one script are recorded below.
refused() {
  local status=0
  "$scripts/$1" "${@:2}" > out 2> err || status=$?
  [ "$status" -eq 2 ] || fail "expected exit status 2; found $status: $*"
  expect_stderr "; usage: data_scripts/$1"
}
num_scripts=0
for script in "$scripts"/*; do
  name=${script##*/}
  case $name in *.sh | *.py) continue ;; esac
  num_scripts=$((num_scripts + 1))
  for help in -h --help; do
    expect 0 "$script" $help
    expect_stdout "usage: data_scripts/$name"
    [ ! -s err ] || fail "expected an empty stderr of $name $help"
  done
  refused "$name" --unknown
  [ "$name" = demo ] || refused "$name"                              # demo has no necessary argument
  [ "$name" = squad ] || refused "$name" 1 2 3 4 5 6 7 8 9           # squad reads any number of files
  case $name in demo | moses | gguf-to-huggingface) ;; *) refused "$name" "" ;; esac
done
[ "$num_scripts" -ge 20 ] || fail "expected the scripts of data_scripts; found $num_scripts"
expect 2 "$scripts/iwslt14" folder
expect 2 "$scripts/iwslt14" folder ""
expect 2 "$scripts/iwslt14" folder de-en --archive
expect 2 "$scripts/iwslt14" folder de-en archive more
expect 2 "$scripts/moses" tokenize
expect 2 "$scripts/gguf-to-huggingface" file
expect 2 "$scripts/glue" folder sst pieces
expect 2 "$scripts/glue" folder sst2 pieces "" many
expect 2 "$scripts/squad" folder 3.0 pieces
expect 2 "$scripts/clean-pairs" x 1 250 a b c d
for program in corpus.py wikipedia.py; do
  status=0
  python3 -B "$scripts/$program" > out 2> err || status=$?
  [ "$status" -ne 0 ] && [ "$(wc -l < err)" -eq 1 ] || fail "expected a message of one line from $program"
done
[ -z "$(find . -type f ! -name out ! -name err)" ] || fail "expected no files; found $(find . -type f)"
