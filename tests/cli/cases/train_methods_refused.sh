# Regularisers, procedures and mixtures of experts or heads that do not apply to a model or a run are refused before anything is written.
[ -n "$(command -v mh-train || true)" ] || skip "mh-train is not built"
make_text 200 > text
mh-prep vocab text > v 2>/dev/null
mh-prep lm --vocab v text -o t.mhs 2>/dev/null
printf '[model]\nlayers = 1\nwidth = 16\nffn_dim = 16\n[attention]\nheads = 2\n[train]\nbatch.sequence_length = 16\nbatch.tokens = 64\nlength = "4u"\n' > c.toml
expect_refused() {
  expect 2 mh-train --config c.toml --train t.mhs --out run "${@:2}"
  expect_stderr "$1"
  [ ! -d run ] || fail "expected no folder after an error; found one"
}
r=train.procedures.head-rotation
expect_refused "a shard to rank heads on" --set $r.mode=hard
expect_refused "a validation at the end of each epoch" --valid t.mhs --set $r.mode=hard --set train.validation.every=0u
expect_refused "no validation precedes epoch 1" --valid t.mhs --set train.validation.every=1e --set $r.mode=hard --set $r.start=1
expect_refused "found taylor; use another measure" --valid t.mhs --set train.validation.every=1e --set $r.mode=hard --set $r.k=1 --set $r.measure=taylor
expect_refused "found weight-norm; use another measure" --valid t.mhs --set train.validation.every=1e --set $r.mode=hard --set $r.k=1 --set $r.measure=weight-norm
expect_refused "the combiner has no head gates" --valid t.mhs --set train.validation.every=1e --set $r.mode=hard --set $r.k=1 \
  --set $r.measure=gate
expect_refused "use another mode, or a model with more layers or heads" --valid t.mhs --set train.validation.every=1e --set $r.mode=soft
expect_refused "at most 1 pair of heads in decoder.self" --set $r.mode=random
expect_refused "kinds of attention that the model has" --set $r.mode=random --set $r.k=1 --set "$r.kind=['decoder.cross']"
expect_refused "pairs of heads, for mode = \"manual\"" --set $r.mode=manual
expect_refused "mode = \"manual\", or no pairs" --set $r.mode=random --set "$r.pairs=['decoder.self:0.0-0.1']"
expect_manual_refused() { expect_refused "$1" --set $r.mode=manual --set "$r.pairs=[$2]" --set "$r.epochs=$3"; }
expect_manual_refused "epochs before which the pairs are swapped" "'decoder.self:0.0-0.1'" "[]"
expect_manual_refused "each epoch once, in ascending order" "'decoder.self:0.0-0.1'" "[4, 4]"
expect_manual_refused "KIND:LAYER.HEAD-LAYER.HEAD" "'decoder.self:0-1'" "[2]"
expect_manual_refused "did you mean 'decoder.self'?" "'decoder.slef:0.0-0.1'" "[2]"
expect_manual_refused "a head from 0 to 1 in layer 0" "'decoder.self:0.0-0.2'" "[2]"
expect_manual_refused "a layer from 0 to 0" "'decoder.self:0.0-1.0'" "[2]"
expect_manual_refused "two different heads in a pair" "'decoder.self:0.0-0.0'" "[2]"
expect_manual_refused "a kind of attention that the model has" "'decoder.cross:0.0-0.1'" "[2]"
expect_refused "attention.combiner = \"hard-concrete\"" --set train.regularisers.hard-concrete-penalty.weight=1
expect_refused "attention.combiner = \"alphas\"" --set train.regularisers.nuclear-growth.weight=1
expect_refused "a mixer with a learned matrix" --set train.regularisers.orthogonal-mixing.weight=1
expect_refused "a model with learned gates" --set train.procedures.block-coordinate.every=5
expect_refused "a model with learned gates" --set train.procedures.block-coordinate.every=5 --set attention.combiner=mae --set attention.mae.gate=uniform
expect_refused "less than 2, the number of heads" --set attention.combiner=mae --set attention.mae.omitted_heads=2
expect_refused "lets gates read later tokens" --set attention.combiner=mae --set attention.mae.mean=full
expect_refused "attention.combiner = \"mixture-of-heads\"" --set train.regularisers.head-balance.weight=1
expect_refused "at most 2, the number of heads, as the sum of attention.mixture-of-heads.shared_heads" --set attention.combiner=mixture-of-heads --set attention.mixture-of-heads.chosen_heads=1
expect_refused "an even number of score heads" --set attention.mixer=differential --set attention.heads=1
# A list of combiners has each name once, no default, and a combiner that mixes heads at its end only.
expect_refused "each combiner once" --set 'attention.combiner=["gates","gates"]'
expect_refused "'concatenate' alone" --set 'attention.combiner=["gates","concatenate"]'
expect_refused "no combiner after 'alphas', which mixes heads" --set 'attention.combiner=["alphas","gates"]'
# Blocks longer than the maximum length of a synthesizer are refused.
for s in synthesizer-dense synthesizer-random; do
  long="--set attention.score=$s --set attention.$s.length=12"
  expect_refused "at most attention.$s.length, 12 tokens" $long; expect_stderr "train.batch.sequence_length"
  expect_refused "train.validation.sequence_length" --valid t.mhs $long --set train.batch.sequence_length=12 --set train.validation.sequence_length=13
  expect 0 mh-train --dry-run --config c.toml --train t.mhs $long --set train.batch.sequence_length=12
done
# Head rotation requires skip-retain.until=0u.
xl="--set model.backbone=transformer-xl --set model.positions=none --set attention.score=relative"
expect_refused "0u together with train.procedures.head-rotation, since skip-retain restores the best weights" --valid t.mhs $xl --set train.procedures.skip-retain.until=2u --set train.validation.every=1u --set $r.mode=random --set $r.k=1 --set model.layers=2
# Refuses frozen gates if a pass would train only the gates, and parameter groups without effect or with invalid keys.
gates=(--set attention.combiner=mae --set train.procedures.block-coordinate.first_gate_epoch=1 --set "train.groups.g.match=['*.gate.*']" --set train.length=2e)
expect_refused "only frozen parameters in pass 1 (counted from 1) of 2" "${gates[@]}" --set train.groups.g.frozen=true
expect_refused "only frozen parameters" "${gates[@]}" --set train.groups.g.freeze_until=1000u
expect_refused "train.groups.g: expected either frozen = true or keys that affect updates, such as lr; found frozen = true with lr" "${gates[@]}" --set train.groups.g.frozen=true --set train.groups.g.lr=1
with_group() { "$1" "$2" --set "train.groups.a.match=['*.self.*']" "${@:3}"; }
with_group expect_refused "train.groups.a.momentum: expected the update rule sgd or nag; found adamw" --set train.groups.a.momentum=0.5
with_group expect_refused "expected a number from 0 to 1, or -1; found -0.5" --set train.groups.a.momentum=-0.5
with_group expect_refused "expected a number of at least 0, or -1; found -0.5" --set train.groups.a.weight_decay=-0.5
with_group expect_refused "train.groups.b: expected a trainable parameter that is in no earlier group; found all matching parameters in earlier groups: a" --set "train.groups.b.match=['*.query.*']" --set train.groups.b.lr=1
# A dry run reports the same errors.
expect_dry_run_refused() { expect 2 mh-train --dry-run --config c.toml --train t.mhs "${@:2}"; expect_stderr "$1"; }
expect_dry_run_refused "attention.combiner = \"alphas\"" --set train.regularisers.nuclear-growth.weight=1
expect_dry_run_refused "a model with learned gates" --set train.procedures.block-coordinate.every=5
expect_dry_run_refused "a model that can skip layers" --set train.procedures.skip-retain.schedule=all
expect_dry_run_refused "blocks, which are shuffled" $xl --set model.transformer-xl.memory=16
expect_dry_run_refused "a pattern that matches a parameter of the model" --set "train.groups.x.match=['*.none']" \
  --set train.groups.x.lr_factor=2
expect_dry_run_refused "pairs of heads, for mode = \"manual\"" --set $r.mode=manual
expect_dry_run_refused "no validation precedes epoch 1" --set train.validation.every=1e --set $r.mode=hard --set $r.start=1 --set $r.k=1
expect_dry_run_refused "found taylor; use another measure" --set train.validation.every=1e --set $r.mode=hard --set $r.k=1 \
  --set $r.measure=taylor
expect_dry_run_refused "the combiner has no head gates" --set train.validation.every=1e --set $r.mode=hard --set $r.k=1 \
  --set $r.measure=gate
expect_dry_run_refused "at most model.max_positions" --set model.positions=learned --set model.max_positions=8
expect_dry_run_refused "at most attention.synthesizer-dense.length, 12 tokens" --set attention.score=synthesizer-dense --set attention.synthesizer-dense.length=12
expect_dry_run_refused "streams, the number of tokens in the text" --set train.batch.order=streams --set train.batch.tokens=1000000
expect_dry_run_refused "streams, the number of lines in the text" --set train.batch.order=sentence-streams --set train.batch.tokens=1000000
expect_dry_run_refused "before the end of the schedule, 4 updates" --set train.schedule.rule=linear --set train.schedule.restart=4u
expect_dry_run_refused "more than the warm-up, 2 updates" --set train.schedule.rule=linear --set train.schedule.restart=2u --set train.schedule.warmup=2u
expect_dry_run_refused "train.schedule.restart_warmup above 0u, with train.schedule.rule=constant" --set train.schedule.restart=2u
expect_dry_run_refused "train.schedule.restart above 0u" --set train.schedule.restart_warmup=2u
expect_dry_run_refused "a layer that meets the constraints of the fused path" --set train.attention_path=fused \
  --set attention.mixer=talking-heads
expect_dry_run_refused "since a regulariser reads attention probabilities" --set train.attention_path=fused \
  --set train.regularisers.disagreement.weight=0.1
expect_dry_run_refused "train.recompute: expected false, since a regulariser observes" --set train.recompute=true \
  --set train.regularisers.disagreement.weight=0.1
expect_dry_run_refused "since the procedure head-rotation reads attention probabilities during validation" --set train.attention_path=fused --set train.validation.every=1e --set $r.mode=hard --set $r.k=1
expect_dry_run_refused "0, or mode = \"soft\"" --set $r.mode=manual --set "$r.pairs=['decoder.self:0.0-0.1']" --set "$r.epochs=[2]" \
  --set $r.t_max=1
expect_dry_run_refused "t_max: expected 0 unless the mode is 'soft'" --set $r.mode=random --set $r.k=1 --set $r.t_max=1
expect_dry_run_refused "unknown regulariser 'overlap'" --set train.regularisers.columns.type=overlap
expect_dry_run_refused "unknown regulariser 'columns'" --set train.regularisers.columns.subspace=columns
expect 0 mh-train --dry-run --config c.toml --train t.mhs --set train.regularisers.columns.type=subspace-overlap --set train.regularisers.columns.subspace=columns
expect_dry_run_refused "only frozen parameters in pass 1 (counted from 1) of 2" "${gates[@]}" --set train.groups.g.frozen=true
with_group expect_dry_run_refused "train.groups.a.momentum" --set train.groups.a.momentum=0.5
with_group expect_dry_run_refused "found all matching parameters in earlier groups: a" --set "train.groups.b.match=['*.query.*']" \
  --set train.groups.b.lr=1
# Without data, parameters that are always frozen are still detected.
expect 2 mh-train --dry-run --config c.toml --set model.vocabulary_rows=8 "${gates[@]}" --set train.groups.g.frozen=true
expect 0 mh-train --dry-run --config c.toml --set model.vocabulary_rows=8 "${gates[@]}" --set train.groups.g.freeze_until=1000u
# A dry run on the CPU checks whether a CUDA graph can capture the passes of a run on a GPU.
expect_graph_dry_run() { expect "$1" mh-train --dry-run --config c.toml --set train.cuda_graph=true \
  --set model.vocabulary_rows=16 "${@:2}"; }
expect_graph_dry_run 0
expect_graph_dry_run 2 --set model.backbone=encoder-decoder
expect_graph_dry_run 2 $xl --set model.transformer-xl.memory=16 --set train.batch.order=streams
expect_graph_dry_run 2 --set train.batch.micro_tokens=32
expect_graph_dry_run 2 --set train.recompute=true
expect_graph_dry_run 2 --set model.tied=false --set model.output_cutoffs=[8]
expect_graph_dry_run 2 --set train.regularisers.disagreement.weight=0.1
expect_graph_dry_run 2 --set attention.combiner=hard-concrete
