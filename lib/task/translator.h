// Translates sentences, or continues prefixes without a source. Results come in the order of the sentences, whatever
// the batches.
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
    f.field("max_source", max_source, "maximum length of a source in tokens, end token included; limited by the model",
            between(1, 1 << 20));
    f.field("truncate", truncate, "truncate longer sources instead of rejecting them");
    f.field("batch_tokens", batch_tokens, "source tokens in a batch, padding included; affects speed, not results",
            between(1, 1 << 24));
  }
};

// Describes the search: "beam 5, length penalty 1, at most 0·s + 200 tokens, at least 1"; or the sampling: "3 samples
// at temperature 1, length penalty 1, …".
std::string protocol_of(const search::SearchOptions& options, const search::SamplingOptions& sampling = {});

// The tokenizers of source and target, which must outlive this.
struct SideTokenizers {
  const text::Tokenizer *source, *target;
  SideTokenizers(const text::Tokenizers& both)  // NOLINT: the same without ownership
      : source(&both.of_source()), target(both.target.get()) {}
};

class Translator {
 public:
  // All arguments must outlive this. Throws Error(usage) for options that the model does not support.
  Translator(model::LanguageModel& model, const SideTokenizers& tokenizers, const TranslationOptions& options,
             const search::SamplingOptions& sampling = {});

  // Returns the name of a sentence for messages: "test.de:17".
  using Name = std::function<std::string(int64_t number)>;
  // Returns the hypotheses of each sentence, best first, or its samples; empty for sentences that a signal left out. A
  // source that holds only its end is not translated: its single hypothesis, or each of its samples, is the end, with
  // score 0. `done`: callback with the number of sentences so far; may be empty. Throws Error(input) for a source that
  // is too long, and for a prefix of an empty source.
  std::vector<std::vector<search::Hypothesis>> translate(std::vector<search::Sentence> sentences, const Name& name,
                                                         const std::function<void(int64_t done)>& done = {});

  // Return the tokens of a text, a source with its end; unknown tokens are counted. Throw Error(input) about `place`
  // for a text that contains the end-of-sentence token.
  std::vector<int32_t> source_of(std::string_view line, const std::string& place);
  std::vector<int32_t> prefix_of(std::string_view text, const std::string& place);
  // Returns a hypothesis as one line of UTF-8: control characters, which a model of bytes may write, become blanks, and
  // stray bytes U+FFFD.
  std::string text_of(const search::Hypothesis& hypothesis) const;

  void set_observer(attention::Observer* observer) {
    observer_ = observer;
  }  // observes each pass from now on; null: none
  const SideTokenizers& tokenizers() const { return tokenizers_; }
  int64_t truncated() const { return truncated_; }                 // truncated sources so far
  int64_t unknown() const { return unknown_; }                     // unknown tokens of sources given as text
  int64_t unknown_in_prefixes() const { return prefix_unknown_; }  // unknown tokens of prefixes

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

// Returns the text of a target as a reference for translations. Its unknown tokens become a character that no
// translation contains.
std::string reference_of(const text::Tokenizer& tokenizer, std::vector<int32_t> tokens);

// Translates the sources of all pairs, a few thousand at a time; `each` receives the hypotheses of every pair in order,
// and is not called for pairs that a signal left out. `shard`: name for messages.
void translate(Translator& translator, const data::Pairs& pairs, const std::string& shard,
               const std::function<void(int64_t pair, const std::vector<search::Hypothesis>&)>& each,
               const std::function<void(int64_t done, int64_t all)>& progress = {});

// Receives translations while they are scored; each member may be empty.
struct TranslationListener {
  // Called for each pair in order, with the text of its best hypothesis and the number of its tokens.
  std::function<void(const std::string& text, int64_t tokens)> each;
  std::function<void(int64_t done, int64_t all)> progress;  // in sentences
};

// Returns the statistics of BLEU over the translations of all pairs. `references`: a line for each pair; empty: the
// decoded targets of the pairs.
metrics::BleuStatistics compare_translations(Translator& translator, const data::Pairs& pairs, const std::string& shard,
                                             const metrics::BleuOptions& options,
                                             const std::vector<std::string_view>& references,
                                             const TranslationListener& listener = {});

// Returns BLEU of the translations of all pairs against their targets.
metrics::BleuScore bleu_of(Translator& translator, const data::Pairs& pairs, const std::string& shard,
                           const metrics::BleuOptions& options,
                           const std::function<void(int64_t done, int64_t all)>& progress = {});

}  // namespace mh::task
