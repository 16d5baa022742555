#include "task/token_score.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace mh::task {

namespace {

double nll_per_token(const NllSum& score, uint64_t) { return score.nll / static_cast<double>(score.num_tokens); }

constexpr LikelihoodScore kLikelihoodScores[]{
    {"nll", "Mean negative log-likelihood, in nats per token.", nll_per_token},
    {"perplexity", "Exponential of nll.",
     [](const NllSum& score, uint64_t) { return std::exp(nll_per_token(score, 0)); }},
    {"bits_per_token", "Cross-entropy in bits per token, nll / ln 2.",
     [](const NllSum& score, uint64_t) { return nll_per_token(score, 0) / std::log(2.0); }},
    {"bits_per_byte",
     "Negative log-likelihood, in bits per byte of the text, line ends included; of pairs, per byte of the targets.",
     [](const NllSum& score, uint64_t text_bytes) {
       return score.nll / std::log(2.0) / static_cast<double>(std::max<uint64_t>(1, text_bytes));
     }},
};

}  // namespace

std::span<const LikelihoodScore> likelihood_scores() { return kLikelihoodScores; }

NllSum score(model::LanguageModel& model, const data::Corpus& corpus, const data::ScoringOptions& options,
             const ScoreCallbacks& callbacks) {
  c10::NoGradGuard no_gradient;
  NllSum score;
  // Scores that are not yet reported, by stream. A mini-batch has one row of each of its streams, but tokens are
  // reported stream by stream.
  std::map<int64_t, std::vector<TokenScore>> pending_scores;
  const auto report = [&] {
    for (const auto& [stream, token_scores] : pending_scores)
      for (const TokenScore& token_score : token_scores) callbacks.on_token(token_score);
    pending_scores.clear();
  };
  data::BatchVisitor visitor;
  visitor.observer = callbacks.observer;
  visitor.on_progress = callbacks.on_progress;
  visitor.group = callbacks.group;
  visitor.compute = [&](const data::ForwardedBatch& mini_batch) -> distributed::OrderedWork::Results {
    return {model.target_log_probabilities(mini_batch.hidden, mini_batch.batch.targets).to(at::kCPU).contiguous()};
  };
  visitor.add = [&](const data::MiniBatch& mini_batch, const distributed::OrderedWork::Results& results) {
    const at::Tensor& log_p = results[0];
    const auto* p = log_p.const_data_ptr<float>();
    const auto* target = mini_batch.batch.targets.const_data_ptr<int64_t>();
    const int64_t width = log_p.size(1);
    for (size_t r = 0; r < mini_batch.rows.size(); ++r, p += width, target += width) {
      const data::Row& row = mini_batch.rows[r];
      for (int64_t t = row.num_context; t < row.length; ++t) {
        if (target[t] < 0) continue;
        score.nll -= static_cast<double>(p[t]);
        ++score.num_tokens;
        if (callbacks.on_token)
          pending_scores[mini_batch.stream_of(r)].push_back(
              {row.offset + t, static_cast<int32_t>(target[t]), static_cast<double>(p[t])});
      }
    }
    if (mini_batch.ends_streams) report();
  };
  data::for_each_batch(model, corpus, options, visitor);
  report();  // reports the scores that were computed before a stop signal
  return score;
}

}  // namespace mh::task
