# Control characters in texts and names reach a terminal as text, and a pipe unchanged.
printf 'a \033[31mb\n' > text
mh-prep vocab --type char text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
expect 0 mh-prep cat t.mhs
cmp out text
cat > on_terminal.py <<'P'
import os, pty, sys
shown = b""
def read(descriptor):
    global shown
    data = os.read(descriptor, 1000)
    shown += data
    return data
pty.spawn(sys.argv[1:], read)
sys.exit(0 if b"\\x1b[31m" in shown and b"\x1b" not in shown else f"on a terminal: {shown!r}")
P
python3 on_terminal.py mh-prep cat t.mhs </dev/null >/dev/null
TERM=dumb python3 on_terminal.py mh-prep cat $'no\033[31m.mhs' </dev/null >/dev/null
