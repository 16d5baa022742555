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

struct Spent {
  double seconds, processor;  // wall time and CPU time, s
};

Spent spent(const std::function<void()>& work) {
  const auto began = std::chrono::steady_clock::now();
  const std::clock_t clock = std::clock();
  work();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  return {seconds.count(), static_cast<double>(std::clock() - clock) / CLOCKS_PER_SEC};
}

}  // namespace

int main(int argc, char** argv) {
  auto number = [&](int i, int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  nn::prepare_cpu(static_cast<int>(number(5, 0)));
  const model::LoadedModel m = model::load_model(argv[1], at::kCPU);
  const io::ShardFile shard(argv[2]);
  const data::Text text = corpora::text_of(shard, m.tokenizers.target->end_of_line());
  data::ScoringOptions how;
  how.block = number(6, 256);
  how.sample.blocks = number(3, 16);
  how = text.resolve(how, *m.model);
  const analysis::AnalysisInput subject{*m.model, text, how};
  std::vector<analysis::HeadSet> without{{}};
  for (const auto& [kind, heads] : analysis::all_heads(*m.model, subject.side))
    for (const analysis::Head& head : heads) without.push_back({{kind, {head}}});
  std::vector<task::Score> together;
  std::vector<double> singly(without.size());
  double worst = 0;
  for (int64_t round = 0; round < number(4, 3); ++round) {
    const Spent a =
        spent([&] { together = analysis::score_without(subject, without, number(7, analysis::kMaxTokensPerPass)); });
    const Spent b = spent([&] {
      for (size_t i = 0; i < without.size(); ++i) {
        const analysis::HeadMaskGuard masked(*m.model, subject.side, without[i]);
        singly[i] = task::score(*m.model, text, how).nll;
      }
    });
    for (size_t i = 0; i < without.size(); ++i) {
      const double apart = std::abs(together[i].nll - singly[i]) / singly[i];
      worst = std::isfinite(apart) ? std::max(worst, apart) : HUGE_VAL;
    }
    std::printf("%.3f %.3f %.3f %.3f\n", a.seconds, b.seconds, a.processor, b.processor);
    std::fflush(stdout);
  }
  std::printf("%.2e\n", worst);
}
