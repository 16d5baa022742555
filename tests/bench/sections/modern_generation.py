"""Greedy generation of 256 tokens by SmolLM2-135M, batch sizes 1 and 8, against transformers; equality of the first tokens."""
import subprocess

import modern
from measure import Comparison, TableRow, output_of, property_row, run, side_of_peer, side_of_project

LENGTH = 256  # generated tokens after the first, whose time includes the start and the prompt
NUM_COMPARED = 50  # generated tokens that must be equal in fp32


def measure(bench):
    smollm2 = modern.smollm2(bench)
    if smollm2 is None:
        return
    libraries, prompt, texts = modern.Libraries(), bench.folder / "prompt", []
    longest_line = max(modern.first_lines(bench, 100000).splitlines(), key=len)
    prompt.write_bytes(b" ".join(longest_line.split()[:60]) + b"\n")
    _, ids = smollm2.make_shard("prompt", prompt.read_bytes())
    for batch in (1, 8):
        for precision, bar in (("fp32", 1.2), ("bf16", 1.5)):
            name = f"greedy generation of {LENGTH} tokens with {modern.MODEL}, batch size {batch}, {precision}"
            options = dict(batch=batch, precision=precision)

            def command(length):
                return [bench.tools / "mh-eval", "generate", "-q", "--temperature", 0, "--prompt-file", prompt, "--length", length, "--samples", batch,
                        "--batch", batch, "--precision", precision, "--threads", bench.threads, smollm2.checkpoint]

            def generate():
                seconds = run(command(LENGTH + 1), stdout=subprocess.DEVNULL)[0] - run(command(1), stdout=subprocess.DEVNULL)[0]
                return {"tokens/s": batch * LENGTH / seconds}

            def generate_peer():
                result = bench.run_peer("causal_lm", "generate", smollm2.folder, ids, length=LENGTH, compared=NUM_COMPARED, **options)
                texts.append(result["text"])
                return {"tokens/s": result["tokens_per_second"]}

            def rows(results):
                peer_command = bench.peer_command("causal_lm", "generate", smollm2.folder, ids, length=1, **options)
                yield TableRow(libraries.row_name(f"{name}, against transformers", command(2), peer_command), "tokens/s",
                               results[name]["tokens/s"], results["transformers"]["tokens/s"], bar)
                if (batch, precision) == (1, "fp32"):
                    yield property_row(f"first {NUM_COMPARED} tokens generated with {modern.MODEL} equal to the tokens of transformers",
                                       output_of(command(NUM_COMPARED)).rstrip("\n") == texts[-1].rstrip("\n"))

            yield Comparison(name, [side_of_project(name, generate), side_of_peer("transformers", generate_peer)], rows)
