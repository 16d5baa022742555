# Trains on a GPU: a language model in bf16 with a CUDA graph, Transformer-XL, a translation model, BERT and a
# classifier. Resumed runs end with bit-identical weights, and scores are close to those on the CPU. MH_DEVICE=cpu runs
# this case without a GPU.
device=${MH_DEVICE:-cuda}
[ "$device" = cpu ] || [ -e /dev/nvidiactl ] || skip "needs an NVIDIA GPU"
graph=true; [ "$device" = cuda ] || graph=false
small="[train]\nbatch.sequence_length = 32\nbatch.tokens = 512\nlr = 0.005\nvalidation.every = \"20u\"\nlog_every = \"5u\"\n"

# check_resume NAME OPTIONS…: checks that a run of 40 updates and a run resumed after update 20 end with the same weights.
check_resume() {
  local name=$1
  mh-train -q --device "$device" "${@:2}" --out "$name" --set train.length=40u
  mh-train -q --device "$device" "${@:2}" --out "$name.halves" --set train.length=20u --set train.schedule.length=40u
  expect 0 mh-train -q --device "$device" --resume --out "$name.halves" --set train.length=40u
  check_same_weights "$name"
}
# check_same_weights NAME: fails unless NAME and NAME.halves have the same tensors. Their metadata differ in the command line.
check_same_weights() {
  python3 - "$1" <<'P' || fail "$1: expected the weights of the uninterrupted run after resuming; found others"
import json, struct, sys
def read(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return {name: data[slice(*value["data_offsets"])] for name, value in header.items() if not name.startswith("__")}
one, two = (read(f"{sys.argv[1]}{half}/last.safetensors") for half in ("", ".halves"))
differ = [name for name in one if one[name] != two.get(name)]
assert one.keys() == two.keys() and not differ, differ[:5]
P
}
# check_near_scores NAME KEYS MODEL DECISIONS: fails unless the scores on $device (file NAME) agree with the scores on the CPU (file
# NAME.cpu). A loss or a perplexity may differ by the rounding errors of a forward pass of MODEL with at most KEYS keys.
# Each rounding has the error of a product of split numbers on a GPU (kSplitProductError of tests/oracle/tolerance.h). Any other score is a mean over
# DECISIONS decisions, such as predicted classes or translated sentences, and may differ by the weight of one decision.
check_near_scores() {
  with_tolerance - "$@" <<'P' || fail "$1: the scores on $device differ from the scores on the CPU"
import json, sys, tolerance
name, keys, model, decisions = sys.argv[1:]
one, two = (json.load(open(f"{name}{end}")) for end in ("", ".cpu"))
split_product_error = 3 * 2.0 ** -22
relative = tolerance.chain_bound(tolerance.pass_roundings(model, int(keys)), 1, split_product_error)
for key, value in one.items():
    if isinstance(value, float):
        # d exp(nll) = exp(nll) d nll
        bound = relative * two[key] * (two["nll"] if key == "perplexity" else 1) if "nll" in two else max(1, two[key]) / int(decisions)
        assert abs(value - two[key]) <= bound, (key, value, two[key], bound)
P
}

# Language models: a decoder with Mixhead A in bf16, and Transformer-XL with relative positions and a memory.
make_text 400 > text
mh-prep vocab -q text > v
mh-prep lm -q --vocab v text -o t.mhs
printf "[model]\nlayers = 2\nwidth = 128\nffn_dim = 128\ndropout_ffn = 0.1\n[attention]\nheads = 8\ndropout = 0.1\nmixer = \"mixhead-a\"\n${small}precision = \"bf16\"\ncuda_graph = $graph\n" > lm.toml
check_resume lm --config lm.toml --train t.mhs --valid t.mhs
mh-eval -q --device "$device" --format json lm/last.safetensors t.mhs > score
mh-eval -q --device cpu --format json lm/last.safetensors t.mhs > score.cpu
check_near_scores score 32 lm/last.safetensors 1
expect 0 mh-eval generate -q --device "$device" lm/last.safetensors --prompt w1 --length 8
printf "[model]\nbackbone = \"transformer-xl\"\nlayers = 2\nwidth = 64\nffn_dim = 64\npositions = \"none\"\ntransformer-xl.memory = 32\n[attention]\nheads = 4\nscore = \"relative\"\n${small}batch.order = \"streams\"\n" > xl.toml
check_resume xl --config xl.toml --train t.mhs --valid t.mhs

# Translation with beam search.
make_text 200 | awk NF > s
sed 's/w/v/g' s > t
mh-prep vocab -q s > sv
mh-prep vocab -q t > tv
mh-prep translation -q --source-vocab sv --target-vocab tv s t -o p.mhs
printf "[model]\nbackbone = \"encoder-decoder\"\nlayers = 1\nwidth = 64\nffn_dim = 64\n[attention]\nheads = 4\nmixer = \"mixhead-b\"\n${small}" > mt.toml
check_resume mt --config mt.toml --train p.mhs --valid p.mhs
mh-eval -q --device "$device" --beam 3 --format json mt/last.safetensors p.mhs > bleu
mh-eval -q --device cpu --beam 3 --format json mt/last.safetensors p.mhs > bleu.cpu
check_near_scores bleu 13 mt/last.safetensors "$(wc -l < s)"

# BERT pre-training, then fine-tuning.
awk 'BEGIN { srand(3); for (d = 0; d < 60; d++) { t = int(rand() * 4); for (i = 0; i < 6; i++) { s = ""; n = 4 + int(rand() * 6);
  for (k = 0; k < n; k++) s = s " t" t "w" (i + k) % 9; print s } print "" } }' > corpus
mh-prep vocab -q --type wordpiece --size 120 corpus > wv
mh-prep mlm -q --vocab wv corpus > m.mhs
printf "[model]\nbackbone = \"bert\"\nnorm = \"post\"\nactivation = \"gelu\"\npositions = \"learned\"\nmax_positions = 64\nscale_embedding = false\nbert.segments = 2\nbert.embedding_norm = true\ninit = \"bert\"\nlayers = 2\nwidth = 64\nffn_dim = 64\nbert.next_sentence = true\n[attention]\nheads = 4\n[train]\nbatch.sequence_length = 32\nbatch.rows = 16\nlr = 0.005\nvalidation.every = \"20u\"\n" > bert.toml
check_resume bert --config bert.toml --train m.mhs --valid m.mhs
{ printf 'label\tsentence\n'; awk 'NF && ++n <= 80 { print NR % 2 "\t" $0 }' corpus; } > sst2.tsv
mh-prep glue -q --task sst2 --vocab wv sst2.tsv -o g.mhs
expect 0 mh-finetune -q --device "$device" --init bert/last.safetensors --train g.mhs --valid g.mhs --out task --set train.length=20u --set train.batch.rows=16 --set train.batch.sequence_length=32 --set train.lr=0.001
mh-eval -q --device "$device" --format json task/last.safetensors g.mhs > task.score
mh-eval -q --device cpu --format json task/last.safetensors g.mhs > task.score.cpu
check_near_scores task.score 32 task/last.safetensors 80
