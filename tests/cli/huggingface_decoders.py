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
import pathlib
import shutil

import huggingface_recorded as recorded
from huggingface_recorded import MODEL_IGNORED_KEYS, TEXT, recorded_folder

tokenizer_folder = recorded_folder / "tokenizer-99"  # files of the vocabulary of all folders; they have no size in common with a published one
VOCABULARY = 99
LENGTHS = (40, 13, 5)  # tokens of the rows: longer than each window, and on both sides of the original length of 16
# Keys that only one version of transformers has, sizes that a class derives, and the first layer with a window, which layer_types repeats.
OTHER_SPELLING = ("rope_theta", "rope_scaling", "rope_parameters", "rope_local_base_freq", "partial_rotary_factor", "rotary_pct", "rotary_emb_base",
                  "original_max_position_embeddings", "head_dim", "use_bidirectional_attention", "no_rope_layer_interval",
                  "max_window_layers")
# Keys without effect on the model, which a written config.json lacks.
UNWRITTEN_KEYS = ("pretraining_tp", "_sliding_window_pattern", "hidden_activation", "is_decoder")

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


def figures_of(logits, probabilities, length):
    """Returns the recorded numbers of a row. `logits`: (T, V) lists; `probabilities`: (layers, h, T, T) lists."""
    return [logits[-1][::2], [logits[t][v] for t in range(length) for v in sample(length, t)],
            [head[q][k] for layer in probabilities for head in layer for q, k in recorded.probability_places(length)]]


def write_weights(folder, *forms):
    recorded.write_record(folder, [" ".join(map(str, row)) for row in rows()])
    recorded.write_weights_in_form(folder, forms)
    recorded.copy_tokenizer(tokenizer_folder, folder)


def compare(folder, printed):
    def figures_of_line(parts, length):
        _, logits, _, probabilities = parts
        assert len(logits) == length * VOCABULARY, (folder, len(logits))
        logits = [logits[t * VOCABULARY:(t + 1) * VOCABULARY] for t in range(length)]
        return figures_of(logits, [recorded.square_matrices(probabilities, length)], length)
    recorded.compare_figures(folder, printed, LENGTHS, figures_of_line, ("last logits", "sampled logits", "probabilities"), max(LENGTHS))


def is_subset(part, whole):
    return all(key in whole and whole[key] == value for key, value in (part or {}).items() if key != "type")


def compare_config(folder, new):
    expected, actual = json.loads(pathlib.Path(folder, "read.json").read_text()), json.loads(pathlib.Path(new, "config.json").read_text())
    assert actual["model_type"] == expected["model_type"], (new, actual["model_type"])
    for key, value in actual.items():
        if key not in MODEL_IGNORED_KEYS and key not in OTHER_SPELLING:
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
        assert key in actual or key in MODEL_IGNORED_KEYS + UNWRITTEN_KEYS + OTHER_SPELLING, f"{new}/config.json: expected the key {key}; found none"


def outputs(model, row):
    import torch
    with torch.no_grad():
        out = model(torch.tensor([row]), output_attentions=True)
    return out.logits[0].tolist(), [layer[0].tolist() for layer in out.attentions]


def load(folder, dtype="float32"):
    return recorded.load_model(folder, "AutoModelForCausalLM", dtype)


def compare_peer(folder, transformers):
    if folder.endswith("-" + transformers.__version__.split(".")[0]):  # version 4 misreads rotary positions of version 5
        original, written = (transformers.AutoConfig.from_pretrained(path).to_dict() for path in (folder, f"{folder}.back"))
        for key, value in original.items():
            if key not in MODEL_IGNORED_KEYS + UNWRITTEN_KEYS + OTHER_SPELLING:
                assert written.get(key) == value, (folder, key, value, written.get(key))
    model, exact_model = load(f"{folder}.back"), load(f"{folder}.back", "float64")

    def compared_outputs(row):
        logits, probabilities = outputs(model, row)
        errors = [recorded.largest_difference_of(x, y) for x, y in zip((logits, probabilities), outputs(exact_model, row))]
        return figures_of(logits, probabilities, len(row)), 0, {"logits": (logits, 0, errors[0]), "probabilities": (probabilities, 0, errors[1])}
    largest_difference = recorded.compare_outputs(folder, map(compared_outputs, rows()), max(LENGTHS))
    # For the type qwen2, AutoTokenizer of version 5 ignores the class that the folder states, and divides text as Qwen 2 does.
    reads_class = not (folder.startswith("qwen2-") and transformers.__version__.startswith("5."))
    reader = transformers.AutoTokenizer if reads_class else transformers.PreTrainedTokenizerFast
    tokenizer = reader.from_pretrained(f"{folder}.back")
    recorded_ids = [list(map(int, line.split())) for line in (tokenizer_folder / "ids").read_text().splitlines()]
    begin = json.loads((tokenizer_folder / "tokenizer_config.json").read_text())["bos_token"]
    assert [tokenizer(line)["input_ids"] for line in TEXT] == [[tokenizer.convert_tokens_to_ids(begin)] + ids for ids in recorded_ids], folder
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2), (folder, tokenizer)
    return largest_difference


def peer(*folders):
    recorded.compare_with_transformers(folders, compare_peer)


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

        def compute_figures(folder=folder):
            model = load(folder)
            return [figures_of(*outputs(model, row), len(row)) for row in rows()]
        recorded.record_model(folder, recorded.saved_tensors(folder), compute_figures)


def names():
    recorded.print_names(DECODERS)


if __name__ == "__main__":
    recorded.run_command({"record": record, "names": names, "weights": write_weights, "compare": compare, "config": compare_config, "peer": peer})
