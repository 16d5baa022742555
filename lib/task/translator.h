// Translates sentences or, with a model that has no encoder, continues prefixes. Results are in the order of the input
// sentences, although batches are formed by length.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "data/pairs.h"
#include "distributed/group.h"
#include "metrics/bleu.h"
#include "search/beam_search.h"
#include "text/tokenizers.h"

namespace mh::task {

struct TranslationOptions {
  search::SearchOptions search;
  int64_t max_source_tokens = 1024;
  bool truncate = false;
  int64_t batch_tokens = 1024;
  void describe(Fields& f) {
    f.section("", search);
    f.field("max_source", max_source_tokens,
            "maximum length of a source in tokens, end token included; longer sources are an error unless --truncate "
            "is given; the model may impose a lower maximum",
            between(1, 1 << 20));
    f.field("truncate", truncate, "truncate sources above the maximum length instead of rejecting them");
    f.field("batch_tokens", batch_tokens,
            "maximum number of source tokens in a batch of beam search or sampling, padding included; affects speed, "
            "not results",
            between(1, 1 << 24));
  }
};

// Options of scores that compare decoded text with references.
struct DecodingOptions {
  TranslationOptions translation;
  metrics::BleuOptions bleu;  // options of tokenisation, case and smoothing
  void describe(Fields& f) {
    f.section("", translation);
    f.section("", bleu);
  }
  // Throws Error(usage) for options that contradict each other. `section`: section of the options, for messages; empty:
  // they are options of the command line.
  void check(const std::string& section = "") const { bleu.check(section); }
  // Returns the BLEU signature (metrics/bleu.h) for these options and one reference for each sentence.
  std::string signature() const { return metrics::bleu_signature(bleu, 1, metrics::BleuScope::corpus); }
};

// Describes the decoding options in words: for beam search, "beam 5, length penalty 1, hypotheses of 1 to 0·x + 200
// tokens (x: source length)"; for sampling, "3 samples at temperature 1, length penalty 1, …".
std::string describe_decoding(const search::SearchOptions& options, const search::SamplingOptions& sampling = {});

// Non-owning pointers to the tokenizers of source and target. The tokenizers must outlive this object.
struct SourceTargetTokenizers {
  const text::Tokenizer *source, *target;
  explicit SourceTargetTokenizers(const text::Tokenizers& tokenizers)
      : source(&tokenizers.source_or_target()), target(tokenizers.target.get()) {}
};

class Translator {
 public:
  // The model and the tokenizers must outlive the translator. Throws Error(usage) for options that the model does not
  // support.
  Translator(model::LanguageModel& model, const SourceTargetTokenizers& tokenizers, const TranslationOptions& options,
             const search::SamplingOptions& sampling = {});

  // Returns the name of the sentence with search::Sentence::index `index`, for error messages: "test.de:17".
  using NameFunction = std::function<std::string(int64_t index)>;
  // Returns for each sentence the hypotheses, best first, or the samples; after a stop signal, an empty vector for
  // sentences that are not translated. With an encoder, an empty sentence, whose source is only the end token, is
  // not passed to the model: its single hypothesis, or each sample, is the end token with score 0. `on_progress`
  // receives the number of sentences translated so far; may be empty. Throws Error(input) for an empty
  // sentence with a prefix, and for a source of more than `max_source_tokens` tokens if TranslationOptions::truncate is
  // false.
  std::vector<std::vector<search::Hypothesis>> translate(
      std::vector<search::Sentence> sentences, const NameFunction& name,
      const std::function<void(int64_t num_completed)>& on_progress = {});

  // Returns the tokens of a source sentence, end token included, and adds the number of unknown tokens to
  // num_unknown(). Throws Error(input) about `location` if the line contains the end-of-line token.
  std::vector<int32_t> encode_source(std::string_view line, const std::string& location);
  // Returns the tokens of a target prefix, without an end token, and adds the number of unknown tokens to
  // num_unknown_in_prefixes(). Throws Error(input) about `location` if the text contains the end-of-line token.
  std::vector<int32_t> encode_prefix(std::string_view text, const std::string& location);
  // Returns the text of a hypothesis as one line of UTF-8. Control characters, which a byte-level model may produce,
  // become blanks; invalid bytes become U+FFFD.
  std::string text_of(const search::Hypothesis& hypothesis) const;

  // Sets the observer of all later forward passes; null: no observer.
  void set_observer(attention::Observer* observer) { observer_ = observer; }
  // Sets the processes that share the batches of translate(); null: one process. Every process calls translate() with
  // the same sentences and receives the same hypotheses. With several processes the observer must be null.
  void set_group(const distributed::Group* group) { group_ = group; }
  // Returns whether a stop signal ended the last translate() early, in all processes.
  bool is_stopped() const { return is_stopped_; }
  const SourceTargetTokenizers& tokenizers() const { return tokenizers_; }
  // Returns the number of sources truncated so far.
  int64_t num_truncated() const { return num_truncated_; }
  // Returns the number of unknown tokens that encode_source() has counted so far.
  int64_t num_unknown() const { return num_unknown_; }
  // Returns the number of unknown tokens that encode_prefix() has counted so far.
  int64_t num_unknown_in_prefixes() const { return num_unknown_in_prefixes_; }

 private:
  // Truncates a source of more than `max_source_tokens` tokens, end token included. Throws Error(input) for such a
  // source if options_.truncate is false.
  void truncate_source(search::Sentence& sentence, const NameFunction& name);
  model::LanguageModel& model_;
  SourceTargetTokenizers tokenizers_;
  TranslationOptions options_;
  search::SamplingOptions sampling_;
  attention::Observer* observer_ = nullptr;
  const distributed::Group* group_ = nullptr;
  bool is_stopped_ = false;
  std::unique_ptr<text::Encoder> source_encoder_, target_encoder_;
  int64_t num_truncated_ = 0, num_unknown_ = 0, num_unknown_in_prefixes_ = 0;
};

// Decodes the tokens of a target to a reference text for BLEU. Unknown tokens become U+E000, a private-use character,
// so that they match no word of a translation.
std::string decode_reference(const text::Tokenizer& tokenizer, std::vector<int32_t> tokens);

// Translates the sources of all pairs. `on_pair` receives the hypotheses of every pair, in the order of the pairs;
// after a stop signal, `on_pair` is not called for pairs that are not translated. `shard`: name of the data in error
// messages.
void translate(Translator& translator, const data::Pairs& pairs, const std::string& shard,
               const std::function<void(int64_t pair, const std::vector<search::Hypothesis>&)>& on_pair,
               const std::function<void(int64_t num_completed, int64_t total)>& on_progress = {});

// Callbacks of bleu_statistics_of(); each may be empty.
struct TranslationCallbacks {
  // Called for each pair, in the order of the pairs. `text`: text of the first hypothesis, which is the best one in
  // beam search; `num_tokens`: number of its tokens, end token included.
  std::function<void(const std::string& text, int64_t num_tokens)> on_translation;
  std::function<void(int64_t num_completed, int64_t total)> on_progress;  // receives numbers of sentences
};

// Translates all pairs and returns the BLEU statistics, summed over the pairs. `references`: one for each pair; empty:
// the references are the detokenised targets of the pairs (decode_reference()).
metrics::BleuStatistics bleu_statistics_of(Translator& translator, const data::Pairs& pairs, const std::string& shard,
                                           const metrics::BleuOptions& options,
                                           const std::vector<std::string_view>& references,
                                           const TranslationCallbacks& callbacks = {});

// Translates all pairs and returns the corpus BLEU against the detokenised targets of the pairs (decode_reference()).
metrics::BleuScore bleu_of(Translator& translator, const data::Pairs& pairs, const std::string& shard,
                           const metrics::BleuOptions& options,
                           const std::function<void(int64_t num_completed, int64_t total)>& on_progress = {});

}  // namespace mh::task
