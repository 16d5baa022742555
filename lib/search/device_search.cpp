#include "search/device_search.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "base/signals.h"
#include "nn/aten.h"
#include "nn/product.h"
#include "search/candidates.h"

namespace mh::search {

namespace {

// The extensions of a step: Q extensions for each of S sentences, best first; with sampling, one extension for each of
// the W rows of a sentence. A log-probability of minus infinity marks a missing extension.
struct Extensions {
  at::Tensor log_probabilities;  // (S, Q) fp64: log-probability of the extended hypothesis, nats
  at::Tensor tokens;             // (S, Q) int64: next token
  at::Tensor rows;               // (S, Q) int64: row of the sentence, 0 … W - 1, that the extension continues
  at::Tensor lse_sums;  // (S, 1) fp64: sum of the log-sum-exps of the rows; not finite if a distribution is not finite
};

// Returns x (S, Q), padded on the right with `fill_value` to `columns` columns; x itself if Q is at least `columns`.
at::Tensor pad_columns(const at::Tensor& x, int64_t columns, const at::Scalar& fill_value) {
  return x.size(1) >= columns ? x : at::constant_pad_nd(x, {0, columns - x.size(1)}, fill_value);
}

class DeviceSearch {
 public:
  DeviceSearch(model::LanguageModel& model, const Sentences& sentences, const BeamPolicy& policy)
      : model_(model),
        sentences_(sentences),
        policy_(policy),
        int64_options_(at::TensorOptions().dtype(at::kLong).device(model.parameters().device())),
        beams_(policy.initial_beams(model, sentences)),
        results_(sentences.size()) {}

  std::vector<std::vector<Hypothesis>> run() {
    if (beams_.empty()) return std::move(results_);
    state_ = model_.new_state();
    rows_per_sentence_ = static_cast<int64_t>(beams_[0].live_hypotheses.size());
    tokens_ = at::full({num_sentences(), rows_per_sentence_}, end_id(), int64_options_);
    log_probabilities_ = at::zeros({num_sentences(), rows_per_sentence_}, int64_options_.dtype(at::kDouble));
    while (!beams_.empty() && stop_signal() == 0) {
      std::vector<Extensions> step_extensions;
      const int64_t num_steps = num_steps_until_read(), initial_length = length_;
      prepare_inputs(num_steps);
      for (int64_t step = 0; step < num_steps && stop_signal() == 0; ++step) {
        step_extensions.push_back(policy_.is_sampling() ? extend_samples(step) : extend_beams(step));
        ++length_;
      }
      apply_extensions(step_extensions, initial_length);
      remove_finished();
    }
    return std::move(results_);
  }

 private:
  int64_t num_sentences() const { return static_cast<int64_t>(beams_.size()); }
  int64_t end_id() const { return policy_.special_tokens().end_id; }

  // Returns the number of steps until the host reads the results. No row, even one without a live hypothesis, may
  // exceed the maximum length of a hypothesis in these steps, since the positions of the model are limited.
  int64_t num_steps_until_read() const {
    int64_t max_length = 0;
    for (const Beam& beam : beams_) max_length = std::max(max_length, beam.max_length);
    return std::min(kMaxStepsPerRead, max_length + 1 - length_);
  }

  // Copies the host's inputs for the next steps to the GPU: forced tokens, and random numbers for sampling.
  void prepare_inputs(int64_t num_steps) {
    const auto forced_token = [&](int64_t step, const Beam& beam) {
      return policy_.forced_token(*sentences_[beam.sentence], beam, length_ + step);
    };
    forced_tokens_.assign(static_cast<size_t>(num_steps), at::Tensor());
    all_tokens_forced_.assign(static_cast<size_t>(num_steps), false);
    for (int64_t step = 0; step < num_steps; ++step) {
      std::vector<int64_t> tokens;
      for (const Beam& beam : beams_) tokens.push_back(forced_token(step, beam));
      const auto is_forced = [](int64_t token) { return token >= 0; };
      all_tokens_forced_[static_cast<size_t>(step)] = std::all_of(tokens.begin(), tokens.end(), is_forced);
      if (std::any_of(tokens.begin(), tokens.end(), is_forced))
        forced_tokens_[static_cast<size_t>(step)] =
            at::tensor(tokens, at::kLong).unsqueeze(1).to(int64_options_.device());
    }
    if (!policy_.is_sampling() || policy_.sampling().temperature == 0) return;
    at::Tensor uniforms = at::zeros({num_steps, num_sentences(), rows_per_sentence_}, at::kDouble);
    auto* u = uniforms.mutable_data_ptr<double>();
    for (int64_t step = 0; step < num_steps; ++step)
      for (int64_t b = 0; b < num_sentences(); ++b, u += rows_per_sentence_) {
        Beam& beam = beams_[static_cast<size_t>(b)];
        if (forced_token(step, beam) >= 0) continue;  // a forced token needs no random number
        for (size_t rank = 0; rank < beam.live_hypotheses.size(); ++rank)
          u[beam.live_hypotheses[rank].slot] = beam.random_sequences[beam.sample_numbers[rank]].uniform();
      }
    uniforms_ = uniforms.to(int64_options_.device());
  }

  // Runs the model on tokens_ and returns the logits (S·W, V) fp32 of the next tokens.
  at::Tensor next_logits() {
    model::Input input{tokens_.view({-1, 1})};
    if (length_ == 0 && model_.has_encoder()) set_sources(model_, sentences_, rows_per_sentence_, input);
    return model_.logits(model_.hidden(input.to(int64_options_.device()), {}, state_.get())).flatten(0, 1);
  }

  // Returns the log-probability (S, W) of each sentence's forced token in each of the sentence's rows. `forced_tokens`:
  // (S, 1) int64; negative: treated as token 0. `lse`: (S, W).
  at::Tensor forced_log_p(const at::Tensor& logits, const at::Tensor& forced_tokens, const at::Tensor& lse) const {
    const at::Tensor tokens = forced_tokens.clamp_min(0).expand({num_sentences(), rows_per_sentence_}).reshape({-1, 1});
    return logits.gather(1, tokens).view({num_sentences(), rows_per_sentence_}).to(at::kDouble) - lse;
  }

  // Computes a step of beam search and returns the extensions. Sets `tokens_` and `log_probabilities_` from the first
  // `beam` extensions that do not end with the end token, best first, and reorders the decoding state accordingly.
  Extensions extend_beams(int64_t step) {
    const int64_t beam_size = policy_.options().beam, num_extensions = 2 * beam_size,
                  old_rows_per_sentence = rows_per_sentence_;
    const at::Tensor logits = next_logits();
    const BestCandidates candidates = best_candidates(logits, num_extensions, policy_.excluded_tokens(length_));
    const int64_t candidates_per_row = candidates.tokens.size(1);
    Extensions result;
    const at::Tensor lse = candidates.lse.view({num_sentences(), old_rows_per_sentence});
    result.lse_sums = lse.sum(1, true);
    // (S, W, candidates_per_row): the candidates of each row, sorted by token, so the smaller token comes first if two
    // log-probabilities are equal.
    auto [tokens, order] = candidates.tokens.view({num_sentences(), old_rows_per_sentence, candidates_per_row}).sort(2);
    at::Tensor log_p = candidates.logits.view({num_sentences(), old_rows_per_sentence, candidates_per_row})
                           .gather(2, order)
                           .to(at::kDouble) -
                       lse.unsqueeze(2);
    if (const at::Tensor& forced_tokens = forced_tokens_[static_cast<size_t>(step)];
        forced_tokens.defined()) {  // a forced token is the only extension of each row of its sentence
      const at::Tensor is_forced = forced_tokens.ge(0).unsqueeze(2),
                       forced_token_log_p = at::full_like(log_p, -INFINITY);
      forced_token_log_p.select(2, 0).copy_(forced_log_p(logits, forced_tokens, lse));
      log_p = at::where(is_forced, forced_token_log_p, log_p);
      tokens = at::where(is_forced, forced_tokens.unsqueeze(2), tokens);
    }
    const at::Tensor extended_log_p =
        pad_columns((log_probabilities_.unsqueeze(2) + log_p).flatten(1), num_extensions, -INFINITY);
    const auto [sorted_log_p, sorted_indices] = at::sort(extended_log_p, /*stable=*/true, 1, /*descending=*/true);
    const at::Tensor top_indices = sorted_indices.narrow(1, 0, num_extensions);
    result.log_probabilities = sorted_log_p.narrow(1, 0, num_extensions);
    result.tokens = pad_columns(tokens.flatten(1), num_extensions, end_id()).gather(1, top_indices);
    result.rows = at::floor_divide(top_indices, candidates_per_row).clamp_max(old_rows_per_sentence - 1);

    const at::Tensor can_continue = result.log_probabilities.gt(-INFINITY).logical_and(result.tokens.ne(end_id()));
    const at::Tensor live_indices =
        std::get<1>(at::sort(can_continue.to(at::kInt), /*stable=*/true, 1, /*descending=*/true))
            .narrow(1, 0, beam_size);
    const at::Tensor is_live = can_continue.gather(1, live_indices);
    log_probabilities_ = result.log_probabilities.gather(1, live_indices).masked_fill(~is_live, -INFINITY);
    tokens_ = result.tokens.gather(1, live_indices).masked_fill(~is_live, end_id());
    rows_per_sentence_ = beam_size;
    const at::Tensor sentence_indices = at::arange(num_sentences(), int64_options_).unsqueeze(1);
    // In the first step, each sentence has a single row, which all of its new rows continue.
    if (old_rows_per_sentence < beam_size)
      state_->reorder(at::arange(num_sentences(), at::kLong).repeat_interleave(beam_size));
    else if (beam_size > 1)
      state_->reorder_within_sources((result.rows.gather(1, live_indices) + sentence_indices * beam_size).flatten());
    return result;
  }

  // Computes a step of sampling and returns the extensions. Each sample stays in its row.
  Extensions extend_samples(int64_t step) {
    const SamplingOptions& o = policy_.sampling();
    const at::Tensor logits = next_logits();
    const std::vector<int32_t> excluded_tokens = policy_.excluded_tokens(length_);
    const int64_t vocab_size = logits.size(1),
                  num_candidates = o.top_k > 0 ? std::min(o.top_k, vocab_size) : vocab_size;
    if (vocab_size <= static_cast<int64_t>(excluded_tokens.size()) && !all_tokens_forced_[static_cast<size_t>(step)])
      BeamPolicy::throw_no_candidates();
    const BestCandidates candidates = best_candidates(logits, o.temperature == 0 ? 1 : num_candidates, excluded_tokens);
    Extensions result;
    const at::Tensor lse = candidates.lse.view({num_sentences(), rows_per_sentence_});
    result.lse_sums = lse.sum(1, true);
    at::Tensor sampled_index = at::zeros({num_sentences() * rows_per_sentence_, 1}, int64_options_);
    if (o.temperature > 0) {  // inverse-CDF sampling, which selects the same token as sample_token() (sampling.h)
      const at::Tensor x = candidates.logits.to(at::kDouble);
      const at::Tensor cumulative_weights = ((x - x.narrow(1, 0, 1)) / o.temperature).exp().cumsum(1);
      const at::Tensor thresholds =
          uniforms_[step].reshape({-1, 1}) * cumulative_weights.narrow(1, num_candidates - 1, 1);
      sampled_index = at::searchsorted(cumulative_weights, thresholds, /*out_int32=*/false, /*right=*/true)
                          .clamp_max(num_candidates - 1);
    }
    result.tokens = candidates.tokens.gather(1, sampled_index).view({num_sentences(), rows_per_sentence_});
    at::Tensor log_p =
        candidates.logits.gather(1, sampled_index).view({num_sentences(), rows_per_sentence_}).to(at::kDouble) - lse;
    if (const at::Tensor& forced_tokens = forced_tokens_[static_cast<size_t>(step)]; forced_tokens.defined()) {
      result.tokens = at::where(forced_tokens.ge(0), forced_tokens, result.tokens);
      log_p = at::where(forced_tokens.ge(0), forced_log_p(logits, forced_tokens, lse), log_p);
    }
    log_probabilities_ = log_probabilities_ + log_p;
    tokens_ = result.tokens;
    result.log_probabilities = log_probabilities_;
    result.rows = at::arange(rows_per_sentence_, int64_options_).expand({num_sentences(), rows_per_sentence_});
    return result;
  }

  // Applies the extensions of several steps to the hypotheses of unfinished sentences. `length`: number of tokens of
  // the live hypotheses before the first step.
  void apply_extensions(const std::vector<Extensions>& step_extensions, int64_t length) {
    if (step_extensions.empty()) return;
    // Returns the member `field` of the Extensions of all steps, stacked to (steps, S, …), on the CPU. Only the first
    // call waits for the GPU.
    const auto stack_on_cpu = [&](at::Tensor Extensions::*field) {
      std::vector<at::Tensor> tensors;
      tensors.reserve(step_extensions.size());
      for (const Extensions& step_result : step_extensions) tensors.push_back(step_result.*field);
      return at::stack(tensors).to(at::kCPU).contiguous();
    };
    const at::Tensor all_log_probabilities = stack_on_cpu(&Extensions::log_probabilities),
                     all_tokens = stack_on_cpu(&Extensions::tokens), all_rows = stack_on_cpu(&Extensions::rows),
                     all_lse_sums = stack_on_cpu(&Extensions::lse_sums);
    std::vector<Extension> extensions;
    for (size_t step = 0; step < step_extensions.size(); ++step, ++length) {
      for (size_t b = 0; b < beams_.size(); ++b) {
        Beam& beam = beams_[b];
        if (beam.live_hypotheses.empty()) continue;
        const size_t flat_index = step * beams_.size() + b;
        require_finite({all_lse_sums.const_data_ptr<double>() + flat_index, 1});
        const auto first_index = static_cast<int64_t>(flat_index) * all_log_probabilities.size(2);
        extensions.clear();
        const auto add_extension = [&](int64_t i, size_t rank) {
          extensions.push_back({all_log_probabilities.const_data_ptr<double>()[first_index + i], rank,
                                static_cast<int32_t>(all_tokens.const_data_ptr<int64_t>()[first_index + i])});
        };
        if (policy_.is_sampling()) {
          for (size_t rank = 0; rank < beam.live_hypotheses.size(); ++rank)
            add_extension(beam.live_hypotheses[rank].slot, rank);
        } else {
          for (int64_t i = 0; i < all_log_probabilities.size(2) &&
                              all_log_probabilities.const_data_ptr<double>()[first_index + i] > -INFINITY;
               ++i)
            add_extension(i, static_cast<size_t>(all_rows.const_data_ptr<int64_t>()[first_index + i]));
        }
        policy_.advance(beam, extensions, length);
      }
    }
  }

  // Removes finished sentences from the batch and stores their results.
  void remove_finished() {
    std::vector<Beam> live_beams;
    std::vector<int64_t> live_indices;
    for (size_t b = 0; b < beams_.size(); ++b) {
      if (beams_[b].live_hypotheses.empty()) {
        results_[beams_[b].sentence] = policy_.take_results(beams_[b]);
      } else {
        live_beams.push_back(std::move(beams_[b]));
        live_indices.push_back(static_cast<int64_t>(b));
      }
    }
    const bool are_all_live = live_beams.size() == beams_.size();
    beams_ = std::move(live_beams);
    if (are_all_live || beams_.empty()) return;
    const at::Tensor cpu_indices = at::tensor(live_indices, at::kLong),
                     device_indices = cpu_indices.to(int64_options_.device());
    for (at::Tensor* t : {&tokens_, &log_probabilities_}) *t = t->index_select(0, device_indices);
    state_->reorder(
        (cpu_indices.unsqueeze(1) * rows_per_sentence_ + at::arange(rows_per_sentence_, at::kLong)).flatten());
  }

  model::LanguageModel& model_;
  const Sentences& sentences_;
  const BeamPolicy& policy_;
  const at::TensorOptions int64_options_;  // int64 on the model's device
  std::unique_ptr<model::DecodingState> state_;
  std::vector<Beam> beams_;        // unfinished sentences, in the order of rows
  int64_t rows_per_sentence_ = 1;  // number W of rows of each sentence
  int64_t length_ = 0;             // number of tokens of each live hypothesis
  // (S, W): last token (int64) and log-probability (fp64, nats) of the hypothesis in each row; in beam search, end
  // token and minus infinity for a row without a hypothesis.
  at::Tensor tokens_, log_probabilities_;
  // Per step: (S, 1) int64, forced token of each sentence; -1: none; undefined if no sentence has a forced token.
  std::vector<at::Tensor> forced_tokens_;
  std::vector<bool> all_tokens_forced_;           // per step: whether every sentence has a forced token
  at::Tensor uniforms_;                           // (steps, S, W) fp64 random numbers in [0, 1), for sampling
  std::vector<std::vector<Hypothesis>> results_;  // index: Beam::sentence; empty until the sentence is finished
};

}  // namespace

std::vector<std::vector<Hypothesis>> search_on_device(model::LanguageModel& model, const Sentences& sentences,
                                                      const BeamPolicy& policy) {
  const c10::NoGradGuard no_gradient;
  const nn::DecodingProducts products;
  return DeviceSearch(model, sentences, policy).run();
}

}  // namespace mh::search
