"""Strings for comparisons of the ids of tokenizers with the ids of other packages: words mixed with characters of named classes, drawn by the
module random, whose seed the caller sets, and natural text in three scripts.
"""
import pathlib
import random

CHARACTERS = {
    "combining marks": [*map(chr, range(0x300, 0x370)), *map(chr, range(0x1AB0, 0x1AD0)), "\u0345", "\u05b0", "\u064b", "\u3099", "\u0f71\u0f72",
                        "e\u0301", "a\u0323\u0302", "\u00e9\u0327", "\u212b", "\u0958", "\u0344", "\u1100\u1161", "\u0897", "\u1dfa", "\u11938"],
    "joiners": ["\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u034f", "\u180e", "a\u200db", "\u0915\u094d\u200d\u0937"],
    "cjk": [*map(chr, range(0x4E00, 0x4E30)), *map(chr, range(0x3040, 0x3060)), "\u30ab\u30bf", "\u3000", "\u3001", "\U00020000", "\uf900", "\u32ff"],
    "digits": [*"0123456789", "12", "345", "67890", "\u0663", "\u0967", "\u00b2", "\u00bd", "\u2160", "\u2460", "\U0001d7d8", "\U00016d70", "\u09f4"],
    "spaces": [" ", "  ", "   ", "     ", "\t", "\r", "\n", "\n\n", "\r\n", "\u00a0", "\u2003", "\u2028", "\u0085", "\u1680", "\x0b", "\x1c", "\u3000"],
    "added tokens": ["<s>", "</s>", "<unk>", "<|endoftext|>", "<|begin_of_text|>", "[CLS]", "[MASK]", " [MASK] ", "<tool>", "<tool>x", "x<tool>",
                     "<word>", "a<word>", " <word> ", "<LEFT>", "<left>", "  <right>  ", "<Norm\u00c9>", "<norme\u0301>", "<norm\u00e9>"],
    "controls": [*map(chr, range(1, 32)), "\x7f", "\x80", "\x9f", "\u200e", "\u202e", "\ue000", "\U0010ffff", "\ufffd", "\ufffe"],
    "hangul": [*map(chr, range(0xAC00, 0xAC20)), "\u1112\u1161\u11ab", "\u1100", "\u1161", "\u11a8", "\ud7a3", "\u3131", "\uac00\u11a8"],
    "emoji": ["\U0001f600", "\U0001f44d\U0001f3fd", "\U0001f469\u200d\U0001f4bb", "\u2764\ufe0f", "\U0001f1e9\U0001f1ea", "#\ufe0f\u20e3", "\U0001fae9"],
    "case": [*"AbCdSKkstSTffFI", "\u017f", "\u212a", "\u0130", "\u0131", "\u00df", "\u1e9e", "\u03a3", "\u03c3\u03c2", "\ufb01", "\u01c5", "\ua7cb", "\U00010d50", "\u1c89"],
    "contractions": ["'s", "'S", "'\u017f", "'t", "'T", "'re", "'RE", "'ve", "'ll", "'lL", "'d", "'m", "'", "''", "it's", "we'LL", "\u2019s"],
    "look-alikes": ["\u2581", "\u2581\u2581", "\u0120", "\u010a", "\u00c4", "<0x0A>", "<0xC3>", "##a", "@@", "\\n", "\u0000".replace("\u0000", "0"), "<|", "|>", "\u00e2\u0096\u0081"],
    "punctuation": [*"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "...", "\u2026", "\u00bf", "\u060c", "\u3002", "\u2014", "$", "\u20ac", "\u00ab", "\u1b4e", "\u2e5d"],
    "compatibility": ["\ufb01", "\u00bd", "\u2460\u0308", "\u2460", "\u00bd\u0301", "\uff21", "\u2122", "\u33a5", "\ufdfa", "\u00a0\u0301", "\u2126", "\u1d2c", "\ufb1d"],
    "letters": [*map(chr, range(0xC0, 0x100)), *map(chr, range(0x400, 0x430)), *map(chr, range(0x5D0, 0x5EA)), *map(chr, range(0x915, 0x930)), "\u0e01", "\U00010400"],
}
WORDS = "the cat sat on mat, dog's house won't stop: we'll see 1234 numbers and 7 more; na\u00efve caf\u00e9 \u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u4e2d\u6587 \u6771\u4eac \uc548\ub155 HELLO World".split(" ")


def any_character():
    while 0xD800 <= (code := random.choice([random.randrange(1, 0x3000), random.randrange(1, 0x10000), random.randrange(0x10000, 0x20000)])) < 0xE000:
        pass
    return chr(code)


def strings():
    """Returns 200 strings of each class, mixed with words, and 200 of all classes and arbitrary characters."""
    everything = sum(CHARACTERS.values(), [])
    result = ["", " ", "\n"]
    for characters in [*CHARACTERS.values(), everything]:
        for _ in range(200):
            draw = lambda: random.choice(random.choices([characters, WORDS, [" "], everything], [6, 2, 2, 1])[0])
            result.append("".join(any_character() if random.random() < .02 else draw() for _ in range(random.randrange(1, 20))))
    return result


def natural_texts():
    """Returns the content of each file in natural/: Latin with accents, Cyrillic and Greek, Chinese and Japanese."""
    return [path.read_text(encoding="utf-8") for path in sorted((pathlib.Path(__file__).parent / "natural").iterdir())]


def natural_lines():
    return [line for text in natural_texts() for line in text.splitlines()]


def training_lines():
    return [" ".join(random.choice(WORDS) for _ in range(12)) for _ in range(300)] + strings()[::5]
