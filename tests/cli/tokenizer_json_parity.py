"""Compares tokenizers of the type tokenizer-json with the package `tokenizers`: tokenizer_json_parity.py PROGRAMS [FILE…]

Without files, the package trains small models and assembles the pipelines of published model families from them. FILE is a tokenizer.json.
The ids of strings drawn from named classes of characters, of the words that the models were trained with, and of natural text in three scripts
(natural/), by lines and as whole texts, must be equal, also for a vocabulary file that mh-prep wrote, which is written back as a tokenizer.json
that the package must read with the same ids, too.
"""
import json
import pathlib
import random
import subprocess
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from wild_strings import CHARACTERS, WORDS, natural_lines, natural_texts, strings, training_lines

programs = pathlib.Path(sys.argv[1])
files = sys.argv[2:]
random.seed(11)

SPLIT_LLAMA = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPLIT_O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
               r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
               r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPLIT_CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
SPLIT_DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^" + "\r\n" + r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[" + "\r\n" +
                  r"]*|\s*[" + "\r\n" + r"]+|\s+(?!\S)|\s+")
SPLIT_BLOOM = r" ?[^(\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


ALPHABET = pre_tokenizers.ByteLevel.alphabet()
SPECIAL = ["<unk>", "<s>", "</s>", "<|endoftext|>"]


def bpe(normalizer, pre_tokenizer, size=700, alphabet=ALPHABET, special=SPECIAL, model=None, **settings):
    """Trains a BPE model and returns a tokenizer with its pieces, its merges and `settings`."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>" if alphabet is None else None))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=special, **({"initial_alphabet": alphabet} if alphabet else {"limit_alphabet": 250}))
    tokenizer.train_from_iterator(training_lines() + natural_lines(), trainer)
    saved = json.loads(tokenizer.to_str())
    saved["model"].update(settings)
    return Tokenizer.from_str(json.dumps(saved))


def byte_fallback(normalizer, pre_tokenizer, **settings):
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    return bpe(normalizer, pre_tokenizer, alphabet=None, special=pieces, size=1100, byte_fallback=True, fuse_unk=True, unk_token="<unk>", **settings)


def template(begin, tokenizer, end=()):
    names = [*begin, "$A", *end]
    return processors.TemplateProcessing(single=names, pair=names + ["$B:1"], special_tokens=[(n, tokenizer.token_to_id(n)) for n in {*begin, *end}])


def unigram(normalizer, pre_tokenizer, has_byte_fallback=False):
    """Returns a tokenizer whose pieces are parts of words and characters with random log-probabilities, some of them equal."""
    pieces = {"<unk>": 0.0, "<s>": 0.0, "</s>": 0.0}
    for text in ["\u2581" + word for word in WORDS + " ".join(natural_lines()).split()] + sum(CHARACTERS.values(), []):
        for _ in range(12):
            begin = random.randrange(len(text))
            pieces.setdefault(text[begin:begin + random.randrange(1, 6)], -float(random.randrange(20, 120)) / 8 - random.random() * random.randrange(2))
    if has_byte_fallback:
        pieces.update({f"<0x{byte:02X}>": -20.0 for byte in range(256)})
    tokenizer = Tokenizer(models.Unigram(list(pieces.items()), 0, has_byte_fallback))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def wordpiece(normalizer, pre_tokenizer):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(training_lines() + natural_lines(), trainers.WordPieceTrainer(vocab_size=600, show_progress=False, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    tokenizer.post_processor = template(["[CLS]"], tokenizer, ["[SEP]"])
    return tokenizer


def word_level(words):
    tokenizer = Tokenizer(models.WordLevel(words, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


# A table of replacements as SentencePiece builds it is too large to write here; this one replaces U+00BD, U+2460 and the no-break space.
def charsmap():
    """Returns a table that maps a few characters, as a double-array trie with the layout of SentencePiece's files."""
    replaced = {"\u00bd": "1/2", "\u2460": "1", "\u00a0": " ", "\ufb01": "fi", "\t": " ", "\r": " ", "\n": " "}
    values, texts = {}, b""
    for source, target in replaced.items():
        values[source.encode()] = len(texts)
        texts += target.encode() + b"\0"
    units, used = {0: 0}, {0}

    def place(keys, depth, node):
        children = sorted({k[depth] if len(k) > depth else 0 for k in keys})
        base = next(b for b in range(1, 1 << 20) if all((b ^ c) not in used for c in children) and (node ^ b) < 1 << 21)
        base_position = base
        used.update(base_position ^ c for c in children)
        units[node] = units[node] | (node ^ base_position) << 10
        for c in children:
            below = [k for k in keys if (k[depth] if len(k) > depth else 0) == c]
            if c == 0:
                units[node] |= 1 << 8
                units[base_position] = values[below[0]] | 1 << 31
            else:
                units[base_position ^ c] = c
                place(below, depth + 1, base_position ^ c)

    place(list(values), 0, 0)
    import struct
    size = max(units) + 257
    trie = b"".join(struct.pack("<I", units.get(i, 0)) for i in range(size))
    return struct.pack("<I", len(trie)) + trie + texts


def pipelines():
    """Yields the names and the tokenizers of the pipelines of published families, and of further components."""
    t = bpe(None, pre_tokenizers.Sequence([split(SPLIT_LLAMA), BYTES]), ignore_merges=True)
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template(["<s>"], t)])
    t.decoder = decoders.ByteLevel()
    yield "Llama 3", t
    t = bpe(normalizers.NFC(), pre_tokenizers.Sequence([split(SPLIT_LLAMA.replace("{1,3}", "")), BYTES]))
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("<word>", single_word=True), AddedToken("<LEFT>", lstrip=True)])
    yield "Qwen", t
    for name, pattern in {"o200k": SPLIT_O200K, "cl100k": SPLIT_CL100K}.items():
        yield name, bpe(None, pre_tokenizers.Sequence([split(pattern), BYTES]))
    yield "BLOOM", bpe(None, pre_tokenizers.Sequence([split(SPLIT_BLOOM), BYTES]))
    t = bpe(normalizers.NFC(), GPT2)
    t.add_tokens([AddedToken(" " * n, normalized=True) for n in range(2, 9)])
    yield "GPT-NeoX, ModernBERT", t
    yield "SmolLM", bpe(None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2]))
    yield "Falcon", bpe(None, pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), GPT2, pre_tokenizers.Digits(False), split("[0-9][0-9][0-9]")]))
    t = bpe(normalizers.Sequence([]), pre_tokenizers.Sequence([split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), split(SPLIT_DEEPSEEK), BYTES]))
    t.add_tokens([AddedToken("<tool>"), AddedToken("<right>", rstrip=True)])
    yield "DeepSeek", t
    t = bpe(None, pre_tokenizers.ByteLevel(add_prefix_space=True))
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
    yield "RoBERTa with a space in front", t
    t = byte_fallback(normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]), None)
    t.post_processor = template(["<s>"], t)
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    yield "Llama 2, legacy", t
    yield "Llama 2", byte_fallback(None, pre_tokenizers.Metaspace("\u2581", prepend_scheme="first", split=False))
    yield "Gemma", byte_fallback(normalizers.Replace(" ", "\u2581"), pre_tokenizers.Split(" ", "merged_with_previous"))
    yield "unknown tokens", bpe(None, pre_tokenizers.Whitespace(), alphabet=None, unk_token="<unk>", fuse_unk=False)
    yield "dropped characters", bpe(None, pre_tokenizers.WhitespaceSplit(), alphabet=None, unk_token=None)
    words = {word: i for i, word in enumerate(dict.fromkeys(["<unk>", "</s>", *WORDS]))}
    yield "words", word_level(words)
    t = bpe(normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer(), alphabet=None, fuse_unk=True)
    yield "lower case", t
    yield "ByteLevel normalizer", bpe(normalizers.Sequence([normalizers.NFD(), normalizers.ByteLevel()]), split(r"\w+|\W", "removed", True))
    metaspace = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t = unigram(normalizers.Precompiled(charsmap()), metaspace)
    t.post_processor = template([], t, ["</s>"])
    t.decoder = decoders.Metaspace()
    yield "T5, XLM-R", t
    yield "ALBERT", unigram(normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]),
                            pre_tokenizers.Metaspace())
    yield "Unigram, whole texts", unigram(normalizers.NFKC(), pre_tokenizers.Metaspace(split=False, prepend_scheme="never"), True)
    yield "WordPiece, 20 characters", wordpiece(normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer())
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            yield f"split {behavior} {invert}", wordpiece(normalizers.NFC(), pre_tokenizers.Sequence([split(r"[\s,]|\p{N}", behavior, invert), pre_tokenizers.CharDelimiterSplit("x")]))


def compare(name, path, tokenizer, texts):
    """Compares the ids and, without repeated or dropped characters, the decoded texts."""
    tokenizer.encode_special_tokens = True
    expected = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
    # The texts have line feeds, so they are separated by NUL.
    result = subprocess.run([programs / "token-ids", "--nul", path], input="\0".join(texts) + "\0", capture_output=True, encoding="utf-8")
    assert result.returncode == 0, (name, result.stderr)
    lines = result.stdout.split("\n")[:-1]
    assert len(lines) == len(texts), (name, len(lines), len(texts))
    different = [(text, line, ids) for text, line, ids in zip(texts, lines, expected) if [int(i) for i in line.split()] != ids]
    assert not different, f"{name}: {len(different)} of {len(texts)} texts have other ids, such as {different[:3]}"


def written_back(vocabulary):
    """Returns the tokenizer of the tokenizer.json that multihead writes for a vocabulary or a folder."""
    with open("written.json", "wb") as file:
        subprocess.run([programs / "token-ids", "--json", vocabulary], stdout=file, check=True)
    return Tokenizer.from_file("written.json")


def check_begin_tokens():
    """A written tokenizer.json puts the token in front of a text that tokenizer_config.json of its folder states."""
    tokenizer = bpe(normalizers.NFC(), GPT2)
    begin, end = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>")
    for processor in (processors.Sequence([]), processors.ByteLevel(trim_offsets=False), template(["<s>"], tokenizer), template([], tokenizer, ["</s>"])):
        tokenizer.post_processor = processor
        ends = [end] if tokenizer.encode("a").ids[-1] == end else []
        for has_begin in (False, True):
            folder = pathlib.Path("begin")
            folder.mkdir(exist_ok=True)
            tokenizer.save(str(folder / "tokenizer.json"))
            config = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": has_begin, "bos_token": "<s>", "eos_token": "</s>"}
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
            written = written_back(folder)
            expected = [[begin] * has_begin + tokenizer.encode(text, add_special_tokens=False).ids + ends for text in ("a", "cat")]
            assert written.encode("a").ids == expected[0], (processor, has_begin, written.encode("a").ids, expected[0])
            # tokenizers writes a pair of texts as two texts.
            assert written.encode("a", "cat").ids[:len(expected[0])] == expected[0], (processor, has_begin, written.encode("a", "cat").ids)


texts = strings() + training_lines()[:600]
natural = natural_lines() + natural_texts()
num_tokenizers = 0
for name, tokenizer in [(file, Tokenizer.from_file(file)) for file in files] or pipelines():
    path = pathlib.Path(f"{num_tokenizers}.json")
    path.write_text(tokenizer.to_str(), encoding="utf-8")
    # Reads the file again, since the reader of the package rounds the scores of Unigram.
    compare(name, path, Tokenizer.from_file(str(path)), (texts[::4] if name.startswith("split") else texts) + natural)
    subprocess.run(["mh-prep", "-q", "vocab", "--type", "tokenizer-json", "--from", path, "-o", "vocabulary"], check=True)
    subprocess.run(["mh-prep", "-q", "vocab", "--type", "tokenizer-json", "--from", "vocabulary", "-o", "copy"], check=True)
    vocabulary = pathlib.Path("vocabulary").read_bytes()
    assert vocabulary == pathlib.Path("copy").read_bytes(), f"{name}: a copy of the vocabulary differs"
    compare(f"{name}, vocabulary file", "vocabulary", written_back("vocabulary"), texts[::10] + natural)
    num_tokenizers += 1
check_begin_tokens()
print(f"{num_tokenizers} tokenizers give {len(texts + natural)} texts the same ids as tokenizers {tokenizers.__version__}")
