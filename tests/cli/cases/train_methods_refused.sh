# Regularisers, procedures and mixtures that do not apply to a model or a run are refused before anything is written.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_text 200 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
printf '[model]\nlayers = 1\nwidth = 16\nffn = 16\n[attention]\nheads = 2\n[train]\nbatch.block = 16\nbatch.tokens = 64\nlength = "4u"\n' > c.toml
try() { expect 2 mh-train --config c.toml --train t.mhs --out run "${@:2}"; expect_stderr "$1"; [ ! -d run ] || fail "a folder is left"; }
r=train.procedures.head-rotation
try "a shard to rank heads on" --set $r.mode=hard
try "a validation at the end of each epoch" --valid t.mhs --set $r.mode=hard --set train.validation.every=0u
try "no validation precedes epoch 1" --valid t.mhs --set train.validation.every=1e --set $r.mode=hard --set $r.start=1
try "found taylor; use another measure" --valid t.mhs --set train.validation.every=1e --set $r.mode=hard --set $r.k=1 --set $r.measure=taylor
try "found weight-norm; use another measure" --valid t.mhs --set train.validation.every=1e --set $r.mode=hard --set $r.k=1 --set $r.measure=weight-norm
try "the combiner has no head gates" --valid t.mhs --set train.validation.every=1e --set $r.mode=hard --set $r.k=1 --set $r.measure=gate
try "use another mode, or a model with more layers or heads" --valid t.mhs --set train.validation.every=1e --set $r.mode=soft
try "at most 1 pair of heads in decoder.self" --set $r.mode=random
try "kinds of attention that the model has" --set $r.mode=random --set $r.k=1 --set "$r.kind=['decoder.cross']"
try "pairs of heads, for mode = \"manual\"" --set $r.mode=manual
try "mode = \"manual\", or no pairs" --set $r.mode=random --set "$r.pairs=['decoder.self:0.0-0.1']"
manual() { try "$1" --set $r.mode=manual --set "$r.pairs=[$2]" --set "$r.epochs=$3"; }
manual "epochs before which the pairs are swapped" "'decoder.self:0.0-0.1'" "[]"
manual "each epoch once, in ascending order" "'decoder.self:0.0-0.1'" "[4, 4]"
manual "KIND:LAYER.HEAD-LAYER.HEAD" "'decoder.self:0-1'" "[2]"
manual "did you mean 'decoder.self'?" "'decoder.slef:0.0-0.1'" "[2]"
manual "a head from 0 to 1 in layer 0" "'decoder.self:0.0-0.2'" "[2]"
manual "a layer from 0 to 0" "'decoder.self:0.0-1.0'" "[2]"
manual "each head once" "'decoder.self:0.0-0.0'" "[2]"
manual "a kind of attention that the model has" "'decoder.cross:0.0-0.1'" "[2]"
try "attention.combiner = \"hard-concrete\"" --set train.regularisers.hard-concrete-penalty.weight=1
try "attention.combiner = \"alphas\"" --set train.regularisers.nuclear-growth.weight=1
try "a mixer with a learned matrix" --set train.regularisers.orthogonal-mixing.weight=1
try "a model with learned gates" --set train.procedures.block-coordinate.every=5
try "a model with learned gates" --set train.procedures.block-coordinate.every=5 --set attention.combiner=mae --set attention.mae.gate=uniform
try "less than 2, the number of heads" --set attention.combiner=mae --set attention.mae.drop=2
try "lets gates read later tokens" --set attention.combiner=mae --set attention.mae.mean=full
try "attention.combiner = \"mixture-of-heads\"" --set train.regularisers.head-balance.weight=1
try "mixture-of-heads.chosen of at most 2, the number of heads" --set attention.combiner=mixture-of-heads --set attention.mixture-of-heads.chosen=1
try "an even number of score heads" --set attention.mixer=differential --set attention.heads=1
# Blocks longer than the maximum length of a synthesizer.
for s in synthesizer-dense synthesizer-random; do
  long="--set attention.score=$s --set attention.$s.length=12"
  try "at most attention.$s.length, 12 tokens" $long; expect_stderr "train.batch.block"
  try "train.validation.block" --valid t.mhs $long --set train.batch.block=12 --set train.validation.block=13
  expect 0 mh-train --dry-run --config c.toml --train t.mhs $long --set train.batch.block=12
done
xl="--set model.backbone=transformer-xl --set model.positions=none --set attention.score=relative"
try "0u with a procedure that swaps heads, since the best weights do not record the swaps" --valid t.mhs $xl --set train.procedures.skip-retain.until=2u --set train.validation.every=1u --set $r.mode=random --set $r.k=1 --set model.layers=2
# Gates that are frozen in the passes that would train only the gates, and parameter groups without effect.
gates=(--set attention.combiner=mae --set train.procedures.block-coordinate.first=1 --set "train.groups.g.match=['*.gate.*']" --set train.length=2e)
try "only frozen parameters in pass 1 of 2" "${gates[@]}" --set train.groups.g.frozen=true
try "only frozen parameters" "${gates[@]}" --set train.groups.g.freeze_until=1000u
try "train.groups.g: expected either frozen = true or keys that affect updates, such as lr; found both" "${gates[@]}" --set train.groups.g.frozen=true --set train.groups.g.lr=1
group() { "$1" "$2" --set "train.groups.a.match=['*.self.*']" "${@:3}"; }
group try "train.groups.a.momentum: expected the update rule sgd or nag; found adamw" --set train.groups.a.momentum=0.5
group try "expected a number from 0 to 1, or -1; found -0.5" --set train.groups.a.momentum=-0.5
group try "expected a number of at least 0, or -1; found -0.5" --set train.groups.a.weight_decay=-0.5
group try "train.groups.b: expected a trainable parameter that is in no earlier group; found all matching parameters in earlier groups: a" --set "train.groups.b.match=['*.query.*']" --set train.groups.b.lr=1
# A dry run reports the same errors.
dry() { expect 2 mh-train --dry-run --config c.toml --train t.mhs "${@:2}"; expect_stderr "$1"; }
dry "attention.combiner = \"alphas\"" --set train.regularisers.nuclear-growth.weight=1
dry "a model with learned gates" --set train.procedures.block-coordinate.every=5
dry "a model that can skip layers" --set train.procedures.skip-retain.schedule=all
dry "blocks, which are shuffled" $xl --set model.transformer-xl.memory=16
dry "a pattern that matches a parameter of the model" --set "train.groups.x.match=['*.none']" --set train.groups.x.lr_factor=2
dry "pairs of heads, for mode = \"manual\"" --set $r.mode=manual
dry "no validation precedes epoch 1" --set train.validation.every=1e --set $r.mode=hard --set $r.start=1 --set $r.k=1
dry "found taylor; use another measure" --set train.validation.every=1e --set $r.mode=hard --set $r.k=1 --set $r.measure=taylor
dry "the combiner has no head gates" --set train.validation.every=1e --set $r.mode=hard --set $r.k=1 --set $r.measure=gate
dry "at most model.max_positions" --set model.positions=learned --set model.max_positions=8
dry "at most attention.synthesizer-dense.length, 12 tokens" --set attention.score=synthesizer-dense --set attention.synthesizer-dense.length=12
dry "streams, the number of tokens in the text" --set train.batch.order=streams --set train.batch.tokens=1000000
dry "a layer that meets the constraints of the fused path" --set train.attention_path=fused --set attention.mixer=talking-heads
dry "since a regulariser reads attention probabilities" --set train.attention_path=fused --set train.regularisers.disagreement.weight=0.1
dry "since the procedure head-rotation reads attention probabilities during validation" --set train.attention_path=fused --set train.validation.every=1e --set $r.mode=hard --set $r.k=1
dry "0, or mode = \"soft\"" --set $r.mode=manual --set "$r.pairs=['decoder.self:0.0-0.1']" --set "$r.epochs=[2]" --set $r.t_max=1
dry "t_max: expected 0 unless the mode is soft" --set $r.mode=random --set $r.k=1 --set $r.t_max=1
dry "unknown regulariser 'overlap'" --set train.regularisers.columns.type=overlap
dry "unknown regulariser 'columns'" --set train.regularisers.columns.of=columns
expect 0 mh-train --dry-run --config c.toml --train t.mhs --set train.regularisers.columns.type=subspace-overlap --set train.regularisers.columns.of=columns
dry "only frozen parameters in pass 1 of 2" "${gates[@]}" --set train.groups.g.frozen=true
group dry "train.groups.a.momentum" --set train.groups.a.momentum=0.5
group dry "found all matching parameters in earlier groups: a" --set "train.groups.b.match=['*.query.*']" --set train.groups.b.lr=1
# Without data, parameters that are always frozen are still detected.
expect 2 mh-train --dry-run --config c.toml --set model.vocabulary_rows=8 "${gates[@]}" --set train.groups.g.frozen=true
expect 0 mh-train --dry-run --config c.toml --set model.vocabulary_rows=8 "${gates[@]}" --set train.groups.g.freeze_until=1000u
# A dry run on the CPU checks whether a CUDA graph can capture the passes of a run on a GPU.
graph() { expect "$1" mh-train --dry-run --config c.toml --set train.cuda_graph=true --set model.vocabulary_rows=16 "${@:2}"; }
graph 0
graph 2 --set model.backbone=encoder-decoder
graph 2 $xl --set model.transformer-xl.memory=16 --set train.batch.order=streams
graph 2 --set train.batch.micro_tokens=32
graph 2 --set model.tied=false --set model.output_cutoffs=[8]
graph 2 --set train.regularisers.disagreement.weight=0.1
graph 2 --set attention.combiner=hard-concrete
