// Translates sentences, or writes on from nothing but a prefix: in the order in which they come, whatever the batches.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "data/pairs.h"
#include "metrics/bleu.h"
#include "search/beam_search.h"
#include "text/tokenizers.h"

namespace mh::task {

struct TranslationOptions {
  search::SearchOptions search;
  int64_t max_source = 1024;
  bool truncate = false;
  int64_t batch_tokens = 1024;
  void describe(Fields& f) {
    f.section("", search);
    f.field("max_source", max_source, "tokens of a source at most, its end included, and no more than the model takes",
            between(1, 1 << 20));
    f.field("truncate", truncate, "cut longer sources off instead of refusing them");
    f.field("batch_tokens", batch_tokens,
            "source tokens at once, each source filled up to the longest beside it. Changes speed, not what is found",
            between(1, 1 << 24));
  }
};

// How sources are searched, in words: "beam 5, length penalty 1, at most 0·s + 200 tokens, at least 1"; or how samples
// are drawn: "3 samples at temperature 1, length penalty 1, …".
std::string protocol_of(const search::SearchOptions& options, const search::SamplingOptions& sampling = {});

// The tokenizers of source and target, which must outlive it.
struct SideTokenizers {
  const text::Tokenizer *source, *target;
  SideTokenizers(const text::Tokenizers& both)  // NOLINT: the same without ownership
      : source(&both.of_source()), target(both.target.get()) {}
};

class Translator {
 public:
  // What it is given must outlive it. Error(usage) for options that the model cannot serve.
  Translator(model::LanguageModel& model, const SideTokenizers& tokenizers, const TranslationOptions& options,
             const search::SamplingOptions& sampling = {});

  // What `name` is of a sentence, for messages: "test.de:17".
  using Name = std::function<std::string(int64_t number)>;
  // Of each sentence the hypotheses, best first, or samples; empty where a signal ended it early. One whose source is
  // only its end is not translated: it has one hypothesis (or each of its samples is), the end, of score 0. `done`:
  // sentences so far; may be left out. Error(input) for a source that is too long, and for a prefix where there is
  // nothing to translate.
  std::vector<std::vector<search::Hypothesis>> translate(std::vector<search::Sentence> sentences, const Name& name,
                                                         const std::function<void(int64_t done)>& done = {});

  // Of text, the first with its end; what is unknown in them is counted. Error(input), at `place`, for text that holds
  // the token that ends a sentence.
  std::vector<int32_t> source_of(std::string_view line, const std::string& place);
  std::vector<int32_t> prefix_of(std::string_view text, const std::string& place);
  // One line of UTF-8: a control character that a model of bytes has written is a blank, a stray byte is U+FFFD.
  std::string text_of(const search::Hypothesis& hypothesis) const;

  void show_to(attention::Observer* observer) { observer_ = observer; }  // each pass from now on; null: to none
  const SideTokenizers& tokenizers() const { return tokenizers_; }
  int64_t truncated() const { return truncated_; }                 // sources so far
  int64_t unknown() const { return unknown_; }                     // tokens of sources given as text
  int64_t unknown_in_prefixes() const { return prefix_unknown_; }  // of prefixes

 private:
  void fit(search::Sentence& sentence, const Name& name);
  model::LanguageModel& model_;
  SideTokenizers tokenizers_;
  TranslationOptions options_;
  search::SamplingOptions sampling_;
  attention::Observer* observer_ = nullptr;
  std::unique_ptr<text::Encoder> source_encoder_, target_encoder_;
  int64_t truncated_ = 0, unknown_ = 0, prefix_unknown_ = 0;
};

// The text of a target, to be compared with a translation: what stands for its unknown tokens is in no translation.
std::string reference_of(const text::Tokenizer& tokenizer, std::vector<int32_t> tokens);

// Translates all pairs' sources, a few thousand at a time; `each` gets every pair's hypotheses in their order, and is
// not called for those that a signal leaves out. `shard` stands in messages.
void translate(Translator& translator, const data::Pairs& pairs, const std::string& shard,
               const std::function<void(int64_t pair, const std::vector<search::Hypothesis>&)>& each,
               const std::function<void(int64_t done, int64_t all)>& progress = {});

// Receives translations while they are scored; each member may be left out.
struct TranslationListener {
  // Of each pair in its order: the text of its best hypothesis, and how many tokens that has.
  std::function<void(const std::string& text, int64_t tokens)> each;
  std::function<void(int64_t done, int64_t all)> progress;  // in sentences
};

// Sums for BLEU of all pairs' translations. `references`: a line for each pair; empty: the pairs' targets, decoded.
metrics::BleuStatistics compare_translations(Translator& translator, const data::Pairs& pairs, const std::string& shard,
                                             const metrics::BleuOptions& options,
                                             const std::vector<std::string_view>& references,
                                             const TranslationListener& listener = {});

// BLEU of all pairs' translations, against their targets.
metrics::BleuScore bleu_of(Translator& translator, const data::Pairs& pairs, const std::string& shard,
                           const metrics::BleuOptions& options,
                           const std::function<void(int64_t done, int64_t all)>& progress = {});

}  // namespace mh::task
