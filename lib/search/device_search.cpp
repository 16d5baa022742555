#include "search/device_search.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "base/signals.h"
#include "nn/aten.h"
#include "nn/product.h"
#include "search/candidates.h"

namespace mh::search {

namespace {

// The Q extensions of a step for each of S sentences with W rows each, best first; with sampling, one extension per
// row. A sum of minus infinity marks a missing extension.
struct Extensions {
  at::Tensor sums;    // (S, Q) fp64: log-probability of the extended hypothesis, nats
  at::Tensor tokens;  // (S, Q) int64: next token
  at::Tensor rows;    // (S, Q) int64: row of the sentence, 0 … W - 1, that the extension continues
  at::Tensor finite;  // (S, 1) fp64: finite if the distributions of all rows are finite, otherwise NaN or infinite
};

// Returns x (S, Q) with columns of the value `with` appended, up to `columns` columns; x itself if Q >= columns.
at::Tensor pad_columns(const at::Tensor& x, int64_t columns, const at::Scalar& with) {
  return x.size(1) >= columns ? x : at::constant_pad_nd(x, {0, columns - x.size(1)}, with);
}

class DeviceSearch {
 public:
  DeviceSearch(model::LanguageModel& model, const Sentences& sentences, const BeamPolicy& policy)
      : model_(model),
        sentences_(sentences),
        policy_(policy),
        int64_options_(at::TensorOptions().dtype(at::kLong).device(model.parameters().device())),
        beams_(policy.begin(model, sentences)),
        results_(sentences.size()) {}

  std::vector<std::vector<Hypothesis>> run() {
    if (beams_.empty()) return std::move(results_);
    state_ = model_.new_state();
    width_ = static_cast<int64_t>(beams_[0].live.size());
    tokens_ = at::full({count(), width_}, end(), int64_options_);
    sums_ = at::zeros({count(), width_}, int64_options_.dtype(at::kDouble));
    while (!beams_.empty() && stop_signal() == 0) {
      std::vector<Extensions> seen;
      const int64_t steps = steps_ahead(), first = length_;
      prepare(steps);
      for (int64_t step = 0; step < steps && stop_signal() == 0; ++step) {
        seen.push_back(policy_.samples() ? draw(step) : extensions_of(step));
        ++length_;
      }
      apply_extensions(seen, first);
      remove_finished();
    }
    return std::move(results_);
  }

 private:
  int64_t count() const { return static_cast<int64_t>(beams_.size()); }
  int64_t end() const { return policy_.end_tokens().end; }

  // Returns the number of steps until the host reads the results. The model must not process more positions than the
  // maximum length, even in rows without a live hypothesis, since positions are limited.
  int64_t steps_ahead() const {
    int64_t longest = 0;
    for (const Beam& beam : beams_) longest = std::max(longest, beam.longest);
    return std::min(kSteps, longest + 1 - length_);
  }

  // Copies the host's inputs for the next steps to the GPU: forced tokens, and random numbers for sampling.
  void prepare(int64_t steps) {
    const auto forced = [&](int64_t step, const Beam& beam) {
      return policy_.forced(*sentences_[beam.sentence], beam, length_ + step);
    };
    forced_.assign(static_cast<size_t>(steps), at::Tensor());
    for (int64_t step = 0; step < steps; ++step) {
      std::vector<int64_t> tokens;
      for (const Beam& beam : beams_) tokens.push_back(forced(step, beam));
      if (std::any_of(tokens.begin(), tokens.end(), [](int64_t token) { return token >= 0; }))
        forced_[static_cast<size_t>(step)] = at::tensor(tokens, at::kLong).unsqueeze(1).to(int64_options_.device());
    }
    if (!policy_.samples() || policy_.sampling().temperature == 0) return;
    at::Tensor uniform = at::zeros({steps, count(), width_}, at::kDouble);
    auto* u = uniform.mutable_data_ptr<double>();
    for (int64_t step = 0; step < steps; ++step)
      for (int64_t b = 0; b < count(); ++b, u += width_) {
        Beam& beam = beams_[static_cast<size_t>(b)];
        if (forced(step, beam) >= 0) continue;  // a forced token needs no random number
        for (size_t rank = 0; rank < beam.live.size(); ++rank)
          u[beam.live[rank].slot] = beam.random[beam.samples[rank]].uniform();
      }
    uniform_ = uniform.to(int64_options_.device());
  }

  // Runs the model on tokens_ and returns the logits (S·W, V) fp32 of the next tokens.
  at::Tensor next_logits() {
    model::Input input(tokens_.view({-1, 1}));
    if (length_ == 0 && model_.has_encoder()) read_sources(model_, sentences_, width_, input);
    return model_.logits(model_.hidden(input.to(int64_options_.device()), {}, state_.get())).flatten(0, 1);
  }

  // Returns the log-probability (S, W) of each sentence's forced token in each of the sentence's rows. `forced`: (S, 1)
  // int64; negative: treated as token 0. `lse`: (S, W).
  at::Tensor forced_log_p(const at::Tensor& logits, const at::Tensor& forced, const at::Tensor& lse) const {
    const at::Tensor tokens = forced.clamp_min(0).expand({count(), width_}).reshape({-1, 1});
    return logits.gather(1, tokens).view({count(), width_}).to(at::kDouble) - lse;
  }

  // Computes a step of beam search and returns the extensions. Sets tokens_ and sums_ to those of the first `beam`
  // extensions that do not end with the end token, best first, and reorders the decoding state accordingly.
  Extensions extensions_of(int64_t step) {
    const int64_t beam = policy_.options().beam, extensions = 2 * beam, before = width_;
    const at::Tensor logits = next_logits();
    const BestCandidates best = best_candidates(logits, extensions, policy_.excluded(length_));
    const int64_t each = best.tokens.size(1);
    Extensions seen;
    const at::Tensor lse = best.lse.view({count(), before});
    seen.finite = lse.sum(1, true);
    // (S, W, each): the candidates of each row, sorted by token, so that among equal sums the smaller token precedes.
    auto [tokens, order] = best.tokens.view({count(), before, each}).sort(2);
    at::Tensor log_p = best.logits.view({count(), before, each}).gather(2, order).to(at::kDouble) - lse.unsqueeze(2);
    if (const at::Tensor& forced = forced_[static_cast<size_t>(step)];
        forced.defined()) {  // the forced token is the only extension of each row
      const at::Tensor is = forced.ge(0).unsqueeze(2), only = at::full_like(log_p, -INFINITY);
      only.select(2, 0).copy_(forced_log_p(logits, forced, lse));
      log_p = at::where(is, only, log_p);
      tokens = at::where(is, forced.unsqueeze(2), tokens);
    }
    const at::Tensor sums = pad_columns((sums_.unsqueeze(2) + log_p).flatten(1), extensions, -INFINITY);
    const auto [sorted, places] = at::sort(sums, /*stable=*/true, 1, /*descending=*/true);
    const at::Tensor chosen = places.narrow(1, 0, extensions);
    seen.sums = sorted.narrow(1, 0, extensions);
    seen.tokens = pad_columns(tokens.flatten(1), extensions, end()).gather(1, chosen);
    seen.rows = at::floor_divide(chosen, each).clamp_max(before - 1);

    const at::Tensor open = seen.sums.gt(-INFINITY).logical_and(seen.tokens.ne(end()));
    const at::Tensor first =
        std::get<1>(at::sort(open.to(at::kInt), /*stable=*/true, 1, /*descending=*/true)).narrow(1, 0, beam);
    const at::Tensor live = open.gather(1, first);
    sums_ = seen.sums.gather(1, first).masked_fill(~live, -INFINITY);
    tokens_ = seen.tokens.gather(1, first).masked_fill(~live, end());
    width_ = beam;
    const at::Tensor own = at::arange(count(), int64_options_).unsqueeze(1);
    // In the first step, all rows of a sentence continue its only row.
    if (before < beam) state_->reorder(at::arange(count(), at::kLong).repeat_interleave(beam));
    else if (beam > 1) state_->reorder_within((seen.rows.gather(1, first) + own * beam).flatten());
    return seen;
  }

  // Computes a step of sampling and returns the extensions. Each sample stays in its row.
  Extensions draw(int64_t step) {
    const SamplingOptions& o = policy_.sampling();
    const at::Tensor logits = next_logits();
    const std::vector<int32_t> excluded = policy_.excluded(length_);
    const int64_t entries = logits.size(1), all = o.top_k > 0 ? std::min(o.top_k, entries) : entries;
    if (entries <= static_cast<int64_t>(excluded.size())) BeamPolicy::throw_no_candidates();
    const BestCandidates best = best_candidates(logits, o.temperature == 0 ? 1 : all, excluded);
    Extensions seen;
    const at::Tensor lse = best.lse.view({count(), width_});
    seen.finite = lse.sum(1, true);
    at::Tensor place = at::zeros({count() * width_, 1}, int64_options_);
    if (o.temperature > 0) {  // the same choice as draw() in sampling.h
      const at::Tensor x = best.logits.to(at::kDouble);
      const at::Tensor shares = ((x - x.narrow(1, 0, 1)) / o.temperature).exp().cumsum(1);
      const at::Tensor at = uniform_[step].reshape({-1, 1}) * shares.narrow(1, all - 1, 1);
      place = at::searchsorted(shares, at, /*out_int32=*/false, /*right=*/true).clamp_max(all - 1);
    }
    seen.tokens = best.tokens.gather(1, place).view({count(), width_});
    at::Tensor log_p = best.logits.gather(1, place).view({count(), width_}).to(at::kDouble) - lse;
    if (const at::Tensor& forced = forced_[static_cast<size_t>(step)]; forced.defined()) {
      seen.tokens = at::where(forced.ge(0), forced, seen.tokens);
      log_p = at::where(forced.ge(0), forced_log_p(logits, forced, lse), log_p);
    }
    sums_ = sums_ + log_p;
    tokens_ = seen.tokens;
    seen.sums = sums_;
    seen.rows = at::arange(width_, int64_options_).expand({count(), width_});
    return seen;
  }

  // Applies the extensions of several steps to the hypotheses of unfinished sentences. `length`: number of tokens of
  // the live hypotheses before the first step.
  void apply_extensions(const std::vector<Extensions>& seen, int64_t length) {
    if (seen.empty()) return;
    // Returns a member of all steps' Extensions, (steps, S, …), on the CPU. Only the first call waits for the GPU.
    const auto read = [&](at::Tensor Extensions::*part) {
      std::vector<at::Tensor> all;
      all.reserve(seen.size());
      for (const Extensions& one : seen) all.push_back(one.*part);
      return at::stack(all).to(at::kCPU).contiguous();
    };
    const at::Tensor all_sums = read(&Extensions::sums), all_tokens = read(&Extensions::tokens),
                     all_rows = read(&Extensions::rows), all_finite = read(&Extensions::finite);
    std::vector<Extension> extensions;
    for (size_t step = 0; step < seen.size(); ++step, ++length) {
      for (size_t b = 0; b < beams_.size(); ++b) {
        Beam& beam = beams_[b];
        if (beam.live.empty()) continue;
        const size_t row = step * beams_.size() + b;
        require_finite({all_finite.const_data_ptr<double>() + row, 1});
        const auto at = static_cast<int64_t>(row) * all_sums.size(2);
        extensions.clear();
        const auto take = [&](int64_t i, size_t rank) {
          extensions.push_back({all_sums.const_data_ptr<double>()[at + i], rank,
                                static_cast<int32_t>(all_tokens.const_data_ptr<int64_t>()[at + i])});
        };
        if (policy_.samples()) {
          for (size_t rank = 0; rank < beam.live.size(); ++rank) take(beam.live[rank].slot, rank);
        } else {
          for (int64_t i = 0; i < all_sums.size(2) && all_sums.const_data_ptr<double>()[at + i] > -INFINITY; ++i)
            take(i, static_cast<size_t>(all_rows.const_data_ptr<int64_t>()[at + i]));
        }
        policy_.advance(beam, extensions, length);
      }
    }
  }

  // Removes finished sentences from the batch and stores their results.
  void remove_finished() {
    std::vector<Beam> kept_beams;
    std::vector<int64_t> places;
    for (size_t b = 0; b < beams_.size(); ++b) {
      if (beams_[b].live.empty()) {
        results_[beams_[b].sentence] = policy_.results(beams_[b]);
      } else {
        kept_beams.push_back(std::move(beams_[b]));
        places.push_back(static_cast<int64_t>(b));
      }
    }
    const bool all = kept_beams.size() == beams_.size();
    beams_ = std::move(kept_beams);
    if (all || beams_.empty()) return;
    const at::Tensor sentences = at::tensor(places, at::kLong), there = sentences.to(int64_options_.device());
    for (at::Tensor* t : {&tokens_, &sums_}) *t = t->index_select(0, there);
    state_->reorder((sentences.unsqueeze(1) * width_ + at::arange(width_, at::kLong)).flatten());
  }

  model::LanguageModel& model_;
  const Sentences& sentences_;
  const BeamPolicy& policy_;
  const at::TensorOptions int64_options_;  // int64 on the model's device
  std::unique_ptr<model::DecodingState> state_;
  std::vector<Beam> beams_;  // unfinished sentences, in the order of rows
  int64_t width_ = 1;        // rows per sentence
  int64_t length_ = 0;       // number of tokens of each live hypothesis
  // (S, W): last token of the hypothesis in each row, and its log-probability; minus infinity if the row has none.
  at::Tensor tokens_, sums_;
  std::vector<at::Tensor> forced_;  // per step: (S, 1) forced tokens, -1: not forced; undefined: no sentence is forced
  at::Tensor uniform_;              // (steps, S, W) fp64 random numbers in [0, 1), for sampling
  std::vector<std::vector<Hypothesis>> results_;  // hypotheses of each sentence
};

}  // namespace

std::vector<std::vector<Hypothesis>> search_on_device(model::LanguageModel& model, const Sentences& sentences,
                                                      const BeamPolicy& policy) {
  const c10::NoGradGuard no_gradient;
  const nn::DecodingProducts products;
  return DeviceSearch(model, sentences, policy).run();
}

}  // namespace mh::search
