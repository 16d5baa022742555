# Functions of data_scripts/corpus.sh for archives: sums, broken downloads that a second call continues, members by name and by pattern, pinned
# packages; a wrong sum, a cut archive and a full disk leave no incomplete file. A server of this machine replaces the public host.
scripts=$ROOT/data_scripts
[ -d "$scripts" ] || skip "no data_scripts here"
export MH_DATA='' PYTHONDONTWRITEBYTECODE=1
. "$ROOT/tests/cli/archives.sh"
# expect_empty FOLDER: fails unless FOLDER has no files.
expect_empty() { [ -z "$(find "$1" -type f 2>/dev/null)" ] || fail "expected no files in $1; found $(find "$1" -type f)"; }
corpus() { bash -euo pipefail -c 'source "$1"; shift; "$@"' corpus.sh "$scripts/corpus.sh" "$@"; }

# Archives: checksums of each kind, a file that is already there, an interrupted download that a second call continues.
mkdir 'a folder' 'a folder/in'; cd 'a folder' || exit
make_text 2000 > in/text; echo other > in/other
pack made.tgz in; pack made.zip in
sum=sha256:$(sha256sum made.tgz | cut -d' ' -f1),bytes:$(wc -c < made.tgz),md5:$(md5sum made.tgz | cut -d' ' -f1)
made_archive() { corpus corpus_file "$1" "$sum" "" "$2"; }
expect 0 corpus corpus_file got.tgz "$sum" "" "file://$PWD/made.tgz"
cmp got.tgz made.tgz
expect 0 corpus corpus_file got.tgz "$sum" "" "file://$PWD/none.tgz"; expect_stderr "got.tgz: present, not downloaded again"
head -c 1000 made.tgz > resumed.tgz.part
expect 0 corpus corpus_file resumed.tgz "$sum" "" "file://$PWD/made.tgz"
head -c 1000 in/text > restarted.tgz.part
expect 0 corpus corpus_file restarted.tgz "$sum" "" "file://$PWD/made.tgz"
cmp resumed.tgz made.tgz; cmp restarted.tgz made.tgz
expect 0 corpus corpus_file unknown.tgz "" "" "file://$PWD/made.tgz"; expect_stderr "sha256 $(sha256sum made.tgz | cut -d' ' -f1), without a published checksum"
rm resumed.tgz restarted.tgz unknown.tgz; mkdir mirror
cp made.tgz mirror/; zstd -q made.zip -o mirror/made.zip.zst
expect 0 env MH_DATA="$PWD/mirror" bash -euc 'source "$1/corpus.sh"; corpus_file a.tgz "$2" made.tgz none; corpus_file a.zip "" made.zip none' _ "$scripts" "$sum"
cmp a.tgz made.tgz; cmp a.zip made.zip
rm -r mirror a.tgz a.zip
expect 1 corpus corpus_file other.tgz sha1:00 "" "file://$PWD/made.tgz"
expect 1 made_archive other.tgz "file://$PWD/made.zip"; expect_stderr "found $(sha256sum made.zip | cut -d' ' -f1) in file://$PWD/made.zip"
expect 1 made_archive other.tgz "file://$PWD/none.tgz"
expect 1 made_archive none/other.tgz "file://$PWD/made.tgz"
expect 1 corpus corpus_file other.tgz crc:00 "" "file://$PWD/made.tgz"
mkdir bin; ln -s "$(type -P bash)" "$(type -P rm)" bin/
expect 1 env PATH="$PWD/bin" bash -euc 'source "$1/corpus.sh"; corpus_file other.tgz "" "" none' corpus.sh "$scripts"
rm -r bin
small_disk() { (trap '' XFSZ; ulimit -f 2; corpus "$@"); }  # a write beyond 2 KB of a file fails
expect 1 small_disk corpus_file other.tgz "" "" "file://$PWD/made.tgz"
(exec 9>> busy.tgz.part; flock 9; expect 1 made_archive busy.tgz "file://$PWD/made.tgz" 9>&-)
rm busy.tgz.part
expect_files got.tgz made.tgz made.zip in/text in/other
# A server that closes the connection: the bytes stay if a sum is known, and the next call asks for the others.
python3 - > port <<'PYTHON' &
import http.server, sys
content = open("made.tgz", "rb").read()
class Server(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:][:len(content) // 2 + 1])
server = http.server.HTTPServer(("127.0.0.1", 0), Server)
print(server.server_port, flush=True)
for _ in range(3): server.handle_request()
PYTHON
server=$!
for _ in $(seq 100); do [ ! -s port ] || break; sleep 0.1; done
url=http://127.0.0.1:$(cat port)/made.tgz
status=0; corpus corpus_file served.tgz "$sum" "" "$url" 2> log || status=$?
[ "$status" = 1 ] && grep -q "of $(wc -c < made.tgz) bytes; .*a second call continues the download" log || fail "expected a broken download; found status $status: $(cat log)"
[ -f served.tgz.part ] || fail "expected the first half of the archive in served.tgz.part; found no file"
expect 0 corpus corpus_file served.tgz "$sum" "" "$url"
cmp served.tgz made.tgz
status=0; corpus corpus_file unknown.tgz "" "" "$url" 2> log || status=$?
[ "$status" = 1 ] || fail "expected an error for a broken download without a known sum; found status $status"
wait $server
rm served.tgz port log
expect_files got.tgz made.tgz made.zip in/text in/other

# Members: of zip and tar, by name and by pattern; equal members keep their time of modification.
for archive in made.tgz made.zip; do
  expect 0 corpus corpus_members $archive unpacked text=text.txt text=again/text 'o*r=folder/'
  cmp unpacked/text.txt in/text; cmp unpacked/again/text in/text; cmp unpacked/folder/other in/other
done
touch -d 2001-01-01 unpacked/text.txt unpacked/folder/other; echo changed > unpacked/folder/other
expect 0 corpus corpus_members made.zip unpacked text=text.txt 'o*r=folder/'
[ "$(date -r unpacked/text.txt +%Y)" = 2001 ] || fail "expected the time of an unchanged file to stay; found $(date -r unpacked/text.txt)"
cmp unpacked/folder/other in/other
expect 1 corpus corpus_members made.tgz new text=text none=none
cmp new/text in/text
rm -r unpacked new
expect 1 corpus corpus_members made.zip new 'x*=folder/'
head -c 2000 made.tgz > cut.tgz; head -c 2000 made.zip > cut.zip
head -c 5000 <(gzip -dc made.tgz) > cut.tar  # in a pipe, SIGPIPE of gzip would end the case
for archive in cut.tgz cut.zip cut.tar none.zip in/text; do expect 1 corpus corpus_members $archive new text=text; done
expect 1 small_disk corpus_members made.tgz new text=text
expect_empty new
cd ..

# corpus_make: writes a file that is older than an input, or missing, and completely or not at all; its time stays otherwise.
echo one > input
for text in one two; do
  expect 0 corpus corpus_make result input -- cat input; echo $text | cmp - result
  touch -d 2001-01-01 input; touch -d 2002-01-01 result
  expect 0 corpus corpus_make result input -- false; expect_stderr "result: present, not written again"
  echo two > input
done
print_and_fail() { echo half; return 3; }
export -f print_and_fail
expect 1 corpus corpus_make result input -- print_and_fail
expect 1 corpus corpus_make none/result input -- cat input
expect 1 small_disk corpus_make large input -- bash -c 'head -c 3000 /dev/zero 2>/dev/null'
echo two | cmp - result
# A count that differs from the known one ends the script with status 1, after all counts are printed.
expect_counts() { expect "$1" env "${@:2}" bash -euo pipefail -c 'source "$1"; corpus_count_text text "$2" 4 "$3"; corpus_counts_end; echo end' corpus.sh "$scripts/corpus.sh" "$lines" words; }
printf '\342\200\223 a\n\n' > words  # a dash is a word
lines=2; expect_counts 0; expect_stdout end
lines=3; expect_counts 1; expect_stderr "text: lines: expected 3; found 2"; expect_stderr "text: tokens: expected 4; found 4"
expect_counts 0 MH_TEST_SUMS=none
expect_files input result words "a folder"/{cut.tar,cut.tgz,cut.zip,got.tgz,made.tgz,made.zip,in/other,in/text}

# Packages: an installed one needs no folder; a missing network is an error that names the pip command.
python() { env -u PYTHONPATH XDG_CACHE_HOME="$PWD/cache" PIP_NO_INDEX=1 PIP_FIND_LINKS='' bash -euc 'source "$1/corpus.sh"; corpus_python "$2"' corpus.sh "$scripts" "$1"; }
status=0; python sacremoses==0.0.0 2> log || status=$?
[ "$status" = 1 ] && grep -q '^corpus.sh: expected the Python packages sacremoses==0.0.0 from PyPI; found: .*; connect to the network, or run pip install sacremoses==0.0.0' log ||
  fail "expected an error that names pip install; found status $status: $(cat log)"
[ -z "$(find cache -mindepth 2 ! -name '*.lock')" ] || fail "expected no packages after an error; found $(find cache)"
mkdir -p site/made-1.0.dist-info; printf 'Metadata-Version: 2.1\nName: made\nVersion: 1.0\n' > site/made-1.0.dist-info/METADATA
expect 0 env PYTHONPATH="$PWD/site" bash -euc 'source "$1/corpus.sh"; corpus_python made==1.0' corpus.sh "$scripts"; expect_stdout "$PWD/site"
