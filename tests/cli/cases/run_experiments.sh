# ./run compare, reproduce and study refuse misspelt names and broken files with exit status 2 and the nearest name, and print help, lists and tables,
# without installing packages and without a build; other commands build the tools first.
[ -f "$ROOT/run" ] || skip "no ./run here"
mkdir checkout programs
cp -r "$ROOT/run" "$ROOT/configs" "$ROOT/data_scripts" checkout
for program in dpkg-query apt-get sudo meson ninja; do
  printf '#!/bin/sh\necho %s >> "%s/calls"\n[ %s != dpkg-query ] || echo install ok installed\n[ %s = dpkg-query ]\n' $program "$PWD" $program $program > programs/$program
  chmod +x programs/$program
done
# run STATUS ARGUMENT…: ./run must end with STATUS without a call of a program that installs or builds.
run() {
  rm -f calls
  expect "$1" env -u SUDO_USER PATH="$PWD/programs:/usr/bin:/bin" MH_TORCH="$PWD" XDG_CACHE_HOME="$PWD/cache" checkout/run "${@:2}"
  [ ! -e calls ] || fail "expected no installation and no build; found calls of $(sort -u calls | tr '\n' ' ')"
}
run 2 reproduce mixhed table2; expect_stderr "found mixhed; write mixhead"
run 2 reproduce mixhead tabel2; expect_stderr "found tabel2; write table2"
run 2 reproduce mixhead table2 --rows vanila --scale small; expect_stderr "found vanila; write vanilla"
run 2 reproduce mixhead table2 --rows vanilla --baseline vanila; expect_stderr "found vanila; write vanilla"
run 2 reproduce mixhead table2 --rows vanilla --seeds 0
run 2 reproduce mixhead table2 --rows vanilla --plot curves.txt
run 2 compare plain --threads all
run 1 compare plain --data none; expect_stderr "data wikitext2: expected the shards train.mhs, valid.mhs, test.mhs in none; found none"
run 2 reproduce
run 2 reproduce --list mixhead tabel2 --measure
run 2 compare plain mixhed-b; expect_stderr "found mixhed-b; write mixhead-b"
run 2 compare --corpus wikitext plain
run 2 compare plain --init none.safetensors
echo 'seeds = ' > broken.toml
run 2 study broken.toml; expect_stderr "broken.toml: expected a configuration in TOML"
run 2 study missing.toml
run 2 study opne; expect_stderr "found opne; write open"
printf 'data = "wikitext"\n[rows.plain]\n' > named.toml
run 2 study named.toml; expect_stderr "found wikitext; write wikitext2"
printf 'data = "shards"\n[rows.plain]\n' > folder.toml && mkdir shards
run 2 study folder.toml; expect_stderr "found shards; write ./shards"
sed 's/^null_seeds.*/null_seeds = 1/' "$ROOT/configs/experiments/studies/open.toml" > few.toml
run 2 study few.toml
# --data names the data of the study; no script makes the data of another row before the build.
touch shards/{train,valid,test}.mhs
printf 'data = "wikitext2"\n[rows.plain]\nconfig = ["configs/small/wikitext2.toml"]\n[rows.pairs]\ndata = "multi30k"\nconfig = ["configs/small/wikitext2.toml"]\n' > two.toml
run 1 study two.toml --data none; expect_stderr "expected the shards train.mhs, valid.mhs, test.mhs in none; found none"
builds() {
  rm -f calls
  expect 1 env -u SUDO_USER PATH="$PWD/programs:/usr/bin:/bin" MH_TORCH="$PWD" XDG_CACHE_HOME="$PWD/cache" checkout/run "$@"
  grep -qx meson calls || fail "expected a build; found $(cat err)"
  ! grep -qx apt-get calls || fail "expected no installation; found one"
}
builds study two.toml --data shards --out two
[ ! -e two/data-multi30k ] || fail "expected no data before the build; found $(ls two/data-multi30k)"
run 0 reproduce --help
run 0 demo --help; expect_stdout "usage: data_scripts/demo"
run 0 reproduce --list mixhead table2; expect_stdout "mixhead/table2-vanilla"
run 0 compare plain --print; expect_stdout "configs/small/wikitext2.toml --config "
run 0 study two.toml --print; expect_stdout "configs/small/wikitext2.toml --train "
run 0 study two.toml --print --job 2; [ "$(wc -l < out)" = 1 ] || fail "expected the line of one run; found $(wc -l < out) lines"
# A reader may close the pipe early.
python3 -B checkout/configs/experiments study two.toml --print 2> err | true
[ ! -s err ] || fail "expected no message; found $(cat err)"
run 1 compare plain --table; expect_stderr "expected finished runs in small; found none"
# Another version of Python is refused by its number.
expect 1 python3 -B -c "
import runpy, sys
sys.version_info = (3, 10, 12)
runpy.run_path('checkout/configs/experiments', run_name='__main__')"
expect_stderr "Python: expected version 3.11 or later; found 3.10.12; put a newer python3 first on the PATH"
# A correct command, in which the build fails here.
builds compare plain
