# Bytes take anything and give it back; characters give text back.
head -c 100000 /dev/urandom > any
mh-prep vocab --type byte any > byte.vocab
mh-prep lm --vocab byte.vocab any > any.mhs
mh-prep cat any.mhs | cmp - any
printf 'grün\nweiß\n\n' > text
mh-prep vocab --type char text > char.vocab
mh-prep lm --vocab char.vocab text | mh-prep cat - | cmp - text
