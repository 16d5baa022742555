// Measures the seconds of a batched ablation scan of all heads, and of separate evaluations for each head, alternating
// on the same text:
//   scan_bench CHECKPOINT SHARD [BLOCKS [ROUNDS [THREADS [BLOCK [TOKENS_AT_ONCE]]]]]
// Prints one line per round: wall time of scan and evaluations, then their CPU time, which other processes disturb
// less. The last line is the largest relative difference between losses of the scan and of the evaluations.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>

#include "analysis/ablation.h"
#include "fixtures/corpora.h"
#include "model/load.h"
#include "nn/ops.h"

using namespace mh;

namespace {

struct ElapsedTime {
  double seconds, processor;  // wall time and CPU time, s
};

ElapsedTime time_call(const std::function<void()>& work) {
  const auto began = std::chrono::steady_clock::now();
  const std::clock_t clock = std::clock();
  work();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  return {seconds.count(), static_cast<double>(std::clock() - clock) / CLOCKS_PER_SEC};
}

}  // namespace

int main(int argc, char** argv) {
  auto number = [&](int i, int64_t default_value) { return argc > i ? std::atoll(argv[i]) : default_value; };
  nn::prepare_cpu(static_cast<int>(number(5, 0)));
  const model::LoadedModel m = model::load_model(argv[1], at::kCPU);
  const io::ShardFile shard(argv[2]);
  const data::Text text = corpora::text_of(shard, m.tokenizers.target->end_of_line());
  data::ScoringOptions scoring_options;
  scoring_options.block = number(6, 256);
  scoring_options.sample.blocks = number(3, 16);
  scoring_options = text.resolve(scoring_options, *m.model);
  const analysis::AnalysisInput analysis_input{*m.model, text, scoring_options};
  std::vector<analysis::HeadSet> ablated_sets{{}};
  for (const auto& [kind, heads] : analysis::all_heads(*m.model, analysis_input.side))
    for (const analysis::Head& head : heads) ablated_sets.push_back({{kind, {head}}});
  std::vector<task::Score> batched_scores;
  std::vector<double> separate_losses(ablated_sets.size());
  double worst = 0;
  for (int64_t round = 0; round < number(4, 3); ++round) {
    const ElapsedTime a = time_call([&] {
      batched_scores = analysis::score_ablations(analysis_input, ablated_sets, number(7, analysis::kMaxTokensPerPass));
    });
    const ElapsedTime b = time_call([&] {
      for (size_t i = 0; i < ablated_sets.size(); ++i) {
        const analysis::HeadMaskGuard masked(*m.model, analysis_input.side, ablated_sets[i]);
        separate_losses[i] = task::score(*m.model, text, scoring_options).nll;
      }
    });
    for (size_t i = 0; i < ablated_sets.size(); ++i) {
      const double relative_difference = std::abs(batched_scores[i].nll - separate_losses[i]) / separate_losses[i];
      worst = std::isfinite(relative_difference) ? std::max(worst, relative_difference) : HUGE_VAL;
    }
    std::printf("%.3f %.3f %.3f %.3f\n", a.seconds, b.seconds, a.processor, b.processor);
    std::fflush(stdout);
  }
  std::printf("%.2e\n", worst);
}
