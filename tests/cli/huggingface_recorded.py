"""Records outputs of small models of transformers, for tests that compare with the record and need neither PyTorch nor transformers:

huggingface_recorded.py text                 prints the lines of text whose tokens are recorded
huggingface_recorded.py update FILE VALUES   sets keys of a JSON file to the values in the JSON object VALUES

huggingface_recorded.py record               writes the folders of the installed version of transformers to tests/cli/recorded
huggingface_recorded.py weights FOLDER CHANGE…   writes model.safetensors from tensors.txt; a CHANGE is NAME=NEW (renames a tensor),
                                             +NAME=COPY (adds a copy), ~NAME (rotates the values) or -PREFIX (removes PREFIX from all names)
huggingface_recorded.py compare FOLDER PRINTED IDS   compares the output of model-print and token-ids with the record
huggingface_recorded.py config FOLDER NEW    compares config.json of the folder NEW with the recorded configuration of FOLDER
huggingface_recorded.py peer FOLDER…         checks that transformers reads the same configuration and tokenizer from FOLDER.back
                                             and FOLDER

The functions after `record` serve huggingface_decoders.py, huggingface_encoders.py and huggingface_translators.py, whose records have the parts
of record.json.
"""
import json
import os
import pathlib
import shutil
import struct
import sys
import tempfile
import zlib

import tolerance

recorded_folder = pathlib.Path(__file__).resolve().parent / "recorded"
TEXT = ["w1 w2 w1", "the cat sat on the mat", "The CAT's mat, caf\u00e9 na\u00efve  12!", "\u4e2d\u6587 w3\t w10", "unknowable <pad> [NEW] mats"]


def numbers(name, shape):
    """Returns pseudo-random multiples of 1/1024 up to 0.25 in magnitude, plus 1 for the scales of layer norms; exact in fp32."""
    state, count = zlib.crc32(name.encode()), 1
    for size in shape:
        count *= size
    base = 1 if ("ln_" in name or "norm" in name.lower()) and name.endswith("weight") else 0
    values = []
    for _ in range(count):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        values.append(base + ((state >> 8) % 513 - 256) / 1024)
    return values


def formula_tensors(folder, changes):
    """Returns (shape, numbers) of each tensor in tensors.txt by name, after the changes."""
    tensors = {}
    for line in pathlib.Path(folder, "tensors.txt").read_text().splitlines():
        name, *shape = line.split()
        shape = list(map(int, shape))
        tensors[name] = shape, numbers(name, shape)
    for change in changes:
        if change.startswith("+"):
            name, _, copy = change[1:].partition("=")
            tensors[copy] = tensors[name]
        elif change.startswith("~"):
            shape, values = tensors[change[1:]]
            tensors[change[1:]] = shape, values[1:] + values[:1]
        elif change.startswith("-"):
            tensors = {name.removeprefix(change[1:]): value for name, value in tensors.items()}
        else:
            name, _, new = change.partition("=")
            tensors[new] = tensors.pop(name)
    return tensors


def pack_tensors(tensors, dtype="F32"):
    """Returns (dtype, shape, bytes) of each tensor by name. `dtype`: F32, F16 or BF16."""
    def pack(values):
        if dtype != "BF16":
            return struct.pack(f"<{len(values)}{'f' if dtype == 'F32' else 'e'}", *values)
        words = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
        return struct.pack(f"<{len(values)}H", *((word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words))
    return {name: (dtype, shape, pack(values)) for name, (shape, values) in tensors.items()}


def write_safetensors(path, packed_tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, tensor_bytes) in packed_tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(tensor_bytes)]}
        data += tensor_bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_weights(folder, *changes):
    write_safetensors(pathlib.Path(folder, "model.safetensors"), pack_tensors(formula_tensors(folder, changes)))


def compare(folder, printed, ids):
    """Compares hidden states of all positions, logits of the last position, next-sentence logits and token ids with the record."""
    expected = pathlib.Path(folder, "figures.txt").read_text().splitlines()
    lines = pathlib.Path(printed).read_text().splitlines()
    rows = pathlib.Path(folder, "rows").read_text().splitlines()
    assert len(lines) == len(expected) == len(rows) > 0, (len(lines), len(expected), len(rows))
    largest_difference = largest_entry = max_keys = 0
    for line, expected_line, row in zip(lines, expected, rows):
        actual = [[float(v) for v in part.split()] for part in line.split("|")]
        length = len(row.partition("|")[0].split())
        max_keys = max(max_keys, length)
        actual[1] = actual[1][-(len(actual[1]) // length):]
        for a, b in zip(actual, [[float(v) for v in part.split()] for part in expected_line.split("|")]):
            assert len(a) == len(b), (folder, len(a), len(b))
            largest_difference = max([largest_difference] + [abs(x - y) for x, y in zip(a, b)])
            largest_entry = max([largest_entry] + [abs(y) for y in b])
    # The record has 8 digits, so it adds less than one rounding.
    bound = tolerance.chain_bound(tolerance.pass_roundings(f"{folder}.safetensors", max_keys) + 1, largest_entry)
    assert largest_difference <= bound, f"{folder}: expected a difference of at most {bound:.1e}; found {largest_difference:.1e}"
    actual = [line.split() for line in pathlib.Path(ids).read_text().splitlines()]
    assert actual == [line.split() for line in pathlib.Path(folder, "ids").read_text().splitlines()], f"{folder}: the tokens differ"
    print(f"{folder}: at most {largest_difference:.1e} from the record")


# Keys of config.json that are not compared: the version of transformers and the name or path of the model.
IGNORED_KEYS = ("transformers_version", "_name_or_path")


def expected_config(folder):
    config = json.loads(pathlib.Path(folder, "read.json").read_text())
    if config["model_type"] == "gpt2":  # the value of the tokenizer, since config.json of GPT-2 lacks this key
        config["pad_token_id"] = json.loads(pathlib.Path(folder, "special.json").read_text())["pad_token_id"]
    return config


def compare_config(folder, new):
    expected, actual = expected_config(folder), json.loads(pathlib.Path(new, "config.json").read_text())
    for key, value in actual.items():
        assert key in expected and expected[key] == value, (key, expected.get(key), value)
    for key in json.loads(pathlib.Path(folder, "config.json").read_text()):
        may_be_absent = key in IGNORED_KEYS or key == "position_embedding_type" or key.startswith("summary_")  # keys whose defaults are the same in all versions
        assert key in actual or may_be_absent, f"{new}/config.json: expected the key {key}; found none"


def encode(tokenizer):
    return [tokenizer(line)["input_ids"] for line in TEXT] + [tokenizer(line, add_special_tokens=False)["input_ids"] for line in TEXT]


def load_tokenizer(folder, transformers):
    """Loads the tokenizer of `folder`. For transformers 4, renames the list extra_special_tokens of version 5 to
    additional_special_tokens in a copy of the folder."""
    path = pathlib.Path(folder, "tokenizer_config.json")
    config = json.loads(path.read_text())
    if not transformers.__version__.startswith("4.") or not isinstance(config.get("extra_special_tokens"), list):
        return transformers.AutoTokenizer.from_pretrained(folder)
    with tempfile.TemporaryDirectory() as copy:
        for file in pathlib.Path(folder).iterdir():
            if file.suffix in (".json", ".txt"):
                shutil.copy(file, copy)
        config["additional_special_tokens"] = config.pop("extra_special_tokens")
        pathlib.Path(copy, path.name).write_text(json.dumps(config))
        return transformers.AutoTokenizer.from_pretrained(copy)


def special(tokenizer):
    return {"pad_token_id": tokenizer.pad_token_id, "map": {k: str(v) for k, v in tokenizer.special_tokens_map.items()},
            "added": tokenizer.get_added_vocab(), "size": len(tokenizer), "ids": encode(tokenizer)}


def peer(*folders):
    import transformers
    transformers.logging.set_verbosity_error()
    for folder in folders:
        compare_peer(folder, f"{folder}.back", transformers)
    print(f"transformers {transformers.__version__} reads the same configurations and tokenizers from {len(folders)} folders and their copies")


def compare_peer(folder, new, transformers):
    readings = {}
    for path in (folder, new):
        config = transformers.AutoConfig.from_pretrained(path).to_dict()
        for key in IGNORED_KEYS:
            config.pop(key, None)
        config["dtype"] = str(config["dtype"]).removeprefix("torch.")
        config.setdefault("position_embedding_type", "absolute")  # transformers 5 has only this type and keeps the key if a file has it
        readings[path] = config, special(load_tokenizer(path, transformers))
    expected = readings[folder][0]
    if expected["model_type"] == "gpt2":
        expected["pad_token_id"] = readings[folder][1]["pad_token_id"]
    for key in expected.keys() | readings[new][0].keys():
        assert expected.get(key) == readings[new][0].get(key), (key, expected.get(key), readings[new][0].get(key))
    assert readings[folder][1] == readings[new][1], (readings[folder][1], readings[new][1])
    recorded_special = json.loads(pathlib.Path(folder, "special.json").read_text())
    for key in ("added", "size", "ids", "pad_token_id"):
        assert recorded_special[key] == readings[folder][1][key], (key, recorded_special[key], readings[folder][1][key])


def record():
    import torch
    import transformers
    from tokenizers import ByteLevelBPETokenizer
    version = transformers.__version__.split(".")[0]
    is_version_4 = version == "4"

    def save(name, model, tokenizer, rows):
        folder = recorded_folder / f"{name}-{version}"
        folder.mkdir(parents=True)
        state = model.state_dict()
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / "model.safetensors").unlink()
        (folder / "generation_config.json").unlink(missing_ok=True)
        parameters = dict(model.named_parameters())  # contains each tied tensor once, like saved files
        (folder / "tensors.txt").write_text("".join(f"{name} {' '.join(map(str, p.shape))}\n" for name, p in parameters.items()))
        with torch.no_grad():
            for key, value in parameters.items():
                value.copy_(torch.tensor(numbers(key, value.shape), dtype=torch.float32).view(value.shape))
        model.eval()
        assert len(state) >= len(parameters)
        figures = []
        for row in rows:
            inputs = {"input_ids": torch.tensor([row])}
            if name == "bert":
                inputs["token_type_ids"] = torch.tensor([[0] * (len(row) // 2) + [1] * (len(row) - len(row) // 2)])
            with torch.no_grad():
                out = model(**inputs, output_hidden_states=True)
            logits = out.prediction_logits if name == "bert" else out.logits
            parts = [out.hidden_states[-1].flatten(), logits[0, -1], out.get("seq_relationship_logits", torch.zeros(0)).flatten()]
            figures.append(" | ".join(" ".join(f"{v:.8g}" for v in part.tolist()) for part in parts))
        (folder / "figures.txt").write_text("\n".join(figures) + "\n")
        segments = [" | " + " ".join(["0"] * (len(r) // 2) + ["1"] * (len(r) - len(r) // 2)) if name == "bert" else "" for r in rows]
        (folder / "rows").write_text("".join(" ".join(map(str, r)) + s + "\n" for r, s in zip(rows, segments)))
        read_config = transformers.AutoConfig.from_pretrained(folder).to_dict()
        read_config = {k: v for k, v in read_config.items() if k not in IGNORED_KEYS} | {"dtype": "float32"}
        (folder / "read.json").write_text(json.dumps(read_config, indent=1, sort_keys=True) + "\n")
        reloaded = transformers.AutoTokenizer.from_pretrained(folder)
        (folder / "special.json").write_text(json.dumps(special(reloaded), indent=1) + "\n")
        # The project never encodes text to special tokens, so their names are tokenised as plain text.
        plain = [reloaded(line, add_special_tokens=False, split_special_tokens=True)["input_ids"] for line in TEXT]
        from tokenizers import Tokenizer
        fast_tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        fast_tokenizer.encode_special_tokens = True
        assert plain == [fast_tokenizer.encode(line, add_special_tokens=False).ids for line in TEXT]
        (folder / "ids").write_text("".join(" ".join(map(str, line)) + "\n" for line in plain))

    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(TEXT * 3, vocab_size=275, min_frequency=3, special_tokens=["<|endoftext|>"], show_progress=False)
    bpe.save_model("/tmp", "recorded")
    tokenizer_class = transformers.GPT2TokenizerFast if is_version_4 else transformers.GPT2Tokenizer
    if is_version_4:
        tokenizer = tokenizer_class("/tmp/recorded-vocab.json", "/tmp/recorded-merges.txt")
    else:
        pairs = [tuple(line.split()) for line in open("/tmp/recorded-merges.txt", encoding="utf-8").read().splitlines()[1:]]
        tokenizer = tokenizer_class(vocab=json.load(open("/tmp/recorded-vocab.json", encoding="utf-8")), merges=pairs)
    tokenizer.add_special_tokens({"pad_token": "<pad>", "additional_special_tokens" if is_version_4 else "extra_special_tokens": ["<sep>"]})
    end = tokenizer.eos_token_id
    config = transformers.GPT2Config(vocab_size=len(tokenizer), n_positions=16, n_embd=8, n_layer=2, n_head=2, bos_token_id=end, eos_token_id=end)
    save("gpt2", transformers.GPT2LMHeadModel(config), tokenizer, [[0, 5, 270, 3, 100], [17, len(tokenizer) - 2], [9] * 11])

    words = "the cat sat on mat caf cafe The CAT w w1 ##1 ##2 ##3 ##10 ##s ##e na ##ive 12 ! , ' s \u4e2d unknow ##able".split()
    pathlib.Path("/tmp/recorded-vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + words) + "\n")
    tokenizer_class = transformers.BertTokenizerFast if is_version_4 else transformers.BertTokenizer
    vocabulary = "/tmp/recorded-vocab.txt" if is_version_4 else {w: i for i, w in enumerate(open("/tmp/recorded-vocab.txt", encoding="utf-8").read().splitlines())}
    tokenizer = tokenizer_class(vocabulary, do_lower_case=is_version_4)
    tokenizer.add_special_tokens({"additional_special_tokens" if is_version_4 else "extra_special_tokens": ["[NEW]"]})
    config = transformers.BertConfig(vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
                                     max_position_embeddings=20)
    save("bert", transformers.BertForPreTraining(config), tokenizer, [[2, 5, 6, 7, 3, 8, 3], [2, 3], [2] + [9] * 9])


# Keys of config.json that the other scripts do not compare.
MODEL_IGNORED_KEYS = IGNORED_KEYS + ("architectures", "dtype", "torch_dtype")
# Keys that a record has even where they have the default of all classes.
RECORDED_KEYS = ("tie_word_embeddings", "pad_token_id", "bos_token_id", "eos_token_id", "use_cache")


def write_record(folder, row_lines):
    """Writes the parts of record.json as files: tensors.txt, figures.txt and read.json, and the input `row_lines` as the file rows."""
    parts = json.loads(pathlib.Path(folder, "record.json").read_text())
    for name in ("tensors", "figures"):
        pathlib.Path(folder, f"{name}.txt").write_text("".join(line + "\n" for line in parts[name]))
    pathlib.Path(folder, "read.json").write_text(json.dumps(parts["read"]))
    pathlib.Path(folder, "rows").write_text("".join(line + "\n" for line in row_lines))


def recorded_vocabulary_size(folder):
    return json.loads(pathlib.Path(folder, "record.json").read_text())["read"]["vocab_size"]


def copy_tokenizer(tokenizer_folder, folder):
    for file in tokenizer_folder.iterdir():
        if file.name != "ids":
            shutil.copy(file, folder)


def write_weights_in_form(folder, forms):
    """Writes the tensors of tensors.txt. A form is F16 or BF16 (the type of the tensors), rounded (numbers rounded to BF16, as F32), shards (two
    files with an index), or a change."""
    changes = [form for form in forms if form not in ("F16", "BF16", "rounded", "shards")]
    tensors = formula_tensors(folder, changes)
    if "rounded" in forms:
        tensors = {name: (shape, [round_to_bf16(v) for v in values]) for name, (shape, values) in tensors.items()}
    dtype = next((form for form in forms if form in ("F16", "BF16")), "F32")
    if "shards" not in forms:
        write_safetensors(pathlib.Path(folder, "model.safetensors"), pack_tensors(tensors, dtype))
        return
    pathlib.Path(folder, "model.safetensors").unlink(missing_ok=True)
    names, weight_map = list(tensors), {}
    for i in range(2):
        file = f"model-{i + 1:05}-of-00002.safetensors"
        shard = {name: tensors[name] for name in names[i::2]}
        write_safetensors(pathlib.Path(folder, file), pack_tensors(shard, dtype))
        weight_map |= dict.fromkeys(shard, file)
    pathlib.Path(folder, "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map}))


def round_to_bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def probability_places(length):
    """Returns the (query, key) of each head whose probabilities are recorded."""
    return [(length - 1, length - 1), (length - 1, 0), (length // 2, length // 2 - 2)]


def square_matrices(numbers, length):
    """Divides printed probabilities into matrices (T, T)."""
    return [[numbers[(m * length + q) * length:(m * length + q + 1) * length] for q in range(length)] for m in range(len(numbers) // length ** 2)]


def compare_figures(folder, printed, lengths, figures_of_line, names, max_keys):
    """Compares the output of model-print --probabilities with figures.txt. `lengths`: of each row; `figures_of_line`: the recorded numbers of a
    row, in one list for each of `names`, from the parts of a printed line and its length."""
    expected = pathlib.Path(folder, "figures.txt").read_text().splitlines()
    lines = pathlib.Path(printed).read_text().splitlines()
    assert len(lines) == len(expected) == len(lengths), (len(lines), len(expected))
    largest = [[0, 0] for _ in names]  # largest difference and largest entry of each part
    for line, expected_line, length in zip(lines, expected, lengths):
        parts = figures_of_line([[float(v) for v in part.split()] for part in line.split("|")], length)
        for part, expected_part, extremes in zip(parts, expected_line.split("|"), largest):
            values = [float(v) for v in expected_part.split()]
            assert len(part) == len(values), (folder, len(part), len(values))
            extremes[0] = max([extremes[0]] + [abs(x - y) for x, y in zip(part, values)])
            extremes[1] = max([extremes[1]] + [abs(y) for y in values])
    # The record has 8 digits, so it adds less than one rounding. Logits of an encoder are sums of products of hidden states and weights.
    num_roundings = tolerance.pass_roundings(f"{folder}.safetensors", max_keys) + 1
    for name, (difference, entry) in zip(names, largest):
        bound = tolerance.chain_bound(num_roundings, max(entry, largest[0][1]) if name == "logits" else entry)
        assert difference <= bound, f"{folder}: {name}: expected a difference of at most {bound:.1e}; found {difference:.1e}"
    print(f"{folder}: " + ", ".join(f"{name} at most {difference:.1e}" for name, (difference, _) in zip(names, largest)) + " from the record")


def load_model(folder, model_class, dtype="float32"):
    import torch
    import transformers
    model, loading_info = getattr(transformers, model_class).from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation="eager",
                                                                             output_loading_info=True)
    assert not any(loading_info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")), (folder, loading_info)
    return model.eval()


PRINTED_PARTS = ("hidden states", "logits", "next-sentence logits", "probabilities")  # of a line of model-print --probabilities


def flatten(nested):
    return [value for part in nested for value in flatten(part)] if isinstance(nested, list) else [nested]


def largest_difference_of(nested, other_nested):
    return max(abs(x - y) for x, y in zip(flatten(nested), flatten(other_nested), strict=True))


def compare_outputs(folder, rows, max_keys):
    """Compares outputs of transformers with figures.txt and with all numbers of FOLDER.printed, the output of model-print --probabilities, and
    returns the largest difference. `rows`: for each row, the recorded numbers, the least magnitude for which their rounding errors are bounded,
    and by the names of PRINTED_PARTS (numbers, least magnitude, error of transformers in fp32, 0 if it is unknown)."""
    largest_difference, num_roundings = 0, tolerance.pass_roundings(f"{folder}.safetensors", max_keys) + 1
    lines = [pathlib.Path(name).read_text().splitlines() for name in (f"{folder}/figures.txt", f"{folder}.printed")]
    for (figures, least_magnitude, outputs), line, printed_line in zip(rows, *lines, strict=True):
        recorded_figures, printed = ([[float(v) for v in part.split()] for part in text.split("|")] for text in (line, printed_line))
        parts = [("recorded figures", part, expected, least_magnitude, 0) for part, expected in zip(figures, recorded_figures, strict=True)]
        parts += [(name, printed[PRINTED_PARTS.index(name)], flatten(values), magnitude, error) for name, (values, magnitude, error) in outputs.items()]
        largest_difference = max(largest_difference, tolerance.compare_parts(folder, parts, num_roundings))
    return largest_difference


def compare_with_transformers(folders, compare_folder):
    """Calls compare_folder(folder, transformers), which returns the largest difference of outputs, for each folder."""
    import transformers
    transformers.logging.set_verbosity_error()
    largest_difference = max([0] + [compare_folder(folder, transformers) for folder in folders])
    print(f"transformers {transformers.__version__} reads {len(folders)} written folders; outputs at most {largest_difference:.1e} apart")


def saved_tensors(folder):
    """Returns the lines of tensors.txt for the tensors of model.safetensors."""
    data = (folder / "model.safetensors").read_bytes()
    header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
    return [f"{name} {' '.join(map(str, entry['shape']))}" for name, entry in header.items() if name != "__metadata__"]


def format_figures(parts):
    return " | ".join(" ".join(f"{value:.8g}" for value in part) for part in parts)


def record_model(folder, tensors, compute_figures):
    """Writes record.json to a folder of save_pretrained, and removes the tensors from the folder. `tensors`: lines of tensors.txt;
    `compute_figures`: the recorded numbers of each row."""
    import transformers
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "tensors.txt").write_text("\n".join(tensors))
    write_weights_in_form(folder, [])
    figures = [format_figures(parts) for parts in compute_figures()]
    for file in ("model.safetensors", "tensors.txt"):
        (folder / file).unlink()
    read = transformers.AutoConfig.from_pretrained(folder).to_dict()
    common_config = transformers.PretrainedConfig().to_dict()  # settings of text generation and of other tasks
    read = {k: read[k] for k in sorted(read)
            if k not in MODEL_IGNORED_KEYS and (k in RECORDED_KEYS or k not in common_config or read[k] != common_config[k])}
    (folder / "record.json").write_text(json.dumps({"read": read, "tensors": tensors, "figures": figures}, indent=0) + "\n")
    print(folder.name.rpartition("-")[0], sum(file.stat().st_size for file in folder.iterdir()), "bytes", flush=True)


def print_names(models):
    """Prints the names of the recorded folders of `models`, which have the name of a model and the version of transformers."""
    print("\n".join(sorted(folder.name for folder in recorded_folder.iterdir() if folder.name.rpartition("-")[0] in models)))


def print_text(lines=TEXT):
    print("\n".join(lines))


def update(file, values):
    path = pathlib.Path(file)
    path.write_text(json.dumps(json.loads(path.read_text()) | json.loads(values)))


def run_command(commands):
    """Calls the function in `commands` with the name of the first argument, with the other arguments."""
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")
    command, *arguments = sys.argv[1:]
    commands[command](*arguments)


if __name__ == "__main__":
    run_command({"text": print_text, "update": update, "record": record, "weights": write_weights, "compare": compare, "config": compare_config,
                 "peer": peer})
