// Ensembles of translation models, as in fairseq: the distribution of the next token is the mean of the distributions
// of the members,
//
//   log p(y_t | …) = log (1/N Σ_n softmax(logits_n)(y_t))
//
// With a temperature, sampling divides the logarithm of this mean by the temperature, whereas fairseq divides the
// logits of each member. An ensemble is a LanguageModel, so scoring and every search use it like a single model. Its
// last hidden states are the concatenated hidden states of the members (B, T, Σ d_n); its logits are the
// log-probabilities of the mean; its decoding state has the key/value caches of each member.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/language_model.h"
#include "model/load.h"

namespace mh::model {

struct EnsembleMember {
  std::string name;                      // name for messages
  std::unique_ptr<LanguageModel> model;  // a translation model
  int64_t width;                         // size d of its hidden states (model.width)
};

// Returns the ensemble of the members, of which there is at least one. Its parameters() are the parameters of the first
// member, and loss(), which only training needs, throws std::logic_error. Throws Error(usage) for a member that is not
// a translation model, and Error(input) for members with different numbers of vocabulary entries or different start
// tokens.
std::unique_ptr<LanguageModel> make_ensemble(std::vector<EnsembleMember> members);

// Returns the ensemble of loaded models, with the names of all members, joined by "+", and with the configuration and
// the tokenizers of the first. Returns a single model unchanged. Throws the errors of make_ensemble(), and Error(input)
// for members with different vocabularies.
LoadedModel ensemble_of(std::vector<LoadedModel> models);

}  // namespace mh::model
