// The input of every analysis that runs a model: the model, the corpus, and options.
#pragma once

#include <functional>
#include <set>

#include "analysis/additive_observer.h"
#include "data/for_each_batch.h"
#include "model/language_model.h"
#include "task/token_score.h"

namespace mh::analysis {

// The tensors of a head that an analysis masks or measures: the tensors of one head side (attention::HeadSide), or
// of all sides together (whole).
enum class SideSelection { whole, score, value, output };

struct AnalysisInput {
  model::LanguageModel& model;
  const data::Corpus& corpus;
  // Options as the user set them, or as data::Corpus::resolve() completed them. `scoring_options.sample` counts text
  // blocks or sentences.
  data::ScoringOptions scoring_options;
  SideSelection side = SideSelection::whole;
  std::function<void(int64_t num_completed, int64_t total)> progress = {};  // called with numbers of batch rows
  std::set<attention::AttentionKind> kinds = {};                            // kinds of attention to analyse; empty: all
  const distributed::Group* group = nullptr;  // processes that share the mini-batches; null: one process
};

// Runs input.model over input.corpus without gradients; `observer` observes the forward pass of each scored mini-batch.
// Returns early after a stop signal. The processes of input.group do not share the mini-batches.
void run_with_observer(const AnalysisInput& input, attention::Observer& observer);
// Runs input.model over input.corpus as above, but the processes of input.group share the mini-batches, and the
// observer has the results of all of them in every process.
void run_with_observer(const AnalysisInput& input, AdditiveObserver& observer);
// Makes `visitor` record the contributions of `observer` to each mini-batch after `finish_pass`, and add them in the
// order of the mini-batches, so that the processes of `group` share the mini-batches. `observer` must outlive
// `visitor`, and records every later contribution until the caller calls end_recording().
void share_contributions(data::BatchVisitor& visitor, AdditiveObserver& observer, const distributed::Group* group,
                         std::function<void(const data::ForwardedBatch&)> finish_pass = {});

}  // namespace mh::analysis
