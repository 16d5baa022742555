// Generation compared with plain loops without a cache; independence of the batch, of the other prompts and of the
// number of threads; the end token.
#include "search/generation.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "fixtures/status.h"
#include "fixtures/translators.h"
#include "nn/aten.h"
#include "nn/packed_weights.h"
#include "search/sampling.h"

using namespace mh;
using namespace mh::search;

namespace {

using Texts = std::vector<std::vector<int32_t>>;

constexpr int32_t kEndId = 0;
constexpr int64_t kVocabularySize = 20;

const Texts kPrompts = {{0, 3, 4}, {0, 7}, {0, 5, 9}, {0, 2, 2, 8, 1, 4, 6, 3, 3, 11, 12}, {0, 3, 4}, {0, 8}};

const std::string kDecoder = "[model]\nlayers = 2\nwidth = 32\nffn_dim = 24\n[attention]\nheads = 2\n";
// A decoder of the Llama family.
const std::string kLlama =
    "[model]\nlayers = 2\nwidth = 64\nffn_dim = 40\nnorm_type = 'rms'\ngated_ffn = true\nffn_bias = false\n"
    "activation = 'silu'\npositions = 'none'\n"
    "[attention]\nheads = 4\nkey_value_heads = 2\nbias = false\ntransform = ['rotary']\n";

std::unique_ptr<model::LanguageModel> build(const std::string& toml) {
  return translators::build_model(toml, {kVocabularySize});
}

// Returns the texts of all prompts, in the order of the calls of on_text, which must be the order of the prompts.
Texts generate_texts(model::LanguageModel& model, const Texts& prompts, const GenerationOptions& options,
                     const std::vector<int32_t>& end_ids = {kEndId}) {
  Texts texts;
  generate(model, prompts, end_ids, options, [&](size_t prompt, const std::vector<int32_t>& tokens) {
    CHECK(prompt == texts.size() / static_cast<size_t>(options.samples));
    texts.push_back(tokens);
  });
  return texts;
}

// Returns a text by a forward pass over the whole sequence for each token.
std::vector<int32_t> reference_text(model::LanguageModel& model, const std::vector<int32_t>& prompt,
                                    const GenerationOptions& o, int64_t sample) {
  const c10::NoGradGuard no_gradient;
  RandomSequence random(RandomStream(static_cast<uint64_t>(o.seed), "generate"), static_cast<uint32_t>(sample));
  std::vector<int64_t> sequence(prompt.begin(), prompt.end());
  std::vector<int32_t> tokens;
  while (static_cast<int64_t>(tokens.size()) < o.length &&
         !(o.stop_at_end && !tokens.empty() && tokens.back() == kEndId)) {
    const at::Tensor hidden = model.hidden(model::Input{at::tensor(sequence, at::kLong).unsqueeze(0)}, {});
    const at::Tensor logits = model.logits(hidden.narrow(1, hidden.size(1) - 1, 1)).flatten().contiguous();
    tokens.push_back(sample_token({logits.const_data_ptr<float>(), static_cast<size_t>(logits.numel())}, o.temperature,
                                  o.top_k, random));
    sequence.push_back(tokens.back());
  }
  return tokens;
}

// Returns a token sampled by sorting all logits, and the cumulative sum of their weights in this order.
int32_t reference_sample(const std::vector<float>& logits, double temperature, int64_t top_k, RandomSequence& random) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](int32_t token) { return static_cast<double>(logits[static_cast<size_t>(token)]); };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  if (temperature == 0) return order[0];
  if (top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(top_k)));
  std::vector<double> sums;
  for (const int32_t token : order)
    sums.push_back((sums.empty() ? 0 : sums.back()) + std::exp((logit(token) - logit(order[0])) / temperature));
  const auto it = std::upper_bound(sums.begin(), sums.end(), random.uniform() * sums.back());
  return order[static_cast<size_t>(std::min(it, sums.end() - 1) - sums.begin())];
}

}  // namespace

TEST_CASE("a sampled token equals the token of a complete sort, for each seed, temperature, top_k and kind of logits",
          "[generation]") {
  RandomSequence random(RandomStream(11, "logits"));
  for (int trial = 0; trial < 400; ++trial) {
    std::vector<float> logits(1 + random.uniform_below(trial % 20 == 0 ? 3000 : 150));
    const int kind = trial % 4;  // normal, equal, with ties, with excluded tokens
    for (float& logit : logits) {
      const auto x = static_cast<float>(3 * random.normal());
      logit = kind == 1                             ? 2
              : kind == 2                           ? std::round(x)
              : kind == 3 && random.uniform() < 0.5 ? -std::numeric_limits<float>::infinity()
                                                    : x;
    }
    logits[random.uniform_below(logits.size())] = 1;
    for (const double temperature : {0.0, 0.01, 1.0, 4.0})
      for (const int64_t top_k : {0, 1, 7, 64, 100, 5000}) {
        INFO("kind " << kind << ", " << logits.size() << " logits, temperature " << temperature << ", top_k " << top_k);
        RandomSequence sequence(RandomStream(5, "draws"), static_cast<uint32_t>(trial)), reference_sequence = sequence;
        for (int draw = 0; draw < 5; ++draw)
          if (const int32_t token = sample_token(logits, temperature, top_k, sequence),
              expected = reference_sample(logits, temperature, top_k, reference_sequence);
              token != expected)
            FAIL("drew " << token << " instead of " << expected);
      }
  }
}

TEST_CASE("generation with and without a cache gives equal texts, for each prompt, sample, temperature and backbone",
          "[generation]") {
  for (const std::string& toml :
       {kDecoder, kLlama, kDecoder + "mixer = 'mixhead-b'\n", kDecoder + "normaliser = 'sigsoftmax'\nwindow = 4\n",
        std::string("[model]\nbackbone = 'transformer-xl'\npositions = 'none'\nlayers = 2\nwidth = 32\nffn_dim = 24\n"
                    "transformer-xl.memory = 40\n[attention]\nheads = 2\nscore = 'relative'\n")}) {
    INFO(toml);
    const auto model = build(toml);
    for (const double temperature : {0.0, 1.0, 2.0}) {
      GenerationOptions options;
      options.length = 12, options.temperature = temperature, options.samples = 3, options.seed = 5, options.batch = 4;
      options.top_k = temperature == 2 ? 6 : 0, options.stop_at_end = temperature == 1;
      Texts expected;
      for (const auto& prompt : kPrompts)
        for (int64_t sample = 0; sample < options.samples; ++sample)
          expected.push_back(reference_text(*model, prompt, options, sample));
      CHECK(generate_texts(*model, kPrompts, options) == expected);
    }
  }
}

TEST_CASE("a text depends neither on its batch, nor on the other prompts, nor on the number of threads",
          "[generation]") {
  const int initial_num_threads = at::get_num_threads();
  for (const std::string& toml : {kDecoder, kLlama})
    for (const bool bf16 : {false, true}) {
      INFO(toml << "bf16 " << bf16);
      if (!nn::can_pack_weights(bf16 ? at::kBFloat16 : at::kFloat)) continue;  // texts are equal up to rounding only
      const auto model = build(toml);
      model->parameters().use_bf16_copies(bf16);
      model->parameters().refresh_bf16_copies();
      GenerationOptions options;
      options.length = 12, options.samples = 3, options.batch = 1;
      const Texts expected = generate_texts(*model, kPrompts, options);
      std::set<std::vector<int32_t>> distinct_texts(expected.begin(), expected.end());
      CHECK(distinct_texts.size() == expected.size() - 3);  // two of the prompts are equal
      for (const int num_threads : {1, 3})
        for (const int64_t batch : {1, 5, 64}) {
          INFO(num_threads << " threads, batches of " << batch);
          at::set_num_threads(num_threads);
          options.batch = batch;
          CHECK(generate_texts(*model, kPrompts, options) == expected);
          CHECK(generate_texts(*model, {kPrompts[3]}, options) == Texts(expected.begin() + 9, expected.begin() + 12));
        }
      at::set_num_threads(initial_num_threads);
    }
}

TEST_CASE("with stop_at_end a text ends with its first end token, and the other texts are unchanged", "[generation]") {
  const auto model = build(kLlama);
  GenerationOptions options;
  options.length = 20, options.samples = 4;
  Texts expected = generate_texts(*model, kPrompts, options);
  int64_t num_stopped = 0;
  for (auto& text : expected) {
    CHECK(static_cast<int64_t>(text.size()) == options.length);
    const auto end = std::find(text.begin(), text.end(), kEndId);
    if (end == text.end()) continue;
    text.erase(end + 1, text.end());
    ++num_stopped;
  }
  CHECK(num_stopped > 4);
  CHECK(num_stopped < static_cast<int64_t>(expected.size()));
  options.stop_at_end = true;
  for (const int64_t batch : {1, 3, 64}) {
    options.batch = batch;
    CHECK(generate_texts(*model, kPrompts, options) == expected);
  }
}

TEST_CASE("with stop_at_end a text ends with the first of several end tokens", "[generation]") {
  const auto model = build(kLlama);
  GenerationOptions options;
  options.length = 20, options.samples = 4;
  Texts expected = generate_texts(*model, kPrompts, options);
  const std::vector<int32_t> end_ids{7, kEndId, 7, 13, 1000};  // the model has no token 1000
  std::set<int32_t> last_tokens;
  for (auto& text : expected) {
    const auto end = std::find_first_of(text.begin(), text.end(), end_ids.begin(), end_ids.end());
    if (end == text.end()) continue;
    text.erase(end + 1, text.end());
    last_tokens.insert(text.back());
  }
  CHECK(last_tokens.size() == 3);
  options.stop_at_end = true;
  CHECK(generate_texts(*model, kPrompts, options, end_ids) == expected);
  options.stop_at_end = false;
  for (const auto& text : generate_texts(*model, kPrompts, options, end_ids))
    CHECK(static_cast<int64_t>(text.size()) == options.length);
}

TEST_CASE("no prompts give no texts, and logits that are not finite are an error", "[generation]") {
  const auto model = build(kDecoder);
  CHECK(generate_texts(*model, {}, {}).empty());
  {
    const c10::NoGradGuard no_gradient;
    for (nn::Parameter& p : model->parameters().all()) p.master().fill_(std::numeric_limits<float>::quiet_NaN());
  }
  for (const double temperature : {0.0, 1.0}) {
    GenerationOptions options;
    options.temperature = temperature;
    CHECK(status_of([&] { generate_texts(*model, kPrompts, options); }) == 1);
  }
}
