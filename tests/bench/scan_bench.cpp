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
  double seconds, cpu_seconds;  // wall time and CPU time, s
};

ElapsedTime time_call(const std::function<void()>& work) {
  const auto start_time = std::chrono::steady_clock::now();
  const std::clock_t cpu_start = std::clock();
  work();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_time;
  return {seconds.count(), static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC};
}

}  // namespace

int main(int argc, char** argv) {
  auto argument = [&](int i, int64_t default_value) { return argc > i ? std::atoll(argv[i]) : default_value; };
  nn::prepare_cpu(static_cast<int>(argument(5, 0)));
  const model::LoadedModel loaded = model::load_model(argv[1], at::kCPU);
  const io::ShardFile shard(argv[2]);
  const data::Text text = corpora::text_of(shard, loaded.tokenizers.target->end_of_line_id());
  data::ScoringOptions scoring_options;
  scoring_options.block = argument(6, 256);
  scoring_options.sample.blocks = argument(3, 16);
  scoring_options = text.resolve(scoring_options, *loaded.model);
  const analysis::AnalysisInput analysis_input{*loaded.model, text, scoring_options};
  std::vector<analysis::HeadSet> ablated_sets{{}};
  for (const auto& [kind, heads] : analysis::all_heads(*loaded.model, analysis_input.side))
    for (const analysis::Head& head : heads) ablated_sets.push_back({{kind, {head}}});
  std::vector<task::NllSum> batched_scores;
  std::vector<double> separate_losses(ablated_sets.size());
  double largest_difference = 0;
  for (int64_t round = 0; round < argument(4, 3); ++round) {
    const ElapsedTime scan_time = time_call([&] {
      batched_scores =
          analysis::score_ablations(analysis_input, ablated_sets, argument(7, analysis::kMaxTokensPerPass));
    });
    const ElapsedTime separate_time = time_call([&] {
      for (size_t i = 0; i < ablated_sets.size(); ++i) {
        const analysis::HeadMaskGuard mask_guard(*loaded.model, analysis_input.side, ablated_sets[i]);
        separate_losses[i] = task::score(*loaded.model, text, scoring_options).nll;
      }
    });
    for (size_t i = 0; i < ablated_sets.size(); ++i) {
      const double relative_difference = std::abs(batched_scores[i].nll - separate_losses[i]) / separate_losses[i];
      largest_difference =
          std::isfinite(relative_difference) ? std::max(largest_difference, relative_difference) : HUGE_VAL;
    }
    std::printf("%.3f %.3f %.3f %.3f\n", scan_time.seconds, separate_time.seconds, scan_time.cpu_seconds,
                separate_time.cpu_seconds);
    std::fflush(stdout);
  }
  std::printf("%.2e\n", largest_difference);
}
