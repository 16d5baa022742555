# mh-eval curves: a table and plots of the logs of runs with different values, smoothing, and broken logs.
[ -n "$(command -v mh-eval || true)" ] || skip "mh-eval is not built"
mkdir -p 'runs/first run' runs/second
first='runs/first run/log.jsonl' second=runs/second/log.jsonl
cat > "$first" <<'L'
{"started":"mh-train 0","update":0,"threads":1,"parameters":10,"updates_per_epoch":4,"configuration":"[model]\n"}
{"update":2,"epoch":0.5,"tokens":100,"loss":4.0,"nll":4.0,"perplexity":54.6,"lr":0.1,"gradient_norm":1.5}
{"update":3,"valid_nll":3.5,"valid_perplexity":33.1,"valid_bleu":2.5,"best":true}
{"update":4,"epoch":1.0,"tokens":200,"loss":3.0,"nll":3.0,"perplexity":20.1,"lr":0.2,"gradient_norm":2.5}
{"update":5,"head-rotation":{"epoch":1,"swapped":[]}}
{"update":6,"epoch":1.5,"tokens":300,"loss":2.0,"nll":2.0,"perplexity":7.4,"lr":0.1,"gradient_norm":0.5}
L
cat > $second <<'L'
{"started":"mh-train 0","update":0,"threads":1,"parameters":10,"updates_per_epoch":8,"configuration":""}
{"update":4,"epoch":0.5,"tokens":1000,"loss":0.7,"nll":0.7,"lr":0.01}
{"update":4,"valid_loss":0.6,"valid_accuracy":0.75,"best":true}
{"update":8,"epoch":1.0,"tokens":2000,"loss":null,"nll":null,"lr":0.02}
L
golden table 0 mh-eval curves "$first" $second
golden smooth 0 mh-eval curves --format json --show loss,gradient_norm,lr --smooth 2 "$first"
cat $second | mh-eval curves --format json --show accuracy - > out
[ "$(cat out)" = '{"run":"standard input","update":4,"epoch":0.5,"tokens":1000.0,"smooth":1,"valid_accuracy":0.75}' ] || fail "expected the accuracy after update 4; found $(cat out)"
# A truncated last line is left out and reported.
{ cat $second; printf '{"update":9,"lo'; } > truncated
expect 0 mh-eval curves truncated; expect_stderr "truncated:5: the last line is truncated"
sed 's|^runs/second/log.jsonl|truncated|' out > without; expect 0 mh-eval curves $second; sed 's|^runs/second/log.jsonl|truncated|' out | cmp - without

# Refuses broken lines by their numbers, empty logs, and options without effect, before it writes a plot.
record_refused() { record "$1" mh-eval curves "${@:2}"; [ ! -e none.svg ] || fail "expected no plot after an error; found one"; }
{ head -2 "$first"; echo 'loss 3'; tail -1 "$first"; } > text
record_refused 3 text
{ head -2 "$first"; echo '{"loss":3}'; } > no-update
record_refused 3 $second no-update
cat "$first" "$first" > twice
record_refused 3 twice
head -1 "$first" > started
record_refused 3 started
: > empty
record_refused 3 empty
record_refused 3 missing
record_refused 3 runs
record_refused 2 "$first" --show blue
record_refused 2 "$first" --show wer
record_refused 2 "$first" --x epochs
record_refused 2 "$first" --smooth 0
record_refused 2 "$first" --show loss,lr,loss
record_refused 2 "$first" --show lr,bleu --smooth 2
record_refused 2 - - < $second
record_refused 2 "$first" --plot none.jpg
golden_record refused
expect 2 mh-eval curves
expect 2 mh-eval curves $second --plot $second; cmp $second <(sed '$d' truncated)

needs_peers
[ -n "$(command -v gnuplot || true)" ] || skip "gnuplot is not installed"
expect 0 mh-eval curves "$first" $second --plot curves.svg --x epochs --smooth 2
for text in 'first run, loss' 'first run, valid_nll' 'second, valid_loss' 'second, valid_accuracy' 'first run, valid_bleu' '>epochs<' 'mean of 2 logged values'; do
  grep -qF "$text" curves.svg || fail "expected '$text' in the plot; found none"
done
expect 0 mh-eval curves "$first" --plot curves.pdf --show bleu; [ "$(head -c 4 curves.pdf)" = "%PDF" ] || fail "expected a PDF; found $(head -c 4 curves.pdf)"
expect 0 mh-eval curves "$first" --plot - --show loss; expect_stdout valid_nll; ! grep -q "^run" out || fail "expected no table; found one"
# The title names the smoothing only in panels with smoothed curves.
expect 0 mh-eval curves "$first" --plot title.svg --show loss,bleu,lr --smooth 2
[ "$(grep -o 'mean of 2 logged values' title.svg | wc -l)" -eq 1 ] || fail "expected one panel with smoothed values; found $(grep -o 'mean of 2 logged values' title.svg | wc -l)"
# Values without a number of tokens are reported, and a run whose losses are all null has an empty panel.
{ cat "$first"; echo '{"update":7,"valid_nll":1.0}'; } > later
expect 0 mh-eval curves later --plot later.svg --show loss --x tokens
expect_stderr "later: the plot leaves out the values of 1 update for which the log has no number of tokens"
echo '{"update":1,"loss":null}' > diverged
expect 0 mh-eval curves diverged --plot diverged.svg
expect 3 mh-eval curves diverged --plot none.svg --x tokens; [ ! -e none.svg ] || fail "expected no plot after an error; found one"
expect 2 mh-eval curves "$first" --plot - --format json
expect 3 mh-eval curves text --plot none.svg; [ ! -e none.svg ] || fail "expected no plot after an error; found one"
