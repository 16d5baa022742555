"""Records outputs of small encoders of transformers, and compares converted models with the record, like huggingface_decoders.py:

huggingface_encoders.py record [NAME…]      writes the folders of the installed version of transformers to tests/cli/recorded; default: all
huggingface_encoders.py names               prints the names of all recorded folders
huggingface_encoders.py tokenizer FOLDER    prints the folder of the recorded tokenizer of FOLDER
huggingface_encoders.py weights FOLDER [CHANGE…]   writes the files of the record, the vocabulary and model.safetensors to FOLDER, a copy of a
                                            recorded folder; a CHANGE as in huggingface_recorded.py
huggingface_encoders.py compare FOLDER PRINTED   compares the output of model-print --probabilities with the record
huggingface_encoders.py config FOLDER NEW   compares config.json of the folder NEW with the recorded configuration of FOLDER
huggingface_encoders.py peer FOLDER…        checks that transformers computes from FOLDER.back the recorded outputs, and all numbers of FOLDER.printed,
                                            the output of model-print --probabilities, and reads the same tokens
"""
import json
import pathlib
import shutil

import huggingface_recorded as recorded
from huggingface_recorded import MODEL_IGNORED_KEYS, TEXT, recorded_folder

LENGTHS = (40, 13, 5)  # tokens of the rows: longer than the window of ModernBERT, and unequal, so that transformers pads two of three rows
NUM_SAMPLES = 150  # number of recorded hidden states, and of logits, of a row
# Keys without effect on the model, which a written config.json lacks or has with another value.
OTHER_KEYS = MODEL_IGNORED_KEYS + ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "rope_scaling", "rope_parameters",
                                   "layer_types", "id2label", "label2id", "num_labels", "problem_type", "classifier_dropout", "reference_compile",
                                   "position_embedding_type", "initializer_cutoff_factor", "repad_logits_with_grad", "sparse_pred_ignore_index")
# Special tokens of each tokenizer: begin, padding, separator, unknown and mask. The first four have the ids 0 to 3.
TOKENIZERS = {"roberta": ("<s>", "<pad>", "</s>", "<unk>", "<mask>"), "xlm-roberta": ("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
              "modernbert": ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")}

ROBERTA = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64,
           "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
MODERNBERT = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 5, "num_attention_heads": 4, "max_position_embeddings": 64,
              "local_attention": 6, "global_rope_theta": 500.0, "local_rope_theta": 50.0, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
              "cls_token_id": 0, "sep_token_id": 2, "reference_compile": False}
# Name of the folder without the version, tokenizer, class of the configuration, class of the model, and settings.
ENCODERS = {
    "roberta": ("roberta", "Roberta", "RobertaForMaskedLM", ROBERTA),
    "roberta-untied": ("roberta", "Roberta", "RobertaForMaskedLM", ROBERTA | {"tie_word_embeddings": False, "type_vocab_size": 2}),
    "roberta-classes": ("roberta", "Roberta", "RobertaForSequenceClassification", ROBERTA | {"num_labels": 3, "hidden_act": "relu",
                                                                                              "classifier_dropout": 0.2}),
    "xlm-roberta-span": ("xlm-roberta", "XLMRoberta", "XLMRobertaForQuestionAnswering", ROBERTA),
    "camembert-number": ("xlm-roberta", "Camembert", "CamembertForSequenceClassification", ROBERTA | {"num_labels": 1}),
    "modernbert": ("modernbert", "ModernBert", "ModernBertForMaskedLM", MODERNBERT),
    "modernbert-classes": ("modernbert", "ModernBert", "ModernBertForSequenceClassification",
                           MODERNBERT | {"num_labels": 3, "classifier_pooling": "cls", "norm_bias": True, "attention_bias": True, "mlp_bias": True,
                                         "classifier_bias": True, "global_attn_every_n_layers": 2, "classifier_dropout": 0.1}),
}


def tokenizer_of(folder):
    """Returns the folder of the recorded tokenizer of a model folder."""
    model_type = json.loads(pathlib.Path(folder, "config.json").read_text())["model_type"]
    return recorded_folder / f"tokenizer-{'xlm-roberta' if model_type == 'camembert' else model_type}"


def rows(size):
    """Returns token ids that are fixed and almost without repetition, between the begin token and the separator. `size`: of the vocabulary."""
    def row(length):
        return [0] + [3 + (31 * i + 7 * i * i + 11 * length) % (size - 3) for i in range(length - 2)] + [2]
    return [row(length) for length in LENGTHS]


def sample(values):
    """Returns at most NUM_SAMPLES of the values, at equal distances."""
    return values[::(len(values) - 1) // NUM_SAMPLES + 1]


def figures_of(hidden, logits, probabilities, length):
    """Returns the recorded numbers of a row. `hidden` (T·d) and `logits`: lists; `probabilities`: (layers, h, T, T) lists."""
    return [sample(hidden), sample(logits), [head[q][k] for layer in probabilities for head in layer for q, k in recorded.probability_places(length)]]


def write_weights(folder, *changes):
    recorded.write_record(folder, [" ".join(map(str, row)) for row in rows(recorded.recorded_vocabulary_size(folder))])
    recorded.write_weights_in_form(folder, changes)
    recorded.copy_tokenizer(tokenizer_of(folder), folder)


def compare(folder, printed):
    def figures_of_line(parts, length):
        hidden, logits, _, probabilities = parts
        return figures_of(hidden, logits, [recorded.square_matrices(probabilities, length)], length)
    recorded.compare_figures(folder, printed, LENGTHS, figures_of_line, ("hidden states", "logits", "probabilities"), max(LENGTHS))


def compare_config(folder, new):
    expected, actual = json.loads(pathlib.Path(folder, "read.json").read_text()), json.loads(pathlib.Path(new, "config.json").read_text())
    for key, value in actual.items():
        if key not in OTHER_KEYS and key in expected:
            assert expected[key] == value, (new, key, expected[key], value)
    for key in json.loads(pathlib.Path(folder, "config.json").read_text()):
        assert key in actual or key in OTHER_KEYS, f"{new}/config.json: expected the key {key}; found none"
    assert actual["architectures"] == json.loads(pathlib.Path(folder, "config.json").read_text())["architectures"], (new, actual["architectures"])


def outputs(model, size):
    """Returns the hidden states, logits and probabilities of each row. transformers computes all rows in one padded batch."""
    import torch
    width, texts = max(LENGTHS), rows(size)
    ids = torch.tensor([row + [1] * (width - len(row)) for row in texts])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in texts])
    with torch.no_grad():
        out = model(input_ids=ids, attention_mask=mask, output_attentions=True)
        hidden = model.base_model(input_ids=ids, attention_mask=mask).last_hidden_state
    logits = torch.stack([out.start_logits, out.end_logits], 2) if "start_logits" in out else out.logits
    for i, row in enumerate(texts):
        n = len(row)
        row_logits = logits[i, :n] if logits.dim() == 3 else logits[i]
        yield hidden[i, :n].flatten().tolist(), row_logits.flatten().tolist(), [layer[i, :, :n, :n].tolist() for layer in out.attentions]


def load(folder):
    model = recorded.load_model(folder, json.loads(pathlib.Path(folder, "config.json").read_text())["architectures"][0])
    model.config.reference_compile = False
    return model


def compare_peer(folder, transformers):
    model = load(f"{folder}.back")

    def compared_outputs(row):
        hidden, logits, probabilities = row
        magnitude = max(map(abs, hidden))  # logits are sums of products of hidden states and weights
        return figures_of(*row, len(probabilities[0][0])), magnitude, {
            "hidden states": (hidden, 0, 0), "logits": (logits, magnitude, 0), "probabilities": (probabilities, 0, 0)}
    largest_difference = recorded.compare_outputs(folder, map(compared_outputs, outputs(model, model.config.vocab_size)), max(LENGTHS))
    tokenizer = transformers.AutoTokenizer.from_pretrained(f"{folder}.back")
    recorded_ids = [list(map(int, line.split())) for line in (tokenizer_of(folder) / "ids").read_text().splitlines()]
    assert [tokenizer(line, split_special_tokens=True)["input_ids"] for line in TEXT] == [[0] + ids + [2] for ids in recorded_ids], folder
    roles = [tokenizer.cls_token, tokenizer.pad_token, tokenizer.sep_token, tokenizer.unk_token, tokenizer.mask_token]
    assert tuple(roles) == TOKENIZERS[tokenizer_of(folder).name.removeprefix("tokenizer-")], (folder, roles)
    return largest_difference


def peer(*folders):
    recorded.compare_with_transformers(folders, compare_peer)


def write_tokenizer(folder):
    """Writes a tokenizer of the form of a family: byte-level BPE with two separators between texts (RoBERTa) or one (ModernBERT, after NFC and
    with runs of spaces as added tokens), or Unigram (XLM-R)."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    name = folder.name.removeprefix("tokenizer-")
    special = TOKENIZERS[name]
    begin, padding, separator, unknown, mask = special
    if name == "xlm-roberta":
        mark = "\u2581"
        pieces = [(piece, 0.0) for piece in special[:4]]
        pieces += [(mark + piece if is_first else piece, -3.0 - len(pieces) / 100)
                   for piece in "a b c d e h m n o s t u w 1 2 the cat sat on mat s ' , .".split() for is_first in (True, False)]
        pieces += [(mark, -4.0), ("\u4e2d", -6.0), (mask, 0.0)]
        tokenizer = Tokenizer(models.Unigram(list(dict(pieces).items()), unk_id=3, byte_fallback=False))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(mark, prepend_scheme="always")])
        tokenizer.decoder = decoders.Metaspace(mark, prepend_scheme="always")
    else:
        vocabulary = {piece: i for i, piece in enumerate(special[:4] + tuple(sorted(pre_tokenizers.ByteLevel.alphabet())))}
        merges = []
        for left, right in [("\u0120", "t"), ("h", "e"), ("\u0120t", "he"), ("a", "t"), ("\u0120", "c"), ("\u0120", "m"), ("o", "n"), ("\u0120", "w")]:
            merges.append((left, right))
            vocabulary[left + right] = len(vocabulary)
        vocabulary[mask] = len(vocabulary)
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    ends = [(begin, 0), (separator, 2)]
    if name == "roberta":
        tokenizer.post_processor = processors.RobertaProcessing((separator, 2), (begin, 0), add_prefix_space=False)
    else:
        between = f"{separator} {separator}" if name == "xlm-roberta" else separator
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{begin} $A {separator}", pair=f"{begin} $A {between} $B {separator}",
                                                                 special_tokens=ends)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, lstrip=token == mask) for token in special])
    if name == "modernbert":
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.add_tokens([AddedToken("  ", normalized=True)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = {"cls_token": begin, "pad_token": padding, "sep_token": separator, "unk_token": unknown, "mask_token": mask, "bos_token": begin,
             "eos_token": separator}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | roles, indent=1) + "\n")
    (folder / "special_tokens_map.json").write_text(json.dumps(roles, indent=1) + "\n")
    tokenizer.encode_special_tokens = True
    (folder / "ids").write_text("".join(" ".join(map(str, tokenizer.encode(line, add_special_tokens=False).ids)) + "\n" for line in TEXT))


def vocabulary_size(folder):
    from tokenizers import Tokenizer
    return Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()


def record(*names):
    import transformers
    transformers.logging.set_verbosity_error()
    version = transformers.__version__.split(".")[0]
    for name in names or ENCODERS:
        tokenizer_name, config_prefix, model_class, settings = ENCODERS[name]
        tokenizer_folder = recorded_folder / f"tokenizer-{tokenizer_name}"
        if not tokenizer_folder.exists():
            write_tokenizer(tokenizer_folder)
        folder = recorded_folder / f"{name}-{version}"
        shutil.rmtree(folder, ignore_errors=True)
        size = vocabulary_size(tokenizer_folder)
        config = getattr(transformers, f"{config_prefix}Config")(vocab_size=size, **settings)
        model = getattr(transformers, model_class)(config)
        model.save_pretrained(folder)
        parameters = dict(model.named_parameters())  # contains each tied tensor once, like saved files
        tensors = [f"{key} {' '.join(map(str, value.shape))}" for key, value in parameters.items()]

        def compute_figures(folder=folder, size=size):
            return [figures_of(*row, len(row[2][0][0])) for row in outputs(load(folder), size)]
        recorded.record_model(folder, tensors, compute_figures)


def names():
    recorded.print_names(ENCODERS)


def print_tokenizer(folder):
    print(tokenizer_of(folder))


if __name__ == "__main__":
    recorded.run_command({"record": record, "names": names, "tokenizer": print_tokenizer, "weights": write_weights, "compare": compare,
                          "config": compare_config, "peer": peer})
