#!/usr/bin/env python3
"""Measures the tokens per second of beam search with a Marian model of random weights, in Hugging Face generate or CTranslate2.

usage: peers/beam.py transformers|ctranslate2 [--precision fp32|bf16] [--device cpu|cuda] [--rounds 5] [--threads 2]
                     [--sentences 32] [--beam 5] [--length 24] [--source 20]
All hypotheses have --length tokens and the end token, so that the peer does as much work as tests/bench/beam_bench.cpp. Prints
one line per round, with its tokens per second.
"""
import argparse
import random
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("peer", choices=["transformers", "ctranslate2"])
parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
for name, value in (("rounds", 5), ("threads", 2), ("sentences", 32), ("beam", 5), ("length", 24), ("source", 20)):
    parser.add_argument(f"--{name}", type=int, default=value)
args = parser.parse_args()

import torch  # noqa: E402  (imported after the arguments are parsed, since the import takes seconds)
from transformers import MarianConfig, MarianMTModel  # noqa: E402

ENTRIES, PAD, END = 8000, 7999, 0
torch.set_num_threads(args.threads)
torch.manual_seed(1)
config = MarianConfig(vocab_size=ENTRIES, d_model=256, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4,
                      decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024, activation_function="relu",
                      scale_embedding=True, pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=PAD, forced_eos_token_id=END,
                      max_position_embeddings=512)
model = MarianMTModel(config).eval().to({"fp32": torch.float32, "bf16": torch.bfloat16}[args.precision]).to(args.device)
rng = random.Random(1)
sources = [[rng.randrange(3, PAD) for _ in range(args.source - 1)] + [END] for _ in range(args.sentences)]


def search_with_transformers():
    batch = torch.tensor(sources, device=args.device)
    mask = torch.ones_like(batch)
    with torch.inference_mode():
        output_ids = model.generate(batch, attention_mask=mask, num_beams=args.beam, min_new_tokens=args.length + 1, max_new_tokens=args.length + 1,
                               length_penalty=1.0)
    assert output_ids.shape == (args.sentences, args.length + 2), output_ids.shape


def make_ctranslate2_search():
    import ctranslate2
    from ctranslate2.converters.transformers import MarianMTLoader

    spec = MarianMTLoader().get_model_spec(model.cpu())
    words = [f"w{i}" for i in range(PAD)]  # the loader drops the last embedding row, which is the padding token
    words[END], words[1] = "</s>", "<unk>"
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "</s>", "</s>", "<unk>"
    spec.config.decoder_start_token = "</s>"
    spec.config.add_source_eos = False
    folder = tempfile.mkdtemp()
    spec.validate()
    compute_type = {"fp32": "float32", "bf16": "bfloat16"}[args.precision]
    spec.optimize(quantization=compute_type)
    spec.save(folder)
    translator = ctranslate2.Translator(folder, device=args.device, compute_type=compute_type, inter_threads=1, intra_threads=args.threads)
    texts = [[words[token] for token in source] for source in sources]

    def translate():
        results = translator.translate_batch(texts, beam_size=args.beam, length_penalty=1.0, max_decoding_length=args.length,
                                           min_decoding_length=args.length, max_batch_size=args.sentences)
        assert all(len(result.hypotheses[0]) == args.length for result in results)

    return translate


run_search = search_with_transformers if args.peer == "transformers" else make_ctranslate2_search()
run_search()  # warm-up
for _ in range(args.rounds):
    start_time = time.perf_counter()
    run_search()
    print(f"{args.sentences * (args.length + 1) / (time.perf_counter() - start_time):.1f}", flush=True)
