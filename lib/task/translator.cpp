#include "task/translator.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "distributed/ordered_work.h"
#include "nn/product.h"

namespace mh::task {

namespace {

constexpr int64_t kSortedPairs = 4096;  // number of pairs that are sorted by length together

// U+E000, a private-use character, which replaces unknown tokens in references: BLEU's tokenisation neither splits nor
// drops it, and translations of text without private-use characters do not contain it.
constexpr const char* kUnknownInReference = "\xEE\x80\x80";

// Appends the tokens of `text` to `tokens`. Returns the number of unknown tokens in `tokens`. Throws Error(input) about
// `location` if the text contains the end-of-line token.
int64_t encode(const text::Tokenizer& tokenizer, text::Encoder& encoder, std::string_view text,
               const std::string& location, std::vector<int32_t>& tokens) {
  encoder.encode(text, tokens);
  if (const int32_t end = tokenizer.end_of_line_id(); std::count(tokens.begin(), tokens.end(), end) > 0)
    refuse_input(location, "text without the end-of-line token", "'" + tokenizer.piece(end) + "' in the text",
                 "remove the token from the text");
  return std::count(tokens.begin(), tokens.end(), tokenizer.unknown_id());
}

std::string to_single_line(const std::string& text) {
  std::string line;
  for (std::string_view remaining_text = text; !remaining_text.empty();) {
    const size_t num_valid = std::min(find_invalid_utf8(remaining_text), remaining_text.size());
    for (char c : remaining_text.substr(0, num_valid))
      line += static_cast<unsigned char>(c) < ' ' || c == '\x7F' ? ' ' : c;
    if (num_valid == remaining_text.size()) break;
    line += "\xEF\xBF\xBD";
    remaining_text.remove_prefix(num_valid + 1);
  }
  return line;
}

// Convert the hypotheses of a batch of sentences to two tensors, and back. The int64 tensor lists for each sentence the
// number of its hypotheses, and for each hypothesis the number of its tokens and the tokens; the fp64 tensor lists
// `log_probability` and `score` of each hypothesis.
distributed::OrderedWork::Results to_results(const std::vector<std::vector<search::Hypothesis>>& hypotheses) {
  std::vector<int64_t> integers;
  std::vector<double> scores;
  for (const auto& sentence_hypotheses : hypotheses) {
    integers.push_back(static_cast<int64_t>(sentence_hypotheses.size()));
    for (const search::Hypothesis& h : sentence_hypotheses) {
      integers.push_back(static_cast<int64_t>(h.tokens.size()));
      integers.insert(integers.end(), h.tokens.begin(), h.tokens.end());
      scores.push_back(h.log_probability), scores.push_back(h.score);
    }
  }
  return {at::tensor(integers, at::kLong), at::tensor(scores, at::kDouble)};
}
std::vector<std::vector<search::Hypothesis>> to_hypotheses(const distributed::OrderedWork::Results& results) {
  const auto *integer = results[0].const_data_ptr<int64_t>(), *end = integer + results[0].numel();
  const auto* score = results[1].const_data_ptr<double>();
  std::vector<std::vector<search::Hypothesis>> hypotheses;
  while (integer != end) {
    auto& sentence_hypotheses = hypotheses.emplace_back(static_cast<size_t>(*integer++));
    for (search::Hypothesis& h : sentence_hypotheses) {
      const int64_t num_tokens = *integer++;
      h.tokens.assign(integer, integer + num_tokens);
      integer += num_tokens;
      h.log_probability = *score++, h.score = *score++;
    }
  }
  return hypotheses;
}

}  // namespace

std::string describe_decoding(const search::SearchOptions& options, const search::SamplingOptions& sampling) {
  const std::string decoding =
      sampling.samples == 0
          ? str("beam ", options.beam)
          : str(count_of(sampling.samples, "sample"), " at temperature ", shortest_decimal(sampling.temperature),
                sampling.top_k > 0 ? str(" of the ", sampling.top_k, " likeliest") : "");
  return str(decoding, ", length penalty ", shortest_decimal(options.length_penalty), ", hypotheses of ",
             options.min_length, " to ", shortest_decimal(options.max_length_a), "·x + ",
             count_of(options.max_length_b, "token"), " (x: source length)",
             options.no_unknown ? ", no unknown tokens" : "");
}

Translator::Translator(model::LanguageModel& model, const SourceTargetTokenizers& tokenizers,
                       const TranslationOptions& options, const search::SamplingOptions& sampling)
    : model_(model),
      tokenizers_(tokenizers),
      options_(options),
      sampling_(sampling),
      source_encoder_(tokenizers.source->encoder()),
      target_encoder_(tokenizers.target->encoder()) {
  options.search.check(model);
  model.new_state();  // throws Error(usage) if a stage does not support incremental decoding
  if (const int64_t bound = model.max_length(); bound > 0)
    options_.max_source_tokens = std::min(options_.max_source_tokens, bound);
}

std::vector<int32_t> Translator::encode_source(std::string_view line, const std::string& location) {
  std::vector<int32_t> tokens;
  num_unknown_ += encode(*tokenizers_.source, *source_encoder_, line, location, tokens);
  tokens.push_back(tokenizers_.source->end_of_line_id());
  return tokens;
}

std::vector<int32_t> Translator::encode_prefix(std::string_view text, const std::string& location) {
  std::vector<int32_t> tokens;
  num_unknown_in_prefixes_ += encode(*tokenizers_.target, *target_encoder_, text, location, tokens);
  return tokens;
}

std::string Translator::text_of(const search::Hypothesis& h) const {
  return to_single_line(tokenizers_.target->decode(std::span(h.tokens).first(h.tokens.size() - 1)));
}

void Translator::truncate_source(search::Sentence& s, const NameFunction& name) {
  const auto length = static_cast<int64_t>(s.source.size());
  if (length <= options_.max_source_tokens) return;
  if (!options_.truncate)
    refuse_input(name(s.index),
                 str("a source of at most ", count_of(options_.max_source_tokens, "token"), ", end token included"),
                 str(length),
                 "split the sentence, raise --max-source up to the limit of the model, or pass --truncate");
  const int32_t end = s.source.back();
  s.source.resize(static_cast<size_t>(options_.max_source_tokens));
  s.source.back() = end;
  ++num_truncated_;
}

std::vector<std::vector<search::Hypothesis>> Translator::translate(
    std::vector<search::Sentence> sentences, const NameFunction& name,
    const std::function<void(int64_t num_completed)>& on_progress) {
  for (search::Sentence& s : sentences) truncate_source(s, name);
  const search::SpecialTokens special_tokens{tokenizers_.target->end_of_line_id(), tokenizers_.target->unknown_id(),
                                             model_.start_token()};
  std::vector<std::vector<search::Hypothesis>> translations(sentences.size());
  std::vector<size_t> order;
  for (size_t i = 0; i < sentences.size(); ++i) {
    if (!model_.has_encoder() || sentences[i].source.size() > 1) {
      order.push_back(i);
      continue;
    }
    if (!sentences[i].prefix.empty())
      refuse_input(name(sentences[i].index), "a sentence, since the prefix file has a prefix for this line",
                   "an empty line", "leave this line of the prefix file empty");
    translations[i].resize(static_cast<size_t>(std::max<int64_t>(1, sampling_.samples)),
                           search::Hypothesis{{special_tokens.end_id}, 0, 0});
  }
  const auto source_length = [&](size_t i) { return sentences[i].source.size(); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return source_length(a) > source_length(b); });
  auto num_completed = static_cast<int64_t>(sentences.size() - order.size());
  const c10::NoGradGuard no_gradient;
  const nn::DecodingProducts products;  // packs the weights once for all batches instead of once per batch
  distributed::OrderedWork work(group_);
  size_t order_index = 0;
  for (int64_t unit = 0; order_index < order.size() && !work.is_stopped(); ++unit) {
    const size_t max_length = std::max<size_t>(1, source_length(order[order_index]));
    const size_t num_rows = std::max<size_t>(1, static_cast<size_t>(options_.batch_tokens) / max_length);
    const std::vector<size_t> batch_indices(
        order.begin() + static_cast<int64_t>(order_index),
        order.begin() + static_cast<int64_t>(std::min(order.size(), order_index + num_rows)));
    order_index += batch_indices.size();
    const auto compute = [&] {
      std::vector<search::Sentence> batch;
      batch.reserve(batch_indices.size());
      for (size_t i : batch_indices) batch.push_back(std::move(sentences[i]));
      return to_results(search::beam_search(model_, batch, special_tokens, options_.search, sampling_, observer_));
    };
    work.add(unit, compute, [&, batch_indices](const distributed::OrderedWork::Results& results) {
      auto batch_hypotheses = to_hypotheses(results);
      for (size_t i = 0; i < batch_indices.size(); ++i) translations[batch_indices[i]] = std::move(batch_hypotheses[i]);
      num_completed += static_cast<int64_t>(batch_indices.size());
      if (on_progress) on_progress(num_completed);
    });
  }
  if (!work.is_stopped()) work.finish();
  is_stopped_ = work.is_stopped();
  return translations;
}

std::string decode_reference(const text::Tokenizer& tokenizer, std::vector<int32_t> tokens) {
  if (!tokens.empty() && tokens.back() == tokenizer.end_of_line_id()) tokens.pop_back();
  std::string text = tokenizer.decode(tokens);
  const std::vector<int32_t> unknown{tokenizer.unknown_id()};
  if (std::find(tokens.begin(), tokens.end(), unknown[0]) == tokens.end()) return text;
  const std::string unknown_text = trim(tokenizer.decode(unknown));
  for (size_t position = text.find(unknown_text); position != std::string::npos;
       position = text.find(unknown_text, position))
    text.replace(position, unknown_text.size(), kUnknownInReference);
  return text;
}

void translate(Translator& translator, const data::Pairs& pairs, const std::string& shard,
               const std::function<void(int64_t, const std::vector<search::Hypothesis>&)>& on_pair,
               const std::function<void(int64_t, int64_t)>& on_progress) {
  for (int64_t begin = 0; begin < pairs.size() && !translator.is_stopped(); begin += kSortedPairs) {
    const int64_t end = std::min(pairs.size(), begin + kSortedPairs);
    std::vector<search::Sentence> sentences;
    for (int64_t pair = begin; pair < end; ++pair) sentences.push_back({pairs.source(pair), {}, pair});
    const auto translations = translator.translate(
        std::move(sentences), [&](int64_t index) { return str(shard, ", pair ", index + 1); },
        [&](int64_t num_completed) {
          if (on_progress) on_progress(begin + num_completed, pairs.size());
        });
    for (int64_t pair = begin; pair < end; ++pair)
      if (const auto& hypotheses = translations[static_cast<size_t>(pair - begin)]; !hypotheses.empty())
        on_pair(pair, hypotheses);
  }
}

metrics::BleuStatistics bleu_statistics_of(Translator& translator, const data::Pairs& pairs, const std::string& shard,
                                           const metrics::BleuOptions& options,
                                           const std::vector<std::string_view>& references,
                                           const TranslationCallbacks& callbacks) {
  metrics::Bleu bleu(options);
  metrics::BleuStatistics sum;
  translate(
      translator, pairs, shard,
      [&](int64_t pair, const std::vector<search::Hypothesis>& hypotheses) {
        const std::string hypothesis = translator.text_of(hypotheses[0]);
        const std::string decoded_reference =
            references.empty() ? decode_reference(*translator.tokenizers().target, pairs.target(pair)) : std::string();
        const std::string_view reference =
            references.empty() ? std::string_view(decoded_reference) : references[static_cast<size_t>(pair)];
        sum += bleu.statistics(hypothesis, {&reference, 1});
        if (callbacks.on_translation)
          callbacks.on_translation(hypothesis, static_cast<int64_t>(hypotheses[0].tokens.size()));
      },
      callbacks.on_progress);
  return sum;
}

metrics::BleuScore bleu_of(Translator& translator, const data::Pairs& pairs, const std::string& shard,
                           const metrics::BleuOptions& options,
                           const std::function<void(int64_t, int64_t)>& on_progress) {
  return metrics::bleu_score(bleu_statistics_of(translator, pairs, shard, options, {}, {{}, on_progress}), options,
                             metrics::BleuScope::corpus);
}

}  // namespace mh::task
