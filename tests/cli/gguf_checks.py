"""Checks data_scripts/gguf-to-huggingface with a small GGUF file of the form of SmolLM2, whose blocks are random:

gguf_checks.py write FILE        writes the GGUF file
gguf_checks.py compare FOLDER    compares the tensors and the configuration in FOLDER, a conversion of the file, with the formulas of the
                                 formats in plain Python
gguf_checks.py refuse            converts files with one fault each, which the script must refuse with a message that names the fault, and
                                 damaged files, which it must convert or refuse
Importing the script needs numpy, and so does `refuse`.
"""
import cmath
import importlib.machinery
import importlib.util
import json
import math
import pathlib
import random
import struct
import sys
import tempfile

WIDTH, INNER, HEADS, GROUPS, HEAD_SIZE, LAYERS, THETA = 96, 64, 6, 2, 16, 2, 1e5
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
NUMBERS = {"F32": 0, "F16": 1, "Q4_1": 3, "Q8_0": 8}  # numbers of the tensor types in GGUF
TYPES_OF_VALUES = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}
CHECKED_TEXT = "the the 12 x\n"
# The pieces of CHECKED_TEXT: "the" gives t and he, and " the" one piece. The space before 12 is a piece. 1 and 2 are two pieces, since
# each digit is a word of its own, to which the merge "1 2" does not apply. " x" gives two pieces, and the line feed one.
CHECKED_PIECES = ["t", "he", "\u0120the", "\u0120", "1", "2", "\u0120", "x", "\u010a"]


def byte_characters():
    """Returns the 256 characters of byte-level BPE by byte."""
    others = iter(range(256, 512))
    return [chr(byte if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xFF and byte != 0xAD else next(others)) for byte in range(256)]


MERGES = ["\u0120 t", "h e", "\u0120t he", "1 2"]
PIECES = [*SPECIAL, *byte_characters(), *(merge.replace(" ", "") for merge in MERGES)]


def metadata():
    return {
        "general.architecture": "llama", "general.languages": ["en"], "llama.block_count": LAYERS, "llama.context_length": 128, "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": INNER, "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": GROUPS, "llama.rope.freq_base": THETA,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.vocab_size": len(PIECES), "llama.rope.dimension_count": HEAD_SIZE,
        "tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": PIECES, "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(PIECES) - len(SPECIAL)), "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.chat_template": "{{ messages }}"}


def half(rng):
    """Returns the bytes of a random finite fp16 number of any exponent."""
    bits = rng.randrange(1 << 16)
    return struct.pack("<H", bits & 0xBBFF if bits & 0x7C00 == 0x7C00 else bits)


def fp32(rng):
    """Returns the bytes of a random fp32 number; one in four lies halfway between two bf16 numbers, one in eight is tiny."""
    bits = rng.choice([0, 1 << 31]) | rng.randrange(1 if rng.random() < .125 else 100 << 23, 130 << 23)
    return struct.pack("<I", bits & ~0xFFFF | 0x8000 if rng.random() < .25 else bits)


def tensors():
    """Returns {name in GGUF: (shape, type, bytes)}; shapes are (out, in)."""
    key_rows, query_rows, rng = GROUPS * HEAD_SIZE, HEADS * HEAD_SIZE, random.Random(5)
    result = {"token_embd.weight": ((len(PIECES), WIDTH), "Q8_0")}
    for layer in range(LAYERS):
        types = ["Q4_1", "Q8_0", "F16", "F32"] if layer else ["Q8_0", "Q4_1", "Q4_1", "Q4_1"]
        result.update({f"blk.{layer}.{name}.weight": (shape, kind) for name, shape, kind in (
            ("attn_norm", (WIDTH,), "F32"), ("ffn_down", (WIDTH, INNER), types[0]), ("ffn_gate", (INNER, WIDTH), types[1]), ("ffn_up", (INNER, WIDTH), types[2]),
            ("ffn_norm", (WIDTH,), "F32"), ("attn_k", (key_rows, WIDTH), types[3]), ("attn_output", (WIDTH, query_rows), types[2]),
            ("attn_q", (query_rows, WIDTH), types[0]), ("attn_v", (key_rows, WIDTH), types[1]))})
    result["output_norm.weight"] = (WIDTH,), "F32"
    blocks = {"F32": (1, lambda: fp32(rng)), "F16": (1, lambda: half(rng)), "Q8_0": (32, lambda: half(rng) + rng.randbytes(32)),
              "Q4_1": (32, lambda: half(rng) + half(rng) + rng.randbytes(16))}
    for name, (shape, kind) in result.items():
        size, draw = blocks[kind]
        result[name] = shape, kind, b"".join(draw() for _ in range(math.prod(shape) // size))
    return result


def string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def typed_value(value):
    if isinstance(value, list):
        kind = 8 if isinstance(value[0], str) else TYPES_OF_VALUES[type(value[0])][0]
        elements = b"".join(string(v) if kind == 8 else struct.pack(f"<{TYPES_OF_VALUES[type(v)][1]}", v) for v in value)
        return struct.pack("<IIQ", 9, kind, len(value)) + elements
    if isinstance(value, str):
        return struct.pack("<I", 8) + string(value)
    if isinstance(value, bytes):  # a type and a value in the form of the file
        return value
    kind, letter = TYPES_OF_VALUES[type(value)]
    return struct.pack(f"<I{letter}", kind, value)


def encode(values, table, head=b"GGUF\3\0\0\0", num_tensors=None, numbers=None, offsets=None):
    """Returns the bytes of a GGUF file. `numbers` and `offsets` replace the numbers of types and the offsets of the tensors that they name."""
    begin, data = {}, b""
    for name, (_, _, content) in table.items():
        begin[name] = len(data)
        data += content + b"\0" * (-len(content) % 32)
    result = head + struct.pack("<QQ", len(table) if num_tensors is None else num_tensors, len(values))
    result += b"".join(string(key) + typed_value(value) for key, value in values.items())
    for name, (shape, kind, _) in table.items():
        result += string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        result += struct.pack("<IQ", (numbers or {}).get(name, NUMBERS.get(kind)), (offsets or {}).get(name, begin[name]))
    return result + b"\0" * (-len(result) % 32) + data


def decoded(kind, content):
    """Returns the numbers of a tensor. Each sum of a block is exact in double precision."""
    if kind in ("F32", "F16"):
        return [value for value, in struct.iter_unpack("<f" if kind == "F32" else "<e", content)]
    values, size = [], 34 if kind == "Q8_0" else 20
    for at in range(0, len(content), size):
        block = content[at:at + size]
        if kind == "Q8_0":
            scale, = struct.unpack_from("<e", block)
            values += [scale * q for q in struct.unpack_from("<32b", block, 2)]
        else:
            scale, minimum = struct.unpack_from("<ee", block)
            values += [scale * q + minimum for q in [byte & 15 for byte in block[4:]] + [byte >> 4 for byte in block[4:]]]
    return values


def bf16(value):
    """Returns `value`, rounded to fp32 and then to bf16, to nearest even, as bits."""
    bits, = struct.unpack("<I", struct.pack("<f", value))
    upper, lower = bits >> 16, bits & 0xFFFF
    return upper + (lower > 0x8000 or lower == 0x8000 and upper % 2 == 1)


def row_in_gguf(row):
    """Returns the row of the GGUF file that is row `row` of a projection to queries or keys in transformers."""
    head, within = divmod(row, HEAD_SIZE)
    half_of_head, pair = divmod(within, HEAD_SIZE // 2)
    return head * HEAD_SIZE + 2 * pair + half_of_head


def expected_tensors():
    """Returns {name in transformers: (shape, bits of the numbers)}."""
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
             "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    result = {}
    for name, (shape, kind, content) in tensors().items():
        *layer, part, _ = name.split(".")
        bits, columns = [bf16(value) for value in decoded(kind, content)], shape[-1]
        if part in ("attn_q", "attn_k"):
            bits = [bit for row in range(shape[0]) for bit in bits[row_in_gguf(row) * columns:][:columns]]
        result[f"model.layers.{layer[1]}.{names[part]}.weight" if layer else f"{names[part]}.weight"] = shape, bits
    return result


def check_rotation():
    """Checks that row_in_gguf() keeps the logits: of rotated pairs (2j, 2j+1) before, and of pairs (j, j + dk/2) after. Both logits add
    the same products in the same order, so they are equal in every bit."""
    rng, pairs = random.Random(6), HEAD_SIZE // 2
    query, key = ([rng.gauss(0, 1) for _ in range(HEAD_SIZE)] for _ in range(2))

    def logit(rows, first, step):
        """Returns the logit of the query at position 11 and the key at position 4; pair j consists of the rows first(j) and first(j) + step."""
        def rotated(vector, position):
            return [complex(vector[rows(first(j))], vector[rows(first(j) + step)]) * cmath.exp(1j * position * THETA**(-j / pairs)) for j in range(pairs)]
        return sum((q * k.conjugate()).real for q, k in zip(rotated(query, 11), rotated(key, 4)))

    before, after = logit(lambda row: row, lambda j: 2 * j, 1), logit(row_in_gguf, lambda j: j, pairs)
    assert before == after, f"expected equal logits; found {before} and {after}"


def compare(folder):
    check_rotation()
    data = pathlib.Path(folder, "model.safetensors").read_bytes()
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    assert size % 8 == 0 and header.pop("__metadata__") == {"format": "pt"}, size
    expected, end = expected_tensors(), 0
    assert header.keys() == expected.keys(), header.keys() ^ expected.keys()
    for name, entry in header.items():  # in the order of the file, without gaps
        shape, bits = expected[name]
        begin, end = end, end + 2 * len(bits)
        assert entry == {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}, (name, entry)
        assert list(struct.unpack(f"<{len(bits)}H", data[8 + size + begin:8 + size + end])) == bits, f"{name}: other numbers"
    assert len(data) == 8 + size + end, f"expected {8 + size + end} bytes; found {len(data)}"

    config = json.loads(pathlib.Path(folder, "config.json").read_text())
    for key, value in {"model_type": "llama", "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
                       "num_key_value_heads": GROUPS, "head_dim": HEAD_SIZE, "vocab_size": len(PIECES), "rms_norm_eps": 1e-5, "rope_theta": THETA,
                       "max_position_embeddings": 128, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}.items():
        assert config[key] == value, (key, config[key], value)
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": THETA}, config["rope_parameters"]
    roles = json.loads(pathlib.Path(folder, "special_tokens_map.json").read_text())
    assert roles == {"bos_token": SPECIAL[1], "eos_token": SPECIAL[2], "unk_token": SPECIAL[0], "pad_token": SPECIAL[2]}, roles
    tokenizer = json.loads(pathlib.Path(folder, "tokenizer.json").read_text())
    assert tokenizer["model"]["vocab"] == {piece: token for token, piece in enumerate(PIECES)} and tokenizer["model"]["merges"] == MERGES
    compare_ids(folder)


def compare_ids(folder):
    """Compares the ids of the checked text, if the package tokenizers is installed."""
    pathlib.Path("text").write_text(CHECKED_TEXT)
    expected = [PIECES.index(piece) for piece in CHECKED_PIECES]
    pathlib.Path("ids").write_text(" ".join(map(str, expected)) + "\n")
    try:
        import tokenizers
    except ImportError:
        return
    tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
    for text, ids in ((CHECKED_TEXT, expected), ("x<|im_end|>12", [PIECES.index("x"), 2, PIECES.index("1"), PIECES.index("2")])):
        assert tokenizer.encode(text).ids == ids, (text, tokenizer.encode(text).ids, ids)
        assert tokenizer.decode(ids, skip_special_tokens=False) == text, text


def load_script():
    """Imports data_scripts/gguf-to-huggingface."""
    path = pathlib.Path(__file__).resolve().parents[2] / "data_scripts/gguf-to-huggingface"
    loader = importlib.machinery.SourceFileLoader("gguf", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gguf", loader))
    loader.exec_module(module)
    return module


def faulty_files():
    """Yields the bytes of files with one fault each, and words of the message that refuses them."""
    def changed(**changes):
        return {**metadata(), **{key.replace("__", "."): value for key, value in changes.items()}}

    table, query = tensors(), "blk.1.attn_q.weight"
    without = {name: value for name, value in table.items() if name != query}
    for number, name in {2: "Q4_0", 12: "Q4_K", 14: "Q6_K", 30: "BF16", 99: "with the number 99"}.items():
        yield encode(metadata(), table, numbers={query: number}), [query, "the type " + name]
    yield b"", ["4 bytes of the magic number"]
    yield encode(metadata(), table, head=b"GGML\3\0\0\0"), ["whose first bytes are GGUF"]
    yield encode(metadata(), table, head=b"GGUF\2\0\0\0"), ["version 3", "version 2"]
    yield encode(metadata(), table, head=b"GGUF\0\0\0\3"), ["little-endian"]
    yield encode(metadata(), table, num_tensors=1 << 60), ["1 or 2 dimensions of the tensor"]
    yield encode(metadata(), without), ["the tensor " + query, "found none"]
    yield encode(metadata(), {**table, "output.weight": table[query]}), ["tied embeddings", "output.weight"]
    yield encode(metadata(), {**table, "blk.0.attn_q.bias": ((WIDTH,), "F32", b"\0" * 4 * WIDTH)}), ["without biases", "blk.0.attn_q.bias"]
    yield encode(metadata(), {**table, query: ((WIDTH * 2, WIDTH // 2), *table[query][1:])}), ["multiples of 32", "(192, 48)"]
    yield encode(metadata(), {**table, query: ((WIDTH // 3, WIDTH * 3), *table[query][1:])}), ["(96, 96)", "(32, 288)"]
    yield encode(metadata(), {**table, query: ((WIDTH, WIDTH, 1), *table[query][1:])}), ["1 or 2 dimensions"]
    yield encode(metadata(), {**table, query: ((1 << 60, 32), *table[query][1:])}), [query, "within the file"]
    yield encode(metadata(), table, offsets={query: 40}), [query, "multiple of 32"]
    yield encode(metadata(), table, offsets={query: 1 << 62}), [query, "within the file"]
    yield encode(metadata(), {**table, "output_norm.weight": ((WIDTH,), "F32", struct.pack("<f", math.nan) * WIDTH)}), ["output_norm.weight", "nan"]
    yield encode(metadata(), {**table, "output_norm.weight": ((WIDTH,), "F32", struct.pack("<I", 0x7F7F8000) * WIDTH)}), ["output_norm.weight", "range of bf16"]
    yield encode(metadata(), {**table, query: (*table[query][:2], b"\0\x7c\0\xfc" + table[query][2][4:])}), [query, "infinity"]
    for key, value, words in (
            ("general.architecture", "gemma", ["architecture llama; found gemma"]), ("llama.rope.scaling.type", "yarn", ["llama.rope.scaling.type"]),
            ("llama.expert_count", 8, ["llama.expert_count"]), ("tokenizer.ggml.add_bos_token", True, ["add_bos_token false"]),
            ("tokenizer.ggml.model", "llama", ["tokenizer.ggml.model gpt2", "found llama"]), ("tokenizer.ggml.pre", "qwen2", ["tokenizer.ggml.pre smollm", "found qwen2"]),
            ("tokenizer.ggml.scores", [0.5], ["tokenizer.ggml.scores"]), ("tokenizer.ggml.eos_token_id", 999, ["below 263", "999"]),
            ("tokenizer.ggml.merges", ["h q"], ["'h q'"]), ("tokenizer.ggml.tokens", PIECES[:-1] + ["a"], ["repeated piece"]),
            ("tokenizer.ggml.token_type", [1], ["263 pieces", "1 types"]), ("tokenizer.ggml.token_type", [6] * len(PIECES), ["the type 1", "[6]"]),
            ("llama.block_count", 0, ["positive sizes"]), ("llama.block_count", 0xFFFFFFFF, ["blk.2.attn_norm.weight", "found none"]),
            ("llama.attention.head_count", 5, ["width 96, 5 heads"]), ("llama.attention.head_count_kv", 4, ["6 heads and 4"]),
            ("llama.rope.dimension_count", 8, ["llama.rope.dimension_count 16; found 8"]), ("llama.rope.freq_base", -1.0, ["a positive number llama.rope.freq_base"]),
            ("llama.context_length", "long", ["llama.context_length", "a str"]), ("llama.vocab_size", 7, ["llama.vocab_size 263; found 7"]),
            ("general.alignment", 0, ["general.alignment"]), ("general.list", struct.pack("<IIQ", 9, 4, 1 << 60), ["general.list, a list of"]),
            ("general.list", struct.pack("<IIQ", 9, 9, 1), ["general.list", "the metadata type 9"]), ("general.text", struct.pack("<IQ", 8, 1 << 60), ["bytes of general.text"]),
            ("general.text", struct.pack("<IQ", 8, 1) + b"\xff", ["UTF-8 in general.text"]), ("general.number", struct.pack("<I", 77), ["the metadata type 77"])):
        yield encode(changed(**{key.replace(".", "__"): value}), table), words
    missing = metadata()
    del missing["tokenizer.ggml.eos_token_id"]
    yield encode(missing, table), ["tokenizer.ggml.eos_token_id"]
    del missing["llama.embedding_length"]
    yield encode(missing, table), ["llama.embedding_length", "no such key"]
    whole = encode({**metadata(), "general.languages_xx": "en"}, table)
    yield whole.replace(b"general.languages_xx", b"general.architecture"), ["distinct metadata keys", "'general.architecture' twice"]
    yield encode(metadata(), table).replace(b"blk.1.attn_q.weight", b"blk.1.attn_k.weight"), ["distinct names of tensors", "'blk.1.attn_k.weight' twice"]


def refuse():
    script, num_refused = load_script(), 0
    with tempfile.TemporaryDirectory() as folder:
        def refusal(data):
            """Converts a file, and returns the message that refuses it, or "". Another exception is an error of the script."""
            try:
                script.convert(data, folder)
            except script.Refusal as error:
                assert not list(pathlib.Path(folder).glob("part.*")), "expected no temporary folder"
                return str(error)
            return ""

        for data, words in faulty_files():
            message = refusal(data)
            assert all(word in message for word in words), f"expected a message with {words}; found {message!r}"
            assert message.startswith("expected ") and message.count("; ") >= 2, message
            assert not list(pathlib.Path(folder).iterdir()), message
        whole, rng = encode(metadata(), tensors()), random.Random(7)
        head = len(whole) - sum(-(-len(content) // 32) * 32 for _, _, content in tensors().values())  # first byte of the tensors
        for size in [*rng.sample(range(head), 150), *rng.sample(range(head, len(whole)), 20), len(whole) - 1]:
            assert refusal(whole[:size]), f"expected a refusal of the first {size} of {len(whole)} bytes"
        for _ in range(400):
            at = rng.randrange(head)
            num_refused += refusal(whole[:at] + rng.randbytes(1) + whole[at + 1:]) != ""
        assert 0 < num_refused < 400, num_refused
        assert not refusal(whole), "expected a conversion of the whole file"


if __name__ == "__main__":
    {"write": lambda path: pathlib.Path(path).write_bytes(encode(metadata(), tensors())), "compare": compare, "refuse": refuse}[sys.argv[1]](*sys.argv[2:])
