# Control characters in texts, labels and names are escaped on a terminal and unchanged in a pipe.
# The text `hostile` has ESC, a C1 control in UTF-8, CR, BEL, backspace, DEL, and embeddings, overrides and isolates of bidirectional text.
# The file `bytes` also has a C1 control as a byte and an incomplete character.
hostile=$'\033[31m\302\2332J\r\a\b\177\342\200\256\342\200\252\342\201\246\342\201\251'
printf 'a %s b\nc\n' "$hostile" > text
printf 'a %s\2332J\302 b\n' "$hostile" > bytes
cat > on_terminal.py <<'P'
# on_terminal.py STATUS WORD… -- COMMAND…: runs COMMAND on a terminal; fails unless it has the exit status STATUS, prints each
# WORD, and prints no control characters.
import os, pty, sys
shown = b""
def read(descriptor):
    global shown
    data = os.read(descriptor, 1000)
    shown += data
    return data
end = sys.argv.index("--")
status = os.waitstatus_to_exitcode(pty.spawn(sys.argv[end + 1:], read))
text = shown.replace(b"\r\n", b"\n").decode(errors="surrogateescape")
# gnuplot starts a page with a form feed.
controls = {c for c in text if c < " " and c not in "\n\t\f" or "\x7f" <= c <= "\x9f" or "\udc80" <= c <= "\udc9f" or
            "\u202a" <= c <= "\u202e" or "\u2066" <= c <= "\u2069"}
missing = [word for word in sys.argv[2:end] if word not in text]
if status != int(sys.argv[1]) or controls or missing:
    sys.exit(f"{sys.argv[end + 1:]}: exit status {status}, control characters {controls}, without {missing}: {shown!r}")
P
all=('\x1b[31m' '\x9b2J' '\x0d\x07\x08\x7f\u202e\u202a\u2066\u2069')  # the escape sequences of `hostile`
# on_terminal STATUS COMMAND…: runs COMMAND on a terminal, where it must print the escape sequences in `escapes`. An expected error goes
# to errors.txt, with control characters of COMMAND escaped and without the CR that the terminal adds at line ends.
on_terminal() {
  TERM=dumb python3 on_terminal.py "$1" "${escapes[@]}" -- "${@:2}" </dev/null >shown || fail "on a terminal: $*"
  [ "$1" -eq 0 ] || { tr -d '\r' < shown > message; record_error "$1" message "on_terminal$(LC_ALL=C; printf ' %q' "${@:2}")"; }
}
escapes=("${all[@]}")
for type in char byte; do
  mh-prep vocab --type $type text > v 2>/dev/null
  mh-prep lm --vocab v text -o $type.mhs 2>/dev/null
  expect 0 mh-prep cat $type.mhs
  cmp out text
  on_terminal 0 mh-prep cat $type.mhs
done
mh-prep lm --vocab v bytes -o bytes.mhs 2>/dev/null
escapes=('\x9b2J'$'\302'' b')
mh-prep cat bytes.mhs | cmp - bytes
TERM=dumb python3 on_terminal.py 0 '\x9b2J' -- mh-prep cat bytes.mhs </dev/null >shown || fail "bytes that are not UTF-8"
# Control characters in names of files, in errors and in tables.
name="no$hostile.mhs"
escapes=("${all[@]}")
on_terminal 3 mh-prep cat "$name"
on_terminal 3 mh-prep info "$name"
on_terminal 2 mh-prep cat "--$hostile" char.mhs
cp char.mhs "$name"
on_terminal 0 mh-prep info "$name"
# Control characters in a column name and in a label of a table.
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' one > vocab.txt
printf 'sentence\tlabel\none\t%s\n' "${hostile/$'\r'/}" > labels.tsv
printf '%s\tsentence\none\t1\n' "${hostile/$'\r'/}" > columns.tsv
escapes=('\x1b[31m' '\x9b2J' '\x07\x08\x7f\u202e\u202a\u2066\u2069')
on_terminal 3 mh-prep glue --task sst2 --wordpiece vocab.txt labels.tsv
on_terminal 3 mh-prep glue --task sst2 --wordpiece vocab.txt --text missing columns.tsv
[ -n "$(command -v mh-eval || true)" ] || exit 0

# Control characters in names of models and tensors, in generated tokens, and in texts of a configuration.
escapes=("${all[@]}")
m="model$hostile.safetensors"
mh-train -q --threads 1 --train char.mhs --out run --set model.layers=1 --set model.width=16 --set model.ffn_dim=16 --set attention.heads=2 \
  --set train.batch.sequence_length=8 --set train.batch.tokens=8 --set train.length=1u
cp run/last.safetensors "$m"
on_terminal 0 mh-eval -q "$m" char.mhs
on_terminal 0 mh-spectrum -q "$m" --of output-value
on_terminal 3 mh-eval -q "no$m" char.mhs
! command -v gnuplot >/dev/null || on_terminal 0 mh-spectrum -q "$m" run/last.safetensors --of output-value --plot -
TERM=dumb python3 on_terminal.py 0 -- mh-eval -q generate "$m" --length 60 --seed 3 </dev/null >shown || fail "generated text"
grep -q '\\x' shown || fail "expected a control character among 60 generated tokens of an untrained model"
python3 -B - "$ROOT/tests/cli" "$hostile" <<'P'
import sys
sys.path.insert(0, sys.argv[1])
import checkpoint_header
tensors, metadata, data = checkpoint_header.read("run/last.safetensors")
tensors["decoder" + sys.argv[2]] = tensors.pop("decoder.layers.0.self.query.weight")
checkpoint_header.write("tensor.safetensors", tensors, metadata, data)
with open("c.toml", "w") as file:
    escaped = "".join(f"\\u{ord(c):04x}" for c in sys.argv[2])
    file.write(f'"key{escaped}" = 3\n')
with open("value.toml", "w") as file:
    file.write(f'model.backbone = "{escaped}"\n')
P
on_terminal 2 mh-train --config c.toml --train char.mhs --out no
escapes=()  # these messages escape a value or a tensor name in another form, or do not quote it
on_terminal 2 mh-train --config value.toml --train char.mhs --out no
on_terminal 3 mh-eval tensor.safetensors char.mhs
