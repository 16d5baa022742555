"""Records outputs of small decoders of transformers, and compares converted models with the record, like huggingface_recorded.py:

huggingface_decoders.py record [NAME…]      writes the folders of the installed version of transformers to tests/cli/recorded; default: all
huggingface_decoders.py names               prints the names of all recorded folders
huggingface_decoders.py weights FOLDER [FORM…]   writes the files of the record, the vocabulary and model.safetensors to FOLDER, a copy of a recorded
                                            folder; a FORM is F16 or BF16 (the type of the tensors), rounded (numbers rounded to BF16, as F32), shards
                                            (two files with an index), or a CHANGE of huggingface_recorded.py
huggingface_decoders.py compare FOLDER PRINTED   compares the output of model-print --probabilities with the record
huggingface_decoders.py config FOLDER NEW   compares config.json of the folder NEW with the recorded configuration of FOLDER
huggingface_decoders.py peer FOLDER…        checks that transformers reads the same configuration from FOLDER and FOLDER.back, and computes from
                                            FOLDER.back the recorded outputs, and all logits and probabilities of FOLDER.printed, the output of
                                            model-print --probabilities
"""
import json
import os
import pathlib
import shutil
import struct
import sys
import zlib

import tolerance
from huggingface_recorded import TEXT, formula_tensors, pack_tensors, write_safetensors

recorded_folder = pathlib.Path(__file__).resolve().parent / "recorded"
tokenizer_folder = recorded_folder / "tokenizer-99"  # files of the vocabulary of all folders; they have no size in common with a published one
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
VOCABULARY = 99
LENGTHS = (40, 13, 5)  # tokens of the rows: longer than each window, and on both sides of the original length of 16
IGNORED_KEYS = ("transformers_version", "_name_or_path", "architectures", "dtype", "torch_dtype")
# Keys that only one version of transformers has, sizes that a class derives, and the first layer with a window, which layer_types repeats.
OTHER_SPELLING = ("rope_theta", "rope_scaling", "rope_parameters", "rope_local_base_freq", "partial_rotary_factor", "rotary_pct", "rotary_emb_base",
                  "original_max_position_embeddings", "head_dim", "use_bidirectional_attention", "no_rope_layer_interval",
                  "max_window_layers")
# Keys without effect on the model, which a written config.json lacks.
UNWRITTEN_KEYS = ("pretraining_tp", "_sliding_window_pattern", "hidden_activation", "is_decoder")
# Keys that the record has even where they have the default of all classes.
RECORDED_KEYS = ("tie_word_embeddings", "pad_token_id", "bos_token_id", "eos_token_id", "use_cache")

LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONGROPE = {"type": "longrope", "short_factor": [1.0, 1.25], "long_factor": [2.0, 3.5]}
# Name of the folder without the version, class prefix of transformers, and settings of the configuration.
DECODERS = {
    "llama": ("Llama", {"rms_norm_eps": 1e-5}),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "num_key_value_heads": 4, "head_dim": 8,
                               "rope_theta": 5e5, "rope_scaling": LLAMA3}),
    "llama-yarn": ("Llama", {"rope_scaling": YARN, "num_key_value_heads": 1}),
    "llama-dynamic": ("Llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": 16}),
    "mistral": ("Mistral", {"sliding_window": 5}),
    "qwen2": ("Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"rope_theta": 1e6}),
    "phi3": ("Phi3", {"rope_scaling": LONGROPE, "partial_rotary_factor": 0.5, "original_max_position_embeddings": 16, "head_dim": 8,
                      "resid_pdrop": 0.1, "sliding_window": 23}),
    "olmo2": ("Olmo2", {"rope_scaling": {"type": "linear", "factor": 2.0}}),
    "smollm3": ("SmolLM3", {"num_hidden_layers": 5, "rope_theta": 2e6}),
    "gemma": ("Gemma", {}),
    "gemma2": ("Gemma2", {"num_hidden_layers": 4, "sliding_window": 5, "query_pre_attn_scalar": 7, "attn_logit_softcapping": 1.0,
                          "final_logit_softcapping": 3.0}),
    "gemma3_text": ("Gemma3Text", {"num_hidden_layers": 7, "sliding_window": 5, "query_pre_attn_scalar": 7, "rope_theta": 1e6,
                                   "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "final_logit_softcapping": 3.0}),
    "falcon": ("Falcon", {}),
    "falcon-groups": ("Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "tie_word_embeddings": False}),
    "falcon-sequential": ("Falcon", {"multi_query": False, "parallel_attn": False, "bias": True, "rope_theta": 500.0}),
    "gptj": ("GPTJ", {"rotary_dim": 4, "activation_function": "gelu_new"}),
    "opt": ("OPT", {"dropout": 0.0}),
    "gpt_neox": ("GPTNeoX", {"rotary_pct": 0.5, "hidden_dropout": 0.1}),
    "gpt_neox-sequential": ("GPTNeoX", {"use_parallel_residual": False, "attention_bias": False, "rotary_emb_base": 500, "tie_word_embeddings": True}),
}


def rows():
    """Returns token ids that are fixed and almost without repetition."""
    return [[(31 * i + 7 * i * i + 11 * length) % VOCABULARY for i in range(length)] for length in LENGTHS]


def sample(length, position):
    """Returns the two entries of the vocabulary whose logits at a position are recorded."""
    return [(37 * position + length) % VOCABULARY, (53 * position + 11) % VOCABULARY]


def probability_places(length):
    """Returns the (query, key) of each head whose probabilities are recorded."""
    return [(length - 1, length - 1), (length - 1, 0), (length // 2, length // 2 - 2)]


def figures_of(logits, probabilities, length):
    """Returns the recorded numbers of a row. `logits`: (T, V) lists; `probabilities`: (layers, h, T, T) lists."""
    return [logits[-1][::2], [logits[t][v] for t in range(length) for v in sample(length, t)],
            [head[q][k] for layer in probabilities for head in layer for q, k in probability_places(length)]]


def format_figures(parts):
    return " | ".join(" ".join(f"{value:.8g}" for value in part) for part in parts)


def write_record(folder):
    """Writes the parts of record.json as files: tensors.txt, figures.txt, read.json and rows."""
    parts = json.loads(pathlib.Path(folder, "record.json").read_text())
    for name in ("tensors", "figures"):
        pathlib.Path(folder, f"{name}.txt").write_text("".join(line + "\n" for line in parts[name]))
    pathlib.Path(folder, "read.json").write_text(json.dumps(parts["read"]))
    pathlib.Path(folder, "rows").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows()))


def write_weights(folder, forms):
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


def compare(folder, printed):
    expected = pathlib.Path(folder, "figures.txt").read_text().splitlines()
    lines = pathlib.Path(printed).read_text().splitlines()
    assert len(lines) == len(expected) == len(LENGTHS), (len(lines), len(expected))
    largest = [[0, 0] for _ in range(3)]  # largest difference and largest entry of each part
    for line, expected_line, length in zip(lines, expected, LENGTHS):
        _, logits, _, probabilities = parse_line(line)
        assert len(logits) == length * VOCABULARY, (folder, len(logits))
        logits = [logits[t * VOCABULARY:(t + 1) * VOCABULARY] for t in range(length)]
        matrices = [[probabilities[(m * length + q) * length:(m * length + q + 1) * length] for q in range(length)]
                    for m in range(len(probabilities) // length ** 2)]
        parts = figures_of(logits, [matrices], length)
        for part, expected_part, extremes in zip(parts, expected_line.split("|"), largest):
            values = [float(v) for v in expected_part.split()]
            assert len(part) == len(values), (folder, len(part), len(values))
            extremes[0] = max([extremes[0]] + [abs(x - y) for x, y in zip(part, values)])
            extremes[1] = max([extremes[1]] + [abs(y) for y in values])
    # The record has 8 digits, so it adds less than one rounding.
    num_roundings = tolerance.pass_roundings(f"{folder}.safetensors", max(LENGTHS)) + 1
    for name, (difference, entry) in zip(("last logits", "sampled logits", "probabilities"), largest):
        bound = tolerance.chain_bound(num_roundings, entry)
        assert difference <= bound, f"{folder}: {name}: expected a difference of at most {bound:.1e}; found {difference:.1e}"
    print(f"{folder}: logits at most {max(largest[0][0], largest[1][0]):.1e}, probabilities at most {largest[2][0]:.1e} from the record")


def is_subset(part, whole):
    return all(key in whole and whole[key] == value for key, value in (part or {}).items() if key != "type")


def compare_config(folder, new):
    expected, actual = json.loads(pathlib.Path(folder, "read.json").read_text()), json.loads(pathlib.Path(new, "config.json").read_text())
    assert actual["model_type"] == expected["model_type"], (new, actual["model_type"])
    for key, value in actual.items():
        if key not in IGNORED_KEYS and key not in OTHER_SPELLING:
            assert key in expected and expected[key] == value, (new, key, expected.get(key), value)
    for key in ("rope_theta", "rope_local_base_freq", "rotary_pct", "rotary_emb_base"):
        assert key not in expected or actual.get(key, expected[key]) == expected[key], (new, key, expected[key], actual.get(key))
    for key in ("rope_scaling", "rope_parameters"):
        nested = expected.get(key) or {}
        for layer_type in ("full_attention", "sliding_attention"):
            if layer_type in nested:
                assert is_subset(nested[layer_type], actual[key][layer_type]), (new, key, nested, actual[key])
        if "full_attention" not in nested:
            assert is_subset(nested, actual.get(key) or {}), (new, key, nested, actual.get(key))
    for key in json.loads(pathlib.Path(folder, "config.json").read_text()):
        assert key in actual or key in IGNORED_KEYS + UNWRITTEN_KEYS + OTHER_SPELLING, f"{new}/config.json: expected the key {key}; found none"


def parse_line(line):
    """Returns the parts of a line of model-print --probabilities: hidden states, logits, next-sentence logits and probabilities."""
    return [[float(v) for v in part.split()] for part in line.split("|")]


def flatten(nested):
    return [value for part in nested for value in flatten(part)] if isinstance(nested, list) else [nested]


def outputs(model, row):
    import torch
    with torch.no_grad():
        out = model(torch.tensor([row]), output_attentions=True)
    return out.logits[0].tolist(), [layer[0].tolist() for layer in out.attentions]


def load(folder, dtype="float32"):
    import torch
    import transformers
    model, loading_info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation="eager",
                                                                           output_loading_info=True)
    assert not any(loading_info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")), (folder, loading_info)
    return model.eval()


def peer(*folders):
    import transformers
    transformers.logging.set_verbosity_error()
    largest_difference = 0
    for folder in folders:
        if folder.endswith("-" + transformers.__version__.split(".")[0]):  # version 4 misreads rotary positions of version 5
            original, written = (transformers.AutoConfig.from_pretrained(path).to_dict() for path in (folder, f"{folder}.back"))
            for key, value in original.items():
                if key not in IGNORED_KEYS + UNWRITTEN_KEYS + OTHER_SPELLING:
                    assert written.get(key) == value, (folder, key, value, written.get(key))
        model, exact_model = load(f"{folder}.back"), load(f"{folder}.back", "float64")
        num_roundings = tolerance.pass_roundings(f"{folder}.safetensors", max(LENGTHS)) + 1
        printed = pathlib.Path(f"{folder}.printed").read_text().splitlines()
        for row, line, printed_line in zip(rows(), pathlib.Path(folder, "figures.txt").read_text().splitlines(), printed, strict=True):
            logits, probabilities = outputs(model, row)
            errors = [max(abs(x - y) for x, y in zip(flatten(values), flatten(exact_values)))
                      for values, exact_values in zip((logits, probabilities), outputs(exact_model, row))]
            _, printed_logits, _, printed_probabilities = parse_line(printed_line)
            parts = [("recorded figures", part, expected, 0, 0) for part, expected in zip(figures_of(logits, probabilities, len(row)), parse_line(line))]
            parts += [("logits", flatten(logits), printed_logits, 0, errors[0]), ("probabilities", flatten(probabilities), printed_probabilities, 0, errors[1])]
            largest_difference = max(largest_difference, tolerance.compare_parts(folder, parts, num_roundings))
        # For the type qwen2, AutoTokenizer of version 5 ignores the class that the folder states, and divides text as Qwen 2 does.
        reads_class = not (folder.startswith("qwen2-") and transformers.__version__.startswith("5."))
        reader = transformers.AutoTokenizer if reads_class else transformers.PreTrainedTokenizerFast
        tokenizer = reader.from_pretrained(f"{folder}.back")
        recorded_ids = [list(map(int, line.split())) for line in (tokenizer_folder / "ids").read_text().splitlines()]
        begin = json.loads((tokenizer_folder / "tokenizer_config.json").read_text())["bos_token"]
        assert [tokenizer(line)["input_ids"] for line in TEXT] == [[tokenizer.convert_tokens_to_ids(begin)] + ids for ids in recorded_ids], folder
        assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2), (folder, tokenizer)
    print(f"transformers {transformers.__version__} reads {len(folders)} written folders; logits and probabilities at most {largest_difference:.1e} apart")


def write_tokenizer():
    """Writes the tokenizer of all folders: BPE of characters with a mark for spaces, as in Llama 2, and a token before each text."""
    from tokenizers import Tokenizer, decoders, models, normalizers, processors
    mark = "\u2581"
    symbols = [mark] + [chr(c) for c in range(97, 123)] + [chr(c) for c in range(65, 91)] + list("0123456789,.!?'\"<>[]()-:;/+*")
    vocabulary = {piece: i for i, piece in enumerate(["<unk>", "<s>", "</s>"] + symbols)}
    merges = []
    for left, right in [(mark, "t"), (mark + "t", "h"), (mark + "th", "e"), ("a", "t"), (mark, "w"), (mark, "c"), (mark + "c", "at"), (mark, "m"),
                        (mark + "m", "at"), ("o", "n"), (mark, "s"), ("n", "o"), (mark + "w", "1"), ("a", "b"), ("l", "e")]:
        merges.append((left, right))
        vocabulary[left + right] = len(vocabulary)
    assert len(vocabulary) == VOCABULARY, len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(mark), normalizers.Replace(" ", mark)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(mark, " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer_folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(tokenizer_folder / "tokenizer.json"))
    roles = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (tokenizer_folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | roles, indent=1) + "\n")
    (tokenizer_folder / "special_tokens_map.json").write_text(json.dumps(roles, indent=1) + "\n")
    tokenizer.encode_special_tokens = True
    (tokenizer_folder / "ids").write_text("".join(" ".join(map(str, tokenizer.encode(line, add_special_tokens=False).ids)) + "\n" for line in TEXT))


def copy_tokenizer(folder):
    for name in TOKENIZER_FILES:
        shutil.copy(tokenizer_folder / name, folder)


def record(*names):
    import transformers
    transformers.logging.set_verbosity_error()
    version = transformers.__version__.split(".")[0]
    if not tokenizer_folder.exists():
        write_tokenizer()
    for name in names or DECODERS:
        prefix, settings = DECODERS[name]
        folder = recorded_folder / f"{name}-{version}"
        shutil.rmtree(folder, ignore_errors=True)
        common = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
        ffn_keys = {"Falcon": "ffn_hidden_size", "GPTJ": "n_inner", "OPT": "ffn_dim"}
        if prefix in ffn_keys:
            common[ffn_keys[prefix]] = common.pop("intermediate_size")
        elif prefix != "GPTNeoX":
            common |= {"num_key_value_heads": 2}
        if prefix not in (*ffn_keys, "GPTNeoX", "Phi3"):
            common |= {"head_dim": 12}
        config = getattr(transformers, f"{prefix}Config")(**json.loads(json.dumps(common | settings)))
        model_class = getattr(transformers, f"{prefix.removesuffix('Text')}ForCausalLM")
        model_class(config).save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        data = (folder / "model.safetensors").read_bytes()
        header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
        tensors = [f"{name} {' '.join(map(str, entry['shape']))}" for name, entry in header.items() if name != "__metadata__"]
        (folder / "tensors.txt").write_text("\n".join(tensors))
        write_weights(folder, [])
        model = load(folder)
        figures = [format_figures(figures_of(*outputs(model, row), len(row))) for row in rows()]
        for file in ("model.safetensors", "tensors.txt"):
            (folder / file).unlink()
        write_record_json(folder, tensors, figures, transformers)
        print(name, sum(file.stat().st_size for file in folder.iterdir()), "bytes", flush=True)


def write_record_json(folder, tensors, figures, transformers):
    read = transformers.AutoConfig.from_pretrained(folder).to_dict()
    common_config = transformers.PretrainedConfig().to_dict()  # settings of text generation and of other tasks
    read = {k: read[k] for k in sorted(read) if k not in IGNORED_KEYS and (k in RECORDED_KEYS or k not in common_config or read[k] != common_config[k])}
    (folder / "record.json").write_text(json.dumps({"read": read, "tensors": tensors, "figures": figures}, indent=0) + "\n")


if __name__ == "__main__":
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")
    command, *arguments = sys.argv[1:]
    if command == "weights":
        write_record(arguments[0])
        write_weights(arguments[0], arguments[1:])
        copy_tokenizer(arguments[0])
    elif command == "names":
        print("\n".join(sorted(folder.name for folder in recorded_folder.iterdir() if folder.name.rpartition("-")[0] in DECODERS)))
    else:
        {"record": record, "compare": compare, "config": compare_config, "peer": peer}[command](*arguments)
