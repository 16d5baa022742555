// Measures the tokens per second of beam search with a model of random weights. All hypotheses have length LENGTH, so
// that the amount of work is fixed:
//   beam_bench [ROUNDS [THREADS [fp32|bf16 [cpu|cuda [SENTENCES [BEAM [LENGTH [SOURCE]]]]]]]]
// Prints one line per round, with its tokens per second. The weights are packed for matrix products once for all
// rounds, as mh-eval packs them once for all batches of a text.
#include <c10/core/GradMode.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "model/model_config.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "nn/product.h"
#include "search/beam_search.h"

using namespace mh;

int main(int argc, char** argv) {
  auto argument = [&](int i, int64_t default_value) { return argc > i ? std::atoll(argv[i]) : default_value; };
  const int64_t num_rounds = argument(1, 5), num_sentences = argument(5, 32), beam_size = argument(6, 5),
                length = argument(7, 24), source_length = argument(8, 20), vocabulary_size = 8000;
  const at::Device device = nn::choose_device(argc > 4 ? argv[4] : "cpu");
  nn::prepare_cpu(static_cast<int>(argument(2, 2)));
  Config config;
  config.load_text(
      "[model]\nbackbone = 'encoder-decoder'\nnorm = 'post'\nlayers = 3\nwidth = 256\nffn_dim = "
      "1024\nencoder-decoder.shared_embedding = "
      "true\n[attention]\nheads = 4\n",
      "bench");
  const auto model = model::build_language_model(model::ModelConfig::read(config), {vocabulary_size}, device);
  model->parameters().initialise(1);
  if (argc > 3 && std::string_view(argv[3]) == "bf16") model->parameters().use_bf16_copies(true);
  search::SearchOptions options;
  options.beam = beam_size, options.max_length_b = options.min_length = length;
  std::vector<search::Sentence> batch(static_cast<size_t>(num_sentences));
  uint32_t state = 1;
  for (search::Sentence& s : batch) {
    for (int64_t i = 1; i < source_length; ++i) {
      state = state * 1664525 + 1013904223;
      s.source.push_back(3 + static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocabulary_size - 3)));
    }
    s.source.push_back(0);
  }
  const c10::NoGradGuard no_gradient;
  const nn::DecodingProducts products;
  search::beam_search(*model, batch, {0, 1}, options);  // warm-up
  for (int64_t round = 0; round < num_rounds; ++round) {
    const auto start_time = std::chrono::steady_clock::now();
    const auto results = search::beam_search(*model, batch, {0, 1}, options);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_time;
    std::printf("%.1f\n", static_cast<double>(num_sentences * (length + 1)) / seconds.count());
    std::fflush(stdout);
  }
}
