#include "search/beam_search.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention/layer.h"
#include "base/error.h"
#include "base/signals.h"
#include "nn/aten.h"
#include "nn/product.h"
#include "search/beams.h"
#include "search/candidates.h"
#include "search/device_search.h"
#include "search/sampling.h"

namespace mh::search {

namespace {

at::Tensor tensor_of(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

// The search for a batch of sentences; the batch may be empty. Every sentence has the same number of rows, so that
// tensors that depend only on the source are stored once per sentence. Rows without a live hypothesis are computed and
// ignored.
class HostSearch {
 public:
  HostSearch(model::LanguageModel& model, const Sentences& sentences, const BeamPolicy& policy,
             attention::Observer* observer)
      : model_(model), sentences_(sentences), policy_(policy), observer_(observer) {
    beams_ = policy.initial_beams(model, sentences);
    rows_per_sentence_ = beams_.empty() ? 1 : static_cast<int64_t>(beams_[0].live_hypotheses.size());
    results_.resize(sentences.size());
  }

  std::vector<std::vector<Hypothesis>> run() {
    if (beams_.empty()) return results_;
    state_ = model_.new_state();
    while (!beams_.empty() && stop_signal() == 0) {
      const at::Tensor logits = next_logits();
      if (policy_.is_sampling()) extend_samples(logits);
      else extend_beams(logits);
      ++length_;
      compact_batch();
    }
    return std::move(results_);
  }

 private:
  int64_t num_rows() const { return static_cast<int64_t>(beams_.size()) * rows_per_sentence_; }
  // Returns the batch row of the live hypothesis p of beams_[beam].
  int64_t row(size_t beam, const LiveHypothesis& p) const {
    return static_cast<int64_t>(beam) * rows_per_sentence_ + p.slot;
  }

  // Runs the model on the last token of every row (in the first step, the end token) and returns the logits (R, V) fp32
  // of the next tokens, for R rows and V tokens of the vocabulary.
  at::Tensor next_logits() {
    at::Tensor tokens = at::full({num_rows(), 1}, static_cast<int64_t>(policy_.special_tokens().end_id), at::kLong);
    auto* t = tokens.mutable_data_ptr<int64_t>();
    for (size_t b = 0; b < beams_.size(); ++b)
      for (const LiveHypothesis& p : beams_[b].live_hypotheses)
        if (!p.tokens.empty()) t[row(b, p)] = p.tokens.back();
    model::Input input{tokens};
    if (length_ == 0 && model_.has_encoder()) set_sources(model_, sentences_, rows_per_sentence_, input);
    if (observer_ != nullptr) observer_->begin_batch(input.lengths);
    const at::Tensor hidden = model_.hidden(input.to(model_.parameters().device()), {}, state_.get(), observer_);
    return model_.logits(hidden).flatten(0, 1);
  }

  // Computes a step of beam search: extends all live hypotheses.
  void extend_beams(const at::Tensor& logits) {
    CandidateConstraints constraints{2 * policy_.options().beam, policy_.excluded_tokens(length_), {}};
    for (size_t b = 0; b < beams_.size(); ++b)
      if (const int32_t token = forced_token(b); token >= 0) {
        constraints.forced_tokens.resize(static_cast<size_t>(num_rows()), -1);
        std::fill_n(constraints.forced_tokens.begin() + static_cast<int64_t>(b) * rows_per_sentence_,
                    rows_per_sentence_, token);
      }
    const Candidates candidates = candidates_of(logits, constraints);
    std::vector<Extension> extensions;
    for (size_t b = 0; b < beams_.size(); ++b) {
      Beam& beam = beams_[b];
      extensions.clear();
      for (size_t rank = 0; rank < beam.live_hypotheses.size(); ++rank) {
        const auto r = static_cast<size_t>(row(b, beam.live_hypotheses[rank]));
        for (const kernels::Entry& e : candidates.entries[r])
          extensions.push_back(
              {beam.live_hypotheses[rank].log_probability + (static_cast<double>(e.logit) - candidates.lse[r]), rank,
               e.index});
      }
      const size_t num_candidates = std::min(extensions.size(), static_cast<size_t>(constraints.max_candidates));
      std::partial_sort(extensions.begin(), extensions.begin() + static_cast<int64_t>(num_candidates), extensions.end(),
                        precedes);
      policy_.advance(beam, std::span(extensions).first(num_candidates), length_);
    }
  }

  // Returns the forced next token of beams_[beam]; -1: none.
  int32_t forced_token(size_t beam) const {
    return policy_.forced_token(*sentences_[beams_[beam].sentence], beams_[beam], length_);
  }

  // Computes a step of sampling: draws a token for each live sample.
  void extend_samples(const at::Tensor& logits) {
    const Candidates candidates = candidates_of(logits, {0, {}, {}});
    const std::vector<int32_t> excluded_tokens = policy_.excluded_tokens(length_);
    at::Tensor allowed_logits = logits.to(at::kCPU, at::kFloat, false, true).contiguous();
    const at::Tensor all_logits = allowed_logits.clone();
    for (int32_t token : excluded_tokens) allowed_logits.select(1, token).fill_(-INFINITY);
    const int64_t vocab_size = allowed_logits.size(1);
    const bool has_candidates = vocab_size > static_cast<int64_t>(excluded_tokens.size());
    const SamplingOptions& o = policy_.sampling();
    std::vector<Extension> extensions;
    for (size_t b = 0; b < beams_.size(); ++b) {
      Beam& beam = beams_[b];
      extensions.clear();
      for (size_t rank = 0; rank < beam.live_hypotheses.size(); ++rank) {
        const int64_t r = row(b, beam.live_hypotheses[rank]);
        int32_t token = forced_token(b);
        if (token < 0 && !has_candidates) BeamPolicy::throw_no_candidates();
        if (token < 0)
          token =
              sample_token({allowed_logits.const_data_ptr<float>() + r * vocab_size, static_cast<size_t>(vocab_size)},
                           o.temperature, o.top_k, beam.random_sequences[beam.sample_numbers[rank]]);
        const double logit = all_logits.const_data_ptr<float>()[r * vocab_size + token];
        extensions.push_back(
            {beam.live_hypotheses[rank].log_probability + (logit - candidates.lse[static_cast<size_t>(r)]), rank,
             token});
      }
      policy_.advance(beam, extensions, length_);
    }
  }

  // Removes finished sentences from the batch, stores their hypotheses in results_, and reorders the rows of the
  // decoding state. Live hypotheses stay in their rows if possible, so that little of the cache is copied; the last
  // sentences move to the rows of removed sentences.
  void compact_batch() {
    const int64_t old_num_rows = num_rows();         // number of rows in state_
    std::vector<size_t> old_indices(beams_.size());  // previous index in beams_ of each remaining sentence
    std::iota(old_indices.begin(), old_indices.end(), size_t{0});
    for (size_t b = beams_.size(); b-- > 0;) {
      if (!beams_[b].live_hypotheses.empty()) continue;
      results_[beams_[b].sentence] = policy_.take_results(beams_[b]);
      if (b + 1 < beams_.size()) beams_[b] = std::move(beams_.back());
      old_indices[b] = old_indices.back();
      beams_.pop_back();
      old_indices.pop_back();
    }
    if (beams_.empty()) return;
    int64_t num_slots = 0;
    for (const Beam& beam : beams_) num_slots = std::max(num_slots, static_cast<int64_t>(beam.live_hypotheses.size()));
    std::vector<int64_t> old_rows;
    for (size_t b = 0; b < beams_.size(); ++b)
      assign_slots(beams_[b], static_cast<int64_t>(old_indices[b]) * rows_per_sentence_, num_slots, old_rows);
    bool is_reordered = false;
    for (size_t i = 0; i < old_rows.size(); ++i) is_reordered = is_reordered || old_rows[i] != static_cast<int64_t>(i);
    rows_per_sentence_ = num_slots;
    if (is_reordered || num_rows() != old_num_rows) state_->reorder(tensor_of(old_rows));
  }

  // Assigns a slot to each live hypothesis of a beam, and appends to `old_rows`, for each of the beam's `num_slots`
  // slots, the old row whose state the slot continues (any row of the sentence for a slot without a hypothesis).
  // `first`: old batch row of slot 0 of the beam.
  void assign_slots(Beam& beam, int64_t first, int64_t num_slots, std::vector<int64_t>& old_rows) const {
    // Old slot that each new slot continues; -1: free.
    std::vector<int64_t> parents(static_cast<size_t>(num_slots), -1);
    std::vector<LiveHypothesis*> hypotheses_without_slot;
    for (LiveHypothesis& p : beam.live_hypotheses) {
      const bool reuses_slot = num_slots == rows_per_sentence_ && parents[static_cast<size_t>(p.slot)] < 0;
      if (reuses_slot) parents[static_cast<size_t>(p.slot)] = p.slot;
      else hypotheses_without_slot.push_back(&p);
    }
    size_t free_slot = 0;
    for (LiveHypothesis* p : hypotheses_without_slot) {
      while (parents[free_slot] >= 0) ++free_slot;
      parents[free_slot] = p->slot;
      p->slot = static_cast<int64_t>(free_slot);
    }
    for (int64_t slot = 0; slot < num_slots; ++slot) {
      const int64_t parent = parents[static_cast<size_t>(slot)];
      old_rows.push_back(first + (parent >= 0 ? parent : std::min(slot, rows_per_sentence_ - 1)));
    }
  }

  model::LanguageModel& model_;
  const Sentences& sentences_;
  const BeamPolicy& policy_;
  attention::Observer* observer_;
  std::unique_ptr<model::DecodingState> state_;
  std::vector<Beam> beams_;  // unfinished sentences, in the order of rows
  int64_t rows_per_sentence_ = 1;
  int64_t length_ = 0;                            // number of tokens of each live hypothesis
  std::vector<std::vector<Hypothesis>> results_;  // index: Beam::sentence; empty until the sentence is finished
};

// Returns the number of sub-batches into which a batch of `num_rows` rows is split; one thread searches each sub-batch.
// Several threads in one batch would synchronise after each operation; threads with their own sub-batches do not.
// Returns the number of threads if the model is on a CPU and each sub-batch then has enough rows for efficient matrix
// products, otherwise 1. Splitting requires attention layers that support concurrent calls and whose results for a row
// do not depend on the other rows.
int64_t num_sub_batches(model::LanguageModel& model, int64_t num_rows) {
  const int64_t num_threads = at::get_num_threads();
  if (!model.parameters().device().is_cpu() || num_rows < num_threads * nn::DecodingProducts::kFullRows) return 1;
  for (const attention::AttentionLayer* layer : model.attention_layers())
    if (!layer->is_per_query() || !layer->takes_fused_path(false)) return 1;
  return num_threads;
}

}  // namespace

void SearchOptions::check(model::LanguageModel& model, const std::string& section) const {
  const std::string beam_name = field_name(section, "beam"), min_length_name = field_name(section, "min_length");
  if (beam > model.vocabulary_sizes().target)
    refuse_usage(beam_name, str("at most ", model.vocabulary_sizes().target, ", the size of the vocabulary"),
                 found_value(beam, SearchOptions{}.beam), "lower " + beam_name);
  const int64_t model_limit = model.max_length() > 0 ? model.max_length() - 1 : INT64_MAX;
  if (const int64_t length_limit = max_length_a == 0 ? std::min(max_length_b, model_limit) : model_limit;
      min_length > length_limit)
    refuse_usage(
        min_length_name,
        str("at most ", length_limit, ", the maximum length", length_limit == model_limit ? " of the model" : ""),
        found_value(min_length, SearchOptions{}.min_length), "lower " + min_length_name);
}

int64_t max_hypothesis_length(const SearchOptions& o, model::LanguageModel& model, int64_t source_length) {
  const auto proportional_length = static_cast<int64_t>(o.max_length_a * static_cast<double>(source_length));
  const int64_t max_length = proportional_length + o.max_length_b, model_limit = model.max_length();
  // The last position of the model predicts the end token.
  return model_limit > 0 ? std::min(max_length, model_limit - 1) : max_length;
}

std::vector<std::vector<Hypothesis>> beam_search(model::LanguageModel& model, const std::vector<Sentence>& sentences,
                                                 const SpecialTokens& special_tokens, const SearchOptions& options,
                                                 const SamplingOptions& sampling, attention::Observer* observer) {
  const c10::NoGradGuard no_gradient;
  const nn::DecodingProducts products;
  const BeamPolicy policy(special_tokens, options, sampling);
  if (!model.parameters().device().is_cpu() && observer == nullptr) {
    Sentences sentence_pointers;
    for (const Sentence& s : sentences) sentence_pointers.push_back(&s);
    return search_on_device(model, sentence_pointers, policy);
  }
  const auto rows_per_sentence = std::max<int64_t>(1, sampling.samples > 0 ? sampling.samples : options.beam);
  const int64_t num_batches =
      observer != nullptr ? 1 : num_sub_batches(model, static_cast<int64_t>(sentences.size()) * rows_per_sentence);
  // Sentences are dealt to the sub-batches in turn, so that sub-batches of sorted sentences have similar lengths and
  // finish at about the same time.
  std::vector<Sentences> sub_batches(static_cast<size_t>(num_batches));
  for (size_t i = 0; i < sentences.size(); ++i) sub_batches[i % sub_batches.size()].push_back(&sentences[i]);
  std::vector<std::vector<std::vector<Hypothesis>>> sub_batch_results(sub_batches.size());
  const auto search_sub_batch = [&](size_t i) {
    sub_batch_results[i] = HostSearch(model, sub_batches[i], policy, observer).run();
  };
  if (num_batches == 1) {
    search_sub_batch(0);
  } else {
    at::parallel_for(0, num_batches, 1, [&](int64_t begin, int64_t end) {
      const c10::NoGradGuard thread_no_gradient;  // applies to the current thread only, like DecodingProducts
      const nn::DecodingProducts thread_products(&products);
      for (int64_t i = begin; i < end; ++i) search_sub_batch(static_cast<size_t>(i));
    });
  }
  std::vector<std::vector<Hypothesis>> results;
  for (size_t i = 0; i < sentences.size(); ++i)
    results.push_back(std::move(sub_batch_results[i % sub_batches.size()][i / sub_batches.size()]));
  return results;
}

}  // namespace mh::search
