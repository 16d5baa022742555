// Measures the time (ms) of the attention layers of a model with all heads and with half of the heads pruned, in
// alternating calls: cut_bench PATH [MIXER [ROWS [LENGTH [ROUNDS]]]], where PATH is composed or fused. Prints the
// median with all heads, then the median of the pruned model.
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "analysis/prune.h"
#include "attention/layer.h"
#include "nn/aten.h"

using namespace mh;

namespace {

double time_attention_ms(model::LanguageModel& model, const at::Tensor& x) {
  attention::Mask mask;
  mask.causal = true;
  const auto start_time = std::chrono::steady_clock::now();
  for (attention::AttentionLayer* layer : model.attention_layers()) layer->forward(x, x, mask, {});
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_time).count();
}

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const c10::NoGradGuard no_gradient;
  const auto argument = [&](int i, int64_t default_value) { return argc > i ? std::atoll(argv[i]) : default_value; };
  const std::string path = argc > 1 ? argv[1] : "composed", mixer = argc > 2 ? argv[2] : "none";
  Config settings;
  settings.load_text(
      "[model]\nlayers = 4\nwidth = 256\nffn_dim = 256\n[attention]\nheads = 8\nmixer = '" + mixer + "'\n", "bench");
  const model::ModelConfig config = model::ModelConfig::read(settings);
  const auto whole_model = model::build_language_model(config, {100}, at::kCPU);
  whole_model->parameters().initialise(1);
  analysis::HeadSet pruned_heads;
  for (int64_t layer = 0; layer < config.model.layers; ++layer)
    for (const int64_t head : {0, 1, 4, 7}) pruned_heads[analysis::AttentionKind::decoder_self].insert({layer, head});
  const auto pruned_model = analysis::prune_heads(
      config, *whole_model,
      analysis::heads_after_pruning(*whole_model, pruned_heads, analysis::SideSelection::whole, "bench"));
  for (auto* model : {whole_model.get(), pruned_model.model.get()})
    model->set_path(attention::parse_attention_path(path));
  const at::Tensor x = at::randn({argument(3, 16), argument(4, 256), config.model.width});
  std::vector<double> times[2];
  const int64_t num_rounds = argument(5, 20), num_warmup_rounds = 3;
  for (int64_t i = 0; i < num_rounds + num_warmup_rounds; ++i) {
    const double a = time_attention_ms(*whole_model, x), b = time_attention_ms(*pruned_model.model, x);
    if (i >= num_warmup_rounds) times[0].push_back(a), times[1].push_back(b);
  }
  std::printf("%.3f %.3f\n", median(times[0]), median(times[1]));
}
