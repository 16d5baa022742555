"""Checks the conversion of models from and to the package `transformers`:

huggingface_parity.py make [NAME…]  writes folders NAME with random models and input rows to the working folder; default: all
huggingface_parity.py names         prints all names that this version of transformers can write
huggingface_parity.py check NAME…   checks that NAME.printed, the output of model-print, equals what transformers computes with the
                                    model in NAME, and that transformers loads from NAME.back the same model and tokenizer
huggingface_parity.py read NAME…    checks that transformers reads the same configuration and tokenizer from NAME.back and NAME
"""
import os
import pathlib
import random
import sys

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")
import torch
import transformers
from tokenizers import AddedToken, ByteLevelBPETokenizer
from transformers import AutoConfig, AutoTokenizer, BertConfig, GPT2Config

import tolerance
from huggingface_recorded import load_tokenizer

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
TRANSFORMERS_4 = transformers.__version__.startswith("4.")  # version 4 writes vocab.json, vocab.txt and pytorch_model.bin
names = []
torch.set_num_threads(1)


def text():
    random.seed(3)
    return [" ".join(f"w{int(random.random() * random.random() * 60)}" for _ in range(random.randrange(1, 12))) + " caf\u00e9"
            for _ in range(300)]


def randomise(model):
    """Randomises all parameters, so that swapped parameters change the outputs."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
            else:
                parameter.copy_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def write_rows(folder, vocabulary, length, segments=False):
    rows = []
    for _ in range(4):
        ids = [random.randrange(vocabulary) for _ in range(random.randrange(2, length))]
        segment_boundary = random.randrange(len(ids))
        rows.append(" ".join(map(str, ids)) + (" | " + " ".join("0" if i < segment_boundary else "1" for i in range(len(ids))) if segments else ""))
    pathlib.Path(folder, "rows").write_text("\n".join(rows) + "\n")


def register_folder(folder):
    """Adds the folder to `names`. Returns whether the command line requests that the folder be written."""
    names.append(folder)
    if sys.argv[1] == "names":
        return False
    return len(sys.argv) == 2 or folder in sys.argv[2:]


def convert_to_old_gpt2(folder):
    """Adds mask buffers and the tied output weight to pytorch_model.bin, as in older files, and gives one tensor transposed strides."""
    if not pathlib.Path(folder).exists():
        return
    path = pathlib.Path(folder, "pytorch_model.bin")
    state = torch.load(path)
    for i in range(2):
        state[f"transformer.h.{i}.attn.bias"] = torch.tril(torch.ones(24, 24, dtype=torch.uint8)).view(1, 1, 24, 24)
        state[f"transformer.h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    state["lm_head.weight"] = state["transformer.wte.weight"]
    name = "transformer.h.0.mlp.c_fc.weight"
    state[name] = torch.nn.Parameter(state[name].t().contiguous().t())
    torch.save(state, path)


def convert_to_old_bert(folder):
    """Converts pytorch_model.bin to the form of older BERT files: layer norms with gamma and beta, and a buffer position_ids."""
    if not pathlib.Path(folder).exists():
        return
    path = pathlib.Path(folder, "pytorch_model.bin")
    state = torch.load(path)
    state = {k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v for k, v in state.items()}
    state["bert.embeddings.position_ids"] = torch.arange(40).expand((1, -1))
    torch.save(state, path)


def make():
    torch.manual_seed(5)
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(text(), vocab_size=400, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False)
    os.makedirs("bpe", exist_ok=True)
    bpe.save_model("bpe")
    pathlib.Path("bpe/config.json").write_text('{"model_type": "gpt2"}')
    tokenizer = transformers.AutoTokenizer.from_pretrained("bpe")
    size = len(tokenizer)

    def gpt2(folder, kind=transformers.GPT2LMHeadModel, vocabulary=size, dtype=None, max_shard_size="5GB", is_safetensors=True, tokenizer=tokenizer, **settings):
        if not (is_safetensors or TRANSFORMERS_4) or not register_folder(folder):
            return
        config = GPT2Config(vocab_size=vocabulary, n_positions=24, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0, **settings)
        model = randomise(kind(config))
        if dtype:
            model = model.to(dtype)
        model.save_pretrained(folder, max_shard_size=max_shard_size, **({"safe_serialization": is_safetensors} if TRANSFORMERS_4 else {}))
        tokenizer.save_pretrained(folder)
        write_rows(folder, size, 24)

    gpt2("gpt2")
    gpt2("gpt2-bin", is_safetensors=False)
    gpt2("gpt2-base", kind=transformers.GPT2Model)
    gpt2("gpt2-shards", max_shard_size="40KB")
    gpt2("gpt2-shards-bin", max_shard_size="40KB", is_safetensors=False)
    gpt2("gpt2-half", dtype=torch.float16, is_safetensors=False)
    gpt2("gpt2-bfloat", dtype=torch.bfloat16)
    gpt2("gpt2-other", activation_function="gelu", n_inner=48, tie_word_embeddings=False, layer_norm_epsilon=1e-3)
    gpt2("gpt2-padded", vocabulary=size + 13)
    gpt2("gpt2-old", is_safetensors=False)
    convert_to_old_gpt2("gpt2-old")
    extended_tokenizer = transformers.AutoTokenizer.from_pretrained("bpe")
    extended_tokenizer.add_special_tokens({"pad_token": "<pad>", "additional_special_tokens" if TRANSFORMERS_4 else "extra_special_tokens": ["<sep>"]})
    extended_tokenizer.add_tokens([AddedToken("w1 w2", lstrip=True), "w100"])
    gpt2("gpt2-added", vocabulary=len(extended_tokenizer), tokenizer=extended_tokenizer)

    words = sorted({w for line in text() for w in line.split()} | {"w", "##1", "##2", "cafe"})
    os.makedirs("wordpiece", exist_ok=True)
    pathlib.Path("wordpiece/vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + words) + "\n")
    pathlib.Path("wordpiece/config.json").write_text('{"model_type": "bert"}')
    wordpiece_tokenizer = transformers.AutoTokenizer.from_pretrained("wordpiece")

    def bert(folder, kind, is_safetensors=True, tokenizer=wordpiece_tokenizer, **settings):
        if not (is_safetensors or TRANSFORMERS_4) or not register_folder(folder):
            return
        config = BertConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                            max_position_embeddings=40, **settings)
        randomise(kind(config)).save_pretrained(folder, **({"safe_serialization": is_safetensors} if TRANSFORMERS_4 else {}))
        tokenizer.save_pretrained(folder)
        write_rows(folder, len(tokenizer), 40, segments=True)

    bert("bert", transformers.BertForPreTraining)
    bert("bert-bin", transformers.BertForPreTraining, is_safetensors=False)
    bert("bert-old", transformers.BertForPreTraining, is_safetensors=False)
    convert_to_old_bert("bert-old")
    bert("bert-words", transformers.BertForMaskedLM, hidden_act="gelu_new")
    bert("bert-base", transformers.BertModel)
    bert("bert-base-bare", lambda config: transformers.BertModel(config, add_pooling_layer=False))
    bert("bert-classes", transformers.BertForSequenceClassification, num_labels=3, classifier_dropout=0.2)
    bert("bert-number", transformers.BertForSequenceClassification, num_labels=1)
    bert("bert-span", transformers.BertForQuestionAnswering, hidden_act="relu")
    bert("bert-untied", transformers.BertForPreTraining, tie_word_embeddings=False)
    extended_tokenizer = transformers.AutoTokenizer.from_pretrained("wordpiece", do_lower_case=False, strip_accents=True)
    extended_tokenizer.add_tokens(["[NEW]", "w1w1"])
    bert("bert-added", transformers.BertForPreTraining, tokenizer=extended_tokenizer)


def load(folder):
    config = AutoConfig.from_pretrained(folder)
    name = config.architectures[0]
    model, loading_info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    return model.eval(), loading_info


def outputs(model, rows):
    """Returns hidden states, logits and next-sentence logits of each row, in the order of model-print; an output that the model lacks is None."""
    all_outputs = []
    for row in rows:
        ids, _, segments = row.partition("|")
        inputs = {"input_ids": torch.tensor([[int(i) for i in ids.split()]])}
        if segments:
            inputs["token_type_ids"] = torch.tensor([[int(i) for i in segments.split()]])
        with torch.no_grad():
            out = model(**inputs, output_hidden_states=True)
        hidden = out.last_hidden_state if hasattr(out, "last_hidden_state") else out.hidden_states[-1]
        if "start_logits" in out:
            logits = torch.stack([out.start_logits, out.end_logits], -1)
        elif "prediction_logits" in out:
            logits = out.prediction_logits
        else:
            logits = out.get("logits")
        all_outputs.append((hidden, logits, out.get("seq_relationship_logits")))
    return all_outputs


def rows_of(folder):
    return pathlib.Path(folder, "rows").read_text().splitlines()


def output_bound(folder, rows, magnitude):
    """Returns the bound on the difference of two outputs of the model of `folder` for `rows`. `magnitude`: the largest output."""
    max_keys = max(len(row.partition("|")[0].split()) for row in rows)
    return tolerance.chain_bound(tolerance.pass_roundings(f"{folder}.safetensors", max_keys), magnitude)


def compare(folder, printed):
    model, _ = load(folder)
    rows = rows_of(folder)
    lines = pathlib.Path(printed).read_text().splitlines()
    assert len(lines) == len(rows), (len(lines), len(rows))
    largest_difference = largest_entry = 0
    for line, row, expected_outputs in zip(lines, rows, outputs(model, rows)):
        for column, expected in zip(line.split("|"), expected_outputs):
            values = torch.tensor([float(v) for v in column.split()])
            if expected is None:
                continue
            if values.numel() != expected.numel():  # model-print omits the logits of padding rows of the embedding
                length = len(row.partition("|")[0].split())
                expected = expected[:, :, :values.numel() // length]
            difference = (values - expected.flatten().float()).abs().max().item()
            largest_difference = max(largest_difference, float("inf") if difference != difference else difference)  # max() would skip NaN
            largest_entry = max(largest_entry, expected.abs().max().item())
    bound = output_bound(folder, rows, largest_entry)
    assert largest_difference <= bound, f"{folder}: expected a difference of at most {bound:.1e}; found {largest_difference:.1e}"
    print(f"{folder}: at most {largest_difference:.1e} from transformers")


def check_round_trip(folder, written_folder):
    model, _ = load(folder)
    reloaded, loading_info = load(written_folder)
    assert not any(loading_info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")), loading_info
    reloaded_state = reloaded.state_dict()
    for key, value in model.state_dict().items():
        if folder == "bert-untied" and key == "cls.predictions.bias":
            continue  # transformers 5 uses cls.predictions.decoder.bias instead
        assert key not in reloaded_state or torch.equal(value, reloaded_state[key]), (folder, key)
    rows = rows_of(folder)
    pairs = [(x, y) for a, b in zip(outputs(model, rows), outputs(reloaded, rows)) for x, y in zip(a, b) if x is not None and y is not None]
    bound = output_bound(folder, rows, max(x.abs().max().item() for x, _ in pairs))
    for x, y in pairs:
        assert (x - y).abs().max() <= bound, (folder, (x - y).abs().max(), bound)
    if model.can_generate():
        for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
            expected = getattr(model.generation_config, key)
            assert expected in (None, getattr(reloaded.generation_config, key)), (folder, key, reloaded.generation_config)


def configuration(folder):
    config = AutoConfig.from_pretrained(folder).to_dict()
    for key in ("transformers_version", "_name_or_path"):
        del config[key]
    config["dtype"] = str(config["dtype"]).removeprefix("torch.")
    config.setdefault("position_embedding_type", "absolute")  # transformers 5 has only this type and keeps the key if a file has it
    return config


def expected_configuration(folder, tokenizer):
    """Returns the configuration of `folder` with other values for the settings that checkpoints of this project do not store."""
    config = configuration(folder)
    config["dtype"] = "float32"
    kind = config["architectures"][0]
    config["architectures"] = [{"GPT2Model": "GPT2LMHeadModel", "BertModel": "BertForMaskedLM" if folder == "bert-base-bare" else
                                "BertForPreTraining"}.get(kind, kind)]
    if kind.startswith("GPT2"):
        config["pad_token_id"] = tokenizer.pad_token_id
    if kind == "BertForSequenceClassification":
        config["problem_type"] = "regression" if len(config["id2label"]) == 1 else "single_label_classification"
    return config


def compare_readings(folder, written):
    expected_tokenizer, actual_tokenizer = load_tokenizer(folder, transformers), AutoTokenizer.from_pretrained(written)
    expected, actual = expected_configuration(folder, expected_tokenizer), configuration(written)
    for key in expected.keys() | actual.keys():
        assert key in expected and key in actual and expected[key] == actual[key], (folder, key, expected.get(key), actual.get(key))
    assert type(expected_tokenizer) is type(actual_tokenizer), (expected_tokenizer, actual_tokenizer)
    assert len(expected_tokenizer) == len(actual_tokenizer), (folder, len(expected_tokenizer), len(actual_tokenizer))
    assert expected_tokenizer.get_added_vocab() == actual_tokenizer.get_added_vocab(), (folder, expected_tokenizer.get_added_vocab(), actual_tokenizer.get_added_vocab())
    assert str(expected_tokenizer.special_tokens_map) == str(actual_tokenizer.special_tokens_map), (expected_tokenizer.special_tokens_map, actual_tokenizer.special_tokens_map)
    lines = text() + ["w1 w2<pad>w100", "a <sep> b  w1 w2 [NEW] w1w1 [SEP]", "W1 Caf\u00c9<|endoftext|>"]
    for line in lines:
        assert expected_tokenizer(line)["input_ids"] == actual_tokenizer(line)["input_ids"], (folder, line)
        ids = expected_tokenizer(line)["input_ids"]
        for skip in (False, True):
            assert expected_tokenizer.decode(ids, skip_special_tokens=skip) == actual_tokenizer.decode(ids, skip_special_tokens=skip), (folder, line)


if sys.argv[1] in ("make", "names"):
    make()
    if sys.argv[1] == "names":
        print("\n".join(names))
elif sys.argv[1] == "read":
    for name in sys.argv[2:]:
        compare_readings(name, f"{name}.back")
    print(f"transformers {transformers.__version__}: the configurations and tokenizers of {len(sys.argv) - 2} folders are equal")
else:
    for name in sys.argv[2:]:
        compare(name, f"{name}.printed")
        check_round_trip(name, f"{name}.back")
        compare_readings(name, f"{name}.back")
