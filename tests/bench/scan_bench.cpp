// Seconds that a scan of all heads takes, and the same by one evaluation after the other, in alternation, each on the
// same text: scan_bench CHECKPOINT SHARD [BLOCKS [ROUNDS [THREADS]]]
// Prints "scan one-by-one" for each round, then the largest relative difference between their losses.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "analysis/ablation.h"
#include "io/shard.h"
#include "model/ops.h"
#include "model/load.h"
#include "train/run_config.h"

using namespace mh;

int main(int argc, char** argv) {
  auto number = [&](int i, int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  const int64_t blocks = number(3, 16), rounds = number(4, 3);
  model::prepare_cpu(static_cast<int>(number(5, 0)));
  const model::LoadedModel m = model::load_model(argv[1], at::kCPU);
  const io::ShardFile shard(argv[2]);
  const task::Text text = task::text_of(shard, m.tokenizer->end_of_line());
  task::ScoringOptions how;
  how.block = number(6, 256);
  how.sample.blocks = blocks;
  how = task::resolve(how, *m.model, text.tokens);
  const analysis::Subject subject{*m.model, text, how};
  std::vector<analysis::HeadSet> without{{}};
  for (const auto& [kind, heads] : analysis::all_heads(*m.model, subject.side))
    for (const analysis::Head& head : heads) without.push_back({{kind, {head}}});
  using Clock = std::chrono::steady_clock;
  double worst = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    auto began = Clock::now();
    const auto scanned = analysis::score_without(subject, without, number(7, analysis::kTokensAtOnce));
    const std::chrono::duration<double> scan = Clock::now() - began;
    began = Clock::now();
    for (size_t i = 0; i < without.size(); ++i) {
      const analysis::Masked masked(*m.model, subject.side, without[i]);
      const double nll = task::score_text(*m.model, text, how).nll;
  X
    }
    const std::chrono::duration<double> singly = Clock::now() - began;
    std::printf("%.3f %.3f\n", scan.count(), singly.count());
    std::fflush(stdout);
  }
  std::printf("%.2e\n", worst);
}
