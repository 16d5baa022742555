#include "search/generation.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/random.h"
#include "nn/aten.h"
#include "nn/packed_weights.h"
#include "nn/product.h"
#include "search/candidates.h"
#include "search/sampling.h"

namespace mh::search {

namespace {

struct Text {
  size_t prompt = 0;   // index of the prompt
  int64_t sample = 0;  // sample number
  RandomSequence random;
  std::vector<int32_t> tokens{};  // generated tokens
};

using Prompts = std::vector<std::vector<int32_t>>;

// Generates texts whose prompts have the same length, each text in a row of a batch.
class GenerationBatch {
 public:
  // `texts`: texts without tokens; texts of the same prompt are consecutive.
  GenerationBatch(model::LanguageModel& model, const Prompts& prompts, const std::vector<int32_t>& end_ids,
                  const GenerationOptions& options, std::vector<Text> texts)
      : model_(model), prompts_(prompts), end_ids_(end_ids), options_(options), live_texts_(std::move(texts)) {}

  // Returns the texts with their tokens, in any order.
  std::vector<Text> run() {
    state_ = model_.new_state();
    at::Tensor logits = prefill();
    while (true) {
      append_tokens(logits);
      remove_finished();
      if (live_texts_.empty()) return std::move(finished_texts_);
      at::Tensor tokens = at::empty({num_rows(), 1}, at::kLong);
      std::transform(live_texts_.begin(), live_texts_.end(), tokens.mutable_data_ptr<int64_t>(),
                     [](const Text& text) { return text.tokens.back(); });
      logits = next_logits(tokens);
    }
  }

 private:
  int64_t num_rows() const { return static_cast<int64_t>(live_texts_.size()); }

  // Returns the logits (R, V) fp32 of the next tokens after `tokens` (R, T), which continue the cached sequences.
  at::Tensor next_logits(const at::Tensor& tokens) {
    const at::Tensor hidden = model_.hidden(model::Input{tokens}.to(model_.parameters().device()), {}, state_.get());
    return model_.logits(hidden.narrow(1, tokens.size(1) - 1, 1)).flatten(0, 1);
  }

  // Runs the model on each prompt once and returns the logits (R, V) fp32 of the first token of each text.
  at::Tensor prefill() {
    std::vector<int64_t> prompt_tokens, prompt_rows;
    int64_t num_prompts = 0;
    for (size_t i = 0; i < live_texts_.size(); ++i) {
      if (const std::vector<int32_t>& prompt = prompts_[live_texts_[i].prompt];
          i == 0 || live_texts_[i].prompt != live_texts_[i - 1].prompt) {
        prompt_tokens.insert(prompt_tokens.end(), prompt.begin(), prompt.end());
        ++num_prompts;
      }
      prompt_rows.push_back(num_prompts - 1);
    }
    const at::Tensor logits = next_logits(at::tensor(prompt_tokens, at::kLong).view({num_prompts, -1}));
    if (num_prompts == num_rows()) return logits;
    const at::Tensor rows = at::tensor(prompt_rows, at::kLong);
    state_->reorder(rows);
    return logits.index_select(0, rows.to(logits.device()));
  }

  // Appends the next token to each text, selected as by sample_token() from logits (R, V).
  void append_tokens(const at::Tensor& logits) {
    const Candidates best = candidates_of(logits, {1, {}, {}});
    if (options_.temperature == 0) {
      for (size_t r = 0; r < live_texts_.size(); ++r) live_texts_[r].tokens.push_back(best.entries[r].front().index);
      return;
    }
    const at::Tensor x = logits.to(at::kCPU).contiguous();
    const auto vocab_size = static_cast<size_t>(x.size(1));
    at::parallel_for(0, num_rows(), 1, [&](int64_t begin, int64_t end) {
      for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r)
        live_texts_[r].tokens.push_back(sample_token({x.const_data_ptr<float>() + r * vocab_size, vocab_size},
                                                     options_.temperature, options_.top_k, live_texts_[r].random));
    });
  }

  bool is_finished(const Text& text) const {
    return static_cast<int64_t>(text.tokens.size()) == options_.length ||
           (options_.stop_at_end && std::count(end_ids_.begin(), end_ids_.end(), text.tokens.back()) > 0);
  }

  // Moves finished texts out of the batch. The last texts move to the rows of finished texts, so that little of the
  // cache is copied.
  void remove_finished() {
    std::vector<int64_t> old_rows(live_texts_.size());
    for (size_t r = 0; r < old_rows.size(); ++r) old_rows[r] = static_cast<int64_t>(r);
    for (size_t r = live_texts_.size(); r-- > 0;) {
      if (!is_finished(live_texts_[r])) continue;
      finished_texts_.push_back(std::move(live_texts_[r]));
      if (r + 1 < live_texts_.size()) live_texts_[r] = std::move(live_texts_.back());
      old_rows[r] = old_rows.back();
      live_texts_.pop_back();
      old_rows.pop_back();
    }
    if (!live_texts_.empty() && finished_texts_.size() > num_removed_) state_->reorder(at::tensor(old_rows, at::kLong));
    num_removed_ = finished_texts_.size();
  }

  model::LanguageModel& model_;
  const Prompts& prompts_;
  const std::vector<int32_t>& end_ids_;
  const GenerationOptions& options_;
  std::unique_ptr<model::DecodingState> state_;
  std::vector<Text> live_texts_;  // by row
  std::vector<Text> finished_texts_;
  size_t num_removed_ = 0;  // number of texts without a row in state_
};

// Returns whether all weights of matrix products can be packed.
bool can_pack_weights(model::LanguageModel& model) {
  const auto& parameters = model.parameters().all();
  return std::all_of(parameters.begin(), parameters.end(), [](const nn::Parameter& parameter) {
    return !parameter.traits().is_product_operand || nn::can_pack_weights(parameter.value().scalar_type());
  });
}

}  // namespace

void generate(model::LanguageModel& model, const std::vector<std::vector<int32_t>>& prompts,
              const std::vector<int32_t>& end_ids, const GenerationOptions& o, const GeneratedTextCallback& on_text) {
  const c10::NoGradGuard no_gradient;
  std::optional<nn::DecodingProducts> products;
  if (!model.parameters().device().is_cpu() || can_pack_weights(model)) products.emplace();
  std::vector<std::vector<size_t>>
      groups;  // indices of prompts of the same length, in the order of their first prompts
  std::map<size_t, size_t> group_of_length;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto [it, is_new] = group_of_length.try_emplace(prompts[i].size(), groups.size());
    if (is_new) groups.emplace_back();
    groups[it->second].push_back(i);
  }
  // Texts that wait for an earlier text. Key: index of the prompt, sample number.
  std::map<std::pair<size_t, int64_t>, std::vector<int32_t>> waiting_texts;
  std::pair<size_t, int64_t> next_text{0, 0};
  std::vector<Text> batch;
  const auto generate_batch = [&] {
    for (Text& text : GenerationBatch(model, prompts, end_ids, o, std::exchange(batch, {})).run())
      waiting_texts[{text.prompt, text.sample}] = std::move(text.tokens);
    for (auto it = waiting_texts.begin(); it != waiting_texts.end() && it->first == next_text;
         it = waiting_texts.erase(it)) {
      on_text(next_text.first, it->second);
      if (++next_text.second == o.samples) next_text = {next_text.first + 1, 0};
    }
  };
  for (const std::vector<size_t>& group : groups) {
    for (const size_t prompt : group)
      for (int64_t sample = 0; sample < o.samples; ++sample) {
        batch.push_back(
            {prompt, sample,
             RandomSequence(RandomStream(static_cast<uint64_t>(o.seed), "generate"), static_cast<uint32_t>(sample))});
        if (static_cast<int64_t>(batch.size()) == o.batch) generate_batch();
      }
    if (!batch.empty()) generate_batch();
  }
}

}  // namespace mh::search
