# data_scripts/wikipedia: a made dump becomes sentences without titles, headings, lists, redirects and talk pages; damaged dumps and a full disk leave no
# incomplete part; a second call continues. Needs the Python packages of the script, in the cache or from PyPI.
scripts=$ROOT/data_scripts
[ -d "$scripts" ] || skip "no data_scripts here"
export MH_DATA=
needs_peers
PYTHONPATH=$(bash -euo pipefail -c 'source "$1"; corpus_python mwparserfromhell==0.7.2 sacremoses==0.2.0' wikipedia "$scripts/corpus.sh" 2>/dev/null) ||
  { echo "without mwparserfromhell and sacremoses"; exit 0; }
export PYTHONPATH PYTHONDONTWRITEBYTECODE=1
python3 - <<'PYTHON'
import bz2
from xml.sax.saxutils import escape

MARY = """{{Infobox person|name=Mary}}
'''Mary Smith''' (born 1900) was a [[Paris|Parisian]] writer.<ref>Mr. Ref, ''Book''.</ref> She knew Mr. Smith &amp; Dr. No. She lived at No. 5 in the U.S. Army base from c. 1920. [[File:x.jpg|thumb|A caption.]][[Category:People]]

== History ==
She wrote:
* A book. It is a list item.
{| class="wikitable"
| A cell. || Another cell.
|}
=== Later ===
The 5&nbsp;km race < 6 km. "Is it?" he said. Yes! A rest without an end

== References ==
{{reflist}}
"""


def page(title, text, namespace=0, redirect=""):
    return (f"<page>\n<title>{escape(title)}</title>\n<ns>{namespace}</ns>\n<id>1</id>\n{redirect}\n"
            f'<revision>\n<id>2</id>\n<text xml:space="preserve">{escape(text)}</text>\n</revision>\n</page>\n')


def write(name, *pages, end="</mediawiki>\n"):
    xml = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">\n<siteinfo><sitename>W</sitename></siteinfo>\n' + "".join(pages) + end
    with bz2.open(name, "wb") as file:
        file.write(xml.encode())


mary = [page("Mary", MARY), page("Smith", "#REDIRECT [[Mary]]", redirect='<redirect title="Mary" />'), page("Talk:Mary", "I disagree. Why?", 1),
        page("List of lists", "* [[One]]\n* [[Two]]\n")]
write("the dump.xml.bz2", *mary)
many = [page(f"Template {i}", f"This is article {i}. It has two sentences.") for i in range(1003)]
write("many.xml.bz2", *many)
write("cut.xml.bz2", *many, end="<page>\n<title>Another")
write("closed.xml.bz2", *mary, end="</page></mediawiki>\n")
write("empty.xml.bz2", mary[1], mary[2])

# Each article and its sentences.
SNIPPETS = [
    ("A '''bold''', an ''italic'' and a '''''both''''' word.\n\nThe film ''Titanic'''s captain isn't here.\n\nBut L'''[[Express]]'' is ''''read''''.",
     ["A bold, an italic and a both word.", "The film Titanic's captain isn't here.", "But L'Express is 'read'."]),
    ("See [[Paris]], [[Paris|the city]], [[bus]]es, [[:Category:Rivers]], [[image|]], [[CSI: Miami]] and [[wikt:word|a word]]. It has a [http://a.b/c page] too.[http://a.b/c]",
     ["See Paris, the city, buses, Category:Rivers, image, CSI: Miami and a word.", "It has a page too."]),
    ("[[File:a.jpg|thumb|A [[link]] in ''it''. Two.|alt=x]]One sentence.[[image:b.png]] [[Category:Rivers]][[fr:Un]] [[zh-min-nan:Un]]", ["One sentence."]),
    ("A {{convert|5|{{nested|{{deep}}|[[x|y]]}}}}short one.{{efn|A note. Two.}} {{Infobox\n| a = {{b\n| c = d. E\n}}\n}}Next one.", ["A short one.", "Next one."]),
    ("{| class=\"wikitable\"\n! Head. One.\n|-\n| Cell. {{a}} || Other.\n{|\n| Inner. Table.\n|}\n|}\nAfter the table.", ["After the table."]),
    ("It rains.<ref>Smith, ''Rain''. 1900.</ref><ref name=\"a\" /><REF name=b>[http://a.b Two]. {{cite|<ref>c</ref>}}</REF> It snows.<references>A. B.</references>",
     ["It rains.", "It snows."]),
    ("One <!-- A comment. Two. -->line\n<!--\nB. C.\n-->goes on.\n\nA rest\n\nThe end.", ["One line goes on.", "The end."]),
    ("* An item. Two.\n** A [[b]]. ''C''. {{d\n|e}} F.\n# A number. <ref>\nX. Y.\n</ref> Z.\n; A term. : Its definition.\n: An indent. B.\nA sentence.\n<ul><li>An item.</li></ul>",
     ["A sentence."]),
    ("== A heading. ==\nText one.\n=== Another. === <!-- x -->\nText two.\n----\nText three.", ["Text one.", "Text two.", "Text three."]),
    ("AT&amp;T is a&nbsp;firm &ndash; here. It has 3&#160;&lt;&#x20;4 and the sign&#32;&euro;.", ["AT&T is a firm \u2013 here.", "It has 3 < 4 and the sign \u20ac."]),
    ("The mass <math>m = a|b. C</math> is large. <gallery>\nFile:a.jpg|A caption. B.\n</gallery><code>x = {{1}}. Y.</code> It holds.<syntaxhighlight lang=\"c\">\na[[1]]. B\n"
     "</syntaxhighlight>", ["The mass is large.", "It holds."]),
    ("Paris ({{IPA|a}}; born 1900 {{x}}) is old ({{y}}) . Water, H<sub>2</sub>O,<br />flows.<div class=\"a\">In a division.</div>{{z}}<blockquote>A quote.</blockquote> __NOTOC__",
     ["Paris (born 1900) is old.", "Water, H2O, flows.", "In a division.", "A quote."]),
    ("One is whole. Two has {{a template without an end. Three is whole. Four has a [[link without an end. Five.<ref>Note. Six is whole. Seven</div> is not. Eight '''is.",
     ["One is whole.", "Three is whole.", "Six is whole.", "Eight is."]),
    ("{|\n| A cell of a table. B.\n! Without an end. C.\n== Heading without an end. D.\nText after it.", ["Text after it."]),
    ("#redirect [[Paris]]\n\nA redirect. Without the element.", []),
    ("{{a|" * 4000 + " This takes long.", []),
]
write("snippets.xml.bz2", *[page(f"Snippet {i}", text) for i, (text, _) in enumerate(SNIPPETS)])
with open("expected snippets", "w", encoding="utf-8") as file:
    file.write("".join("".join(f"{sentence}\n" for sentence in sentences) + "\n" for _, sentences in SNIPPETS if sentences))
PYTHON
expect 0 "$scripts/wikipedia" "a folder" "the dump.xml.bz2"; expect_stderr "articles: 2, parts: 1, documents: 1, sentences: 6, words: 40"
cat > expected <<'TEXT'
Mary Smith (born 1900) was a Parisian writer.
She knew Mr. Smith & Dr. No.
She lived at No. 5 in the U.S. Army base from c. 1920.
The 5 km race < 6 km.
"Is it?" he said.
Yes!

TEXT
diff expected "a folder/part-00000.txt"
grep -q 'sacremoses 0.2.0' "a folder/source.tsv" || fail "expected the rule of sentences in source.tsv"
# Markup: only whole sentences remain; an article that takes too long, and sentences with markup that is not closed, are left out and counted.
expect 0 env MH_TEST_PAGE_SECONDS=3 "$scripts/wikipedia" snippets snippets.xml.bz2; expect_stderr "the article 'Snippet 15' is left out: the parser needs more than 3 s"
diff "expected snippets" snippets/part-00000.txt
expect_stderr "left out in this call: 1 articles that cannot be parsed, 4 sentences with markup that is not closed"
expect_stderr "articles: 15, parts: 1, documents: 14"
! grep -nE "\[\[|\]\]|\{\{|\}\}|''|<[^ ]|==|\|" snippets/part-00000.txt || fail "expected no markup"
# Many articles: valid.mhs has every 1,000th; parts of any size and number have the same text.
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' this is article it has two sentences . > pieces.txt
mh-prep vocab -q --type wordpiece --from pieces.txt > pieces
expect 0 "$scripts/wikipedia" many many.xml.bz2 pieces; expect_stderr "articles: 1003, parts: 1, documents: 1003, sentences: 2006"
[ "$(mh-prep info many/train.mhs many/valid.mhs | awk -F'\t' '$1 == "documents" { print $2 }' | paste -sd ' ')" = "1002 1" ] || fail "expected 1002 and 1 documents; found $(mh-prep info many/*.mhs)"
expect 0 "$scripts/wikipedia" many many.xml.bz2 pieces; expect_stderr "train.mhs: present, not written again"
export MH_TEST_PART_SIZE=2000
expect 0 "$scripts/wikipedia" parts many.xml.bz2
[ "$(find parts -name 'part-*' | wc -l)" -gt 20 ] || fail "expected more than 20 parts; found $(ls parts)"
cat parts/part-*.txt | cmp - many/part-00000.txt
# A second call writes the missing parts only; a call after SIGKILL completes the folder.
rm parts/counts.tsv parts/part-00003.txt
touch -d 2001-01-01 parts/part-*.txt
expect 0 "$scripts/wikipedia" parts many.xml.bz2; expect_stderr "articles: 1003"
[ "$(find parts -name 'part-*' -newermt 2002-01-01)" = parts/part-00003.txt ] || fail "expected one new part; found $(find parts -newermt 2002-01-01)"
cat parts/part-*.txt | cmp - many/part-00000.txt
for signal in TERM KILL; do
  mkdir killed
  python3 -B "$scripts/wikipedia.py" killed many.xml.bz2 2>/dev/null & pid=$!
  sleep 0.6
  kill -$signal $pid 2>/dev/null || true
  wait $pid 2>/dev/null || true
  [ $signal = KILL ] || [ -z "$(find killed -name '*.part')" ] || fail "expected no incomplete part after SIGTERM; found $(ls killed)"
  expect 0 "$scripts/wikipedia" killed many.xml.bz2
  diff -r killed parts
  rm -r killed
done
# Damaged dumps: complete parts remain, nothing else; they are refused with another dump.
expect 1 "$scripts/wikipedia" cut cut.xml.bz2
[ -z "$(find cut -name '*.part' -o -name counts.tsv)" ] || fail "expected complete parts only; found $(ls cut)"
for part in cut/part-*; do cmp "$part" "parts/${part#*/}"; done
expect 1 "$scripts/wikipedia" cut many.xml.bz2; expect_stderr "found parts of another dump"
head -c 1000 many.xml.bz2 > half.xml.bz2
expect 1 "$scripts/wikipedia" half half.xml.bz2
expect 1 "$scripts/wikipedia" closed closed.xml.bz2
expect 1 "$scripts/wikipedia" empty empty.xml.bz2
expect 1 "$scripts/wikipedia" none none.xml.bz2
expect 1 "$scripts/wikipedia" other expected
expect 1 "$scripts/wikipedia" gone "file://$PWD/none.xml.bz2"; expect_stderr "wikipedia: none.xml.bz2: expected the file"
: > enwiki-20200101-pages-articles-multistream.xml.bz2
expect 1 "$scripts/wikipedia" short enwiki-20200101-pages-articles-multistream.xml.bz2; expect_stderr "expected 17751214669 bytes; found 0"
expect 1 bash -c 'ulimit -f 8; exec "$@"' bash env MH_TEST_PART_SIZE=50000 "$scripts/wikipedia" full many.xml.bz2
[ -z "$(find closed empty half none other gone short full -name 'part-*' -o -name counts.tsv)" ] || fail "expected no part of a damaged dump"
