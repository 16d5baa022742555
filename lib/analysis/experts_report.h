// Specialisation of the experts of a mixture of attentive experts (MAE, sections 5.1 to 5.3). For gates g over E
// experts:
//
//   entropy      mean over units of H(g) = -Σ_i g_i ln g_i, nats; ln E for uniform gates
//   attribution  a unit belongs to the expert argmax_i g_i; in a tie, to the expert with the lowest index
//   PMI          pointwise mutual information ln [p(token, expert) / (p(token) p(expert))], from counts over the query
//                positions of the first layer with gates: the token at a position occurs with the expert of its unit.
//                If this layer is in the encoder, the tokens are source tokens. In sentences only words are counted
//                (word_range.h)
//   specialised  evaluation with one-hot gates at argmax_i g_i, in every layer
//   random       evaluation with one-hot gates at an expert that is drawn uniformly for each layer and unit
//
// A unit is a part of the input with a single gate vector: a text block or a sentence, or one position if the gates
// depend on the position (gates computed from a causal mean of the layer's input). Layers whose kind is not in
// AnalysisInput::kinds are left out and keep their own gates. With a one-hot gate, the t heads that the expert leaves
// out have weight 0 and the others have weight h / (h - t), where h is the number of heads before pruning.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "analysis/ablation.h"
#include "analysis/analysis_input.h"
#include "analysis/heads.h"

namespace mh::analysis {

// Throws Error(usage) if no layer of these kinds has gates over experts. Gates of single heads do not count.
void require_experts(model::LanguageModel& model, const Kinds& kinds = {});

struct LayerGates {
  AttentionKind kind = AttentionKind::decoder_self;
  int64_t layer = 0;
  bool is_per_position = false;      // whether each position has its own gates
  int64_t num_units = 0;             // number of units (gate vectors)
  double entropy_sum = 0;            // sum over units, nats
  std::vector<int64_t> unit_counts;  // (E): number of units that belong to each expert
};

// Returns, for each kind of attention, the mean over its layers of the mean entropy per unit, nats.
std::map<AttentionKind, double> mean_entropies(const std::vector<LayerGates>& layers);

struct ExpertToken {
  int64_t expert = 0;
  int32_t token_id = 0;
  int64_t count = 0;  // occurrences of the token with this expert
  double pmi = 0;
};

struct ExpertReport {
  std::vector<LayerGates> layers;   // layers with gates, from the model's input to its output
  bool has_source_tokens = false;   // whether the tokens are source tokens
  std::vector<ExpertToken> tokens;  // ordered by expert, then descending PMI, then token
};

// Runs the model over the text and returns the report. `max_tokens`: maximum number of tokens per expert;
// `min_count`: minimum number of occurrences of a listed token with the expert. Padding is not counted. Context
// positions are not counted in `tokens`, but are units of the layers whose gates depend on the position.
ExpertReport report_experts(const AnalysisInput& input, int64_t max_tokens, int64_t min_count);

struct ExpertScore {
  std::string gate_mode;    // "own", "specialised", "random"
  double score;             // value of the loss or of a metric, mean over `num_evaluations`
  double deviation;         // sample standard deviation over `num_evaluations`; NaN for a single evaluation
  int64_t num_evaluations;  // 1; for random gates the number of seeds
};

// Returns three scores of the model: with its own gates, with specialised gates, and with random gates (mean over the
// seeds 1, 2, …, `num_seeds`). `evaluate`: returns the score of the model under an observer that replaces the gates, or
// without an observer (null); empty: the value of the loss that `loss_value` names.
std::vector<ExpertScore> evaluate_experts(const AnalysisInput& input, int64_t num_seeds,
                                          const std::function<double(attention::Observer*)>& evaluate = {},
                                          LossValue loss_value = LossValue::perplexity);

}  // namespace mh::analysis
