// Measures the seconds of a batched ablation scan of all heads, and of separate evaluations for each head, alternating
// on the same text:
//   scan_bench CHECKPOINT SHARD [BLOCKS [ROUNDS [THREADS [BLOCK [TOKENS_AT_ONCE [fp32|bf16 [PASSES [EVALUATIONS]]]]]]]]
// Prints one line per round: wall time of scan and evaluations, then their CPU time, which other processes disturb
// less. The last line is the largest relative difference between losses of the scan and of the evaluations.
//
// PASSES and EVALUATIONS, by default 0 for all, limit a measurement of a large model to evenly spaced passes of the
// scan over the text, and to evenly spaced models of these passes. The printed times are extrapolated to all models.
// The number of layers that a pass computes for each model separately decreases linearly from pass to pass, so evenly
// spaced passes have the mean time of all passes; all evaluations take the same time.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string_view>
#include <vector>

#include "analysis/ablation.h"
#include "ceil_div.h"
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

// Returns `count` evenly spaced indices below `size`; all indices if `count` is 0 or exceeds `size`.
std::vector<int64_t> evenly_spaced(int64_t count, int64_t size) {
  if (count == 0 || count > size) count = size;
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) indices.push_back((2 * i + 1) * size / (2 * count));
  return indices;
}

}  // namespace

int main(int argc, char** argv) {
  auto argument = [&](int i, int64_t default_value) { return argc > i ? std::atoll(argv[i]) : default_value; };
  nn::prepare_cpu(static_cast<int>(argument(5, 0)));
  const model::LoadedModel loaded = model::load_model(argv[1], at::kCPU);
  const io::ShardFile shard(argv[2]);
  const data::Text text = corpora::text_of(shard, loaded.tokenizers.target->end_of_line_id());
  data::ScoringOptions scoring_options;
  scoring_options.sequence_length = argument(6, 256);
  scoring_options.sample.blocks = argument(3, 16);
  scoring_options = text.resolve(scoring_options, *loaded.model);
  const analysis::AnalysisInput analysis_input{*loaded.model, text, scoring_options};
  if (argc > 8 && std::string_view(argv[8]) == "bf16") loaded.model->parameters().use_bf16_copies(true);
  // The models in the order of score_ablations(): by the layer of the ablated head; last, the model with all heads.
  std::vector<analysis::HeadSet> all_sets;
  for (const auto& [kind, heads] : analysis::all_heads(*loaded.model, analysis_input.side))
    for (const analysis::Head& head : heads) all_sets.push_back({{kind, {head}}});
  all_sets.emplace_back();
  const auto num_models = static_cast<int64_t>(all_sets.size());
  const int64_t tokens_at_once = argument(7, analysis::kMaxTokensPerPass);
  const int64_t num_passes =
      ceil_div(num_models, std::max<int64_t>(1, tokens_at_once / scoring_options.sequence_length));
  std::vector<analysis::HeadSet> scanned_sets;
  for (const int64_t pass : evenly_spaced(argument(9, 0), num_passes))
    scanned_sets.insert(scanned_sets.end(), all_sets.begin() + pass * num_models / num_passes,
                        all_sets.begin() + (pass + 1) * num_models / num_passes);
  const auto num_scanned = static_cast<int64_t>(scanned_sets.size());
  const std::vector<int64_t> evaluated_sets = evenly_spaced(argument(10, 0), num_scanned);
  const double scan_factor = static_cast<double>(num_models) / static_cast<double>(num_scanned);
  const double evaluation_factor = static_cast<double>(num_models) / static_cast<double>(evaluated_sets.size());
  std::vector<task::NllSum> batched_scores;
  std::vector<double> separate_losses(scanned_sets.size());
  double largest_difference = 0;
  for (int64_t round = 0; round < argument(4, 3); ++round) {
    const ElapsedTime scan_time =
        time_call([&] { batched_scores = analysis::score_ablations(analysis_input, scanned_sets, tokens_at_once); });
    const ElapsedTime separate_time = time_call([&] {
      for (const int64_t i : evaluated_sets) {
        const auto index = static_cast<size_t>(i);
        const analysis::HeadMaskGuard mask_guard(*loaded.model, analysis_input.side, scanned_sets[index]);
        separate_losses[index] = task::score(*loaded.model, text, scoring_options).nll;
      }
    });
    for (const int64_t i : evaluated_sets) {
      const auto index = static_cast<size_t>(i);
      const double relative_difference =
          std::abs(batched_scores[index].nll - separate_losses[index]) / separate_losses[index];
      largest_difference =
          std::isfinite(relative_difference) ? std::max(largest_difference, relative_difference) : HUGE_VAL;
    }
    std::printf("%.3f %.3f %.3f %.3f\n", scan_factor * scan_time.seconds, evaluation_factor * separate_time.seconds,
                scan_factor * scan_time.cpu_seconds, evaluation_factor * separate_time.cpu_seconds);
    std::fflush(stdout);
  }
  std::printf("%.2e\n", largest_difference);
}
