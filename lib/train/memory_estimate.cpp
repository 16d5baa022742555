#include "train/memory_estimate.h"

#include <algorithm>

#include "attention/layer.h"
#include "ceil_div.h"
#include "train/gradient_buckets.h"
#include "train/optimizer_shards.h"

namespace mh::train {

namespace {

// Bytes of libraries, threads and the current slice of the logits.
constexpr int64_t kProgramBytes = int64_t{300} << 20;

// Returns the bytes of the parameters, their gradients, moments and bf16 copies in one of `num_processes` processes.
int64_t parameter_bytes(const TrainOptions& t, const nn::ParameterList& parameters, int64_t num_processes) {
  const bool is_bf16 = t.precision == "bf16", uses_adamw = t.optimizer.rule == "adamw";
  // Each process holds a part of the moments and of the masters, and buffers to exchange weights: its own piece, the
  // pieces of all processes and Gloo's copy of these.
  const bool is_sharded = t.shard == "optimizer" && num_processes > 1;
  const int64_t num_elements = parameters.num_trainable_elements(), num_shards = is_sharded ? num_processes : 1;
  int64_t num_divisible_elements = 0;
  for (const nn::Parameter& p : parameters.all())
    if (is_bf16 && has_divisible_master(p.traits())) num_divisible_elements += p.master().numel();
  const int64_t bytes = num_elements * (4 + (is_bf16 ? 4 : 0)) +
                        ceil_div(num_elements * (uses_adamw ? 8 : 4) + num_divisible_elements * 4, num_shards) +
                        (num_elements - num_divisible_elements) * 4;
  const int64_t max_exchange_bytes = (2 * num_processes + 1) * ceil_div(num_elements * 4, num_shards);
  return bytes + (is_sharded ? std::min(GradientBuckets::kBucketBytes, max_exchange_bytes) : 0);
}

// Returns the bytes of the tensors that the transformer layers keep for the backward pass of a micro-batch of `tokens`
// tokens, in rows of `sequence_length` tokens.
int64_t activation_bytes(const RunConfig& run, model::LanguageModel& model, int64_t tokens, int64_t sequence_length) {
  const model::ModelOptions& options = run.model.model;
  const int64_t element_bytes = run.train.precision == "bf16" ? 2 : 4;
  int64_t bytes = 0, layer_bytes = 0, max_layer_bytes = 0, num_layers = 0;
  for (const attention::AttentionLayer* layer : model.attention_layers()) {
    const attention::LayerSpec& s = layer->layer_spec();
    const bool is_cross = s.kind == attention::AttentionKind::decoder_cross;
    // Per token: queries, keys, values and concatenated head outputs; four fp32 tensors of the norms, residuals and
    // dropout; the inputs of output norms; the input, of twice the width with a gate, and the output of the
    // feed-forward activation.
    const int64_t num_sublayers = is_cross ? 1 : 2, num_ffn_tensors = is_cross ? 0 : options.gated_ffn ? 3 : 2;
    const bool has_output_norms = options.norm == model::Norm::around || options.norm == model::Norm::output;
    int64_t sublayer_bytes = tokens * (element_bytes * 2 * (s.heads * s.key_size + s.value_heads * s.value_size) +
                                       4 * 4 * options.width + element_bytes * num_ffn_tensors * options.ffn_dim);
    if (has_output_norms) sublayer_bytes += tokens * element_bytes * num_sublayers * options.width;
    if (run.train.attention_path == "composed" || !layer->reasons_not_fused(true).empty()) {
      // Attention probabilities in fp32, and, with dropout, also the probabilities after dropout.
      const int64_t num_copies = run.model.attention.layer(s.kind, s.layer).dropout > 0 ? 2 : 1;
      sublayer_bytes += 4 * num_copies * tokens * std::max(s.heads, s.value_heads) *
                        (sequence_length + options.transformer_xl.memory);
    }
    layer_bytes = is_cross ? layer_bytes + sublayer_bytes : sublayer_bytes;
    num_layers += is_cross ? 0 : 1;
    bytes += sublayer_bytes;
    max_layer_bytes = std::max(max_layer_bytes, layer_bytes);
  }
  // With train.recompute, every layer keeps its fp32 input, and only the layer whose backward pass runs has
  // activations.
  return run.train.recompute ? num_layers * tokens * 4 * options.width + max_layer_bytes : bytes;
}

}  // namespace

int64_t memory_estimate(const RunConfig& run, model::LanguageModel& model, int64_t num_processes) {
  const TrainOptions& t = run.train;
  const model::ModelOptions& model_options = run.model.model;
  const int64_t sequence_length = std::max(t.batch.sequence_length, t.batch.long_sequence_length);
  // Returns at least 1: even if a row of train.batch.long_sequence_length tokens exceeds the tokens of a batch, a batch
  // has one row.
  const auto rows_of = [&](int64_t num_tokens) { return std::max<int64_t>(num_tokens / sequence_length, 1); };
  const int64_t own_rows = ceil_div(t.batch.rows > 0 ? t.batch.rows : rows_of(t.batch.tokens), num_processes);
  const int64_t rows_per_micro_batch =
      t.batch.micro_tokens > 0 ? std::min(own_rows, rows_of(t.batch.micro_tokens)) : own_rows;
  const int64_t memory_bytes = 4 * own_rows * model_options.transformer_xl.memory * model_options.width *
                               static_cast<int64_t>(model.attention_layers().size());
  return kProgramBytes + parameter_bytes(t, model.parameters(), num_processes) +
         activation_bytes(run, model, rows_per_micro_batch * sequence_length, sequence_length) + memory_bytes;
}

}  // namespace mh::train
