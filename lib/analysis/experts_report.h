// What the experts of a mixture do (MAE, sections 5.1 to 5.3): for gates g over E experts,
//
//   entropy      H(g) = -Σ_i g_i ln g_i of each unit, then the mean; ln E where all are even
//   attribution  a unit belongs to its expert argmax_i g_i, the first of equal ones
//   PMI          ln p(token, expert) / (p(token) p(expert)), over the tokens of units of the first layer with gates:
//                those that its queries stand on, so source tokens where that is an encoder's. Of sentences, over
//                words (words.h)
//   specialised  every unit uses its own expert alone, at every layer: g becomes a one at its argmax
//   random       an expert drawn evenly for each layer and unit in its place
//
// A unit is what has a gate of its own: a row of the text or a sentence, or a position where gates go by position (a
// causal mean). Where Subject::kinds names some, layers of other kinds are not looked at and keep their own gates.
// A one in the gates gives head weights h / (h - t) without the t heads that the expert leaves out.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "analysis/heads.h"
#include "analysis/subject.h"

namespace mh::analysis {

// Error(usage) where no layer of these kinds weighs experts: gates that are shares, summing to 1.
void require_experts(model::LanguageModel& model, const Kinds& kinds = {});

struct LayerGates {
  Kind kind = Kind::decoder_self;
  int64_t layer = 0;
  bool by_position = false;
  int64_t units = 0;
  double entropy = 0;           // summed over units
  std::vector<int64_t> counts;  // units of each expert
};

// Of each kind of attention, the mean over its layers of the entropy of a unit, nats.
std::map<Kind, double> mean_entropies(const std::vector<LayerGates>& layers);

struct TokenOfExpert {
  int64_t expert = 0;
  int32_t token = 0;
  int64_t count = 0;  // of the token, in units of the expert
  double pmi = 0;
};

struct ExpertReport {
  std::vector<LayerGates> layers;     // from the input to the output
  bool of_source = false;             // tokens are of what an encoder reads
  std::vector<TokenOfExpert> tokens;  // by expert, the highest PMI first, then the lower token
};

// `tokens`: at most so many of each expert, those that it has seen at least `least` times. Positions that are only
// context or padding do not count.
ExpertReport report_experts(const Subject& subject, int64_t tokens, int64_t least);

struct ExpertScore {
  std::string gates;  // "own", "specialised", "random"
  double score;       // perplexity or what was asked for, mean over runs
  double deviation;   // sample standard deviation over runs, NaN of one
  int64_t runs;
};

// Perplexity with the model's gates, with each unit's expert alone, and with random ones: `seeds` runs, seeds from 1.
// `score` takes the place of perplexity: it runs the model with an observer, or null, that may replace gates.
std::vector<ExpertScore> evaluate_experts(const Subject& subject, int64_t seeds,
                                          const std::function<double(attention::Observer*)>& score = {});

}  // namespace mh::analysis
