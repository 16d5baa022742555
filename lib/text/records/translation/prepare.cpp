// mh-prep translation: converts pairs of lines to a translation shard.

#include "base/error.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "text/records/preparation.h"
#include "text/records/translation.h"
#include "text/tokenizers.h"

namespace mh::text {

using namespace mh::io;
using nlohmann::ordered_json;

namespace {

struct TranslationOptions {
  std::string vocabulary_path, source_vocabulary_path, target_vocabulary_path;
  PairFilters filters;
  EncodingThreads threads;
  void describe(Fields& f) {
    f.field("vocab", vocabulary_path,
            "joint vocabulary of source and target, or a translation model, whose vocabularies are used");
    f.field("source_vocab", source_vocabulary_path, "vocabulary of the source; requires --target-vocab");
    f.field("target_vocab", target_vocabulary_path, "vocabulary of the target; requires --source-vocab");
    f.section("", filters);
    f.section("", threads);
  }
};

void check(const PrepArguments& arguments, const TranslationOptions& options) {
  const bool has_side_vocabularies = !options.source_vocabulary_path.empty() || !options.target_vocabulary_path.empty();
  if (!options.vocabulary_path.empty() && has_side_vocabularies)
    refuse_usage("--vocab", "either --vocab, or --source-vocab and --target-vocab",
                 str("--vocab with ", options.source_vocabulary_path.empty() ? "--target-vocab" : "--source-vocab"),
                 "give --vocab alone if source and target share a vocabulary");
  const char* missing_option = options.source_vocabulary_path.empty() ? "--source-vocab" : "--target-vocab";
  if (has_side_vocabularies && (options.source_vocabulary_path.empty() || options.target_vocabulary_path.empty()))
    refuse_usage(missing_option, "both --source-vocab and --target-vocab", str("no ", missing_option),
                 str("add ", missing_option, ", or give --vocab alone if source and target share a vocabulary"));
  if (!has_side_vocabularies && options.vocabulary_path.empty())
    refuse_usage("--vocab", "a vocabulary", "none", "make a vocabulary with mh-prep vocab, and give --vocab FILE");
  if (arguments.inputs.size() > 2)
    refuse_usage("inputs", "two files, or one file of tab-separated pairs", count_of(arguments.inputs.size(), "file"),
                 "name one source file and one target file");
  if (arguments.inputs.size() == 2 && arguments.inputs[0] == "-" && arguments.inputs[1] == "-")
    refuse_usage("inputs", "standard input for at most one file", "standard input for source and target",
                 "give a single - and write tab-separated pairs to standard input");
  options.filters.check();
}

// Returns the numbers of dropped pairs by reason, such as "3 empty, 12 long".
std::string dropped_text(const std::map<std::string, uint64_t>& num_dropped) {
  std::vector<std::string> texts;
  texts.reserve(num_dropped.size());
  for (const auto& [reason, num_pairs] : num_dropped)
    texts.push_back(with_commas(static_cast<int64_t>(num_pairs)) + " " + reason);
  return join(texts, ", ");
}

// Returns advice for files of which every pair is dropped.
std::string advice_on(const std::map<std::string, uint64_t>& num_dropped) {
  static const std::map<std::string, std::string> kAdviceByReason{{"empty", "fill the empty lines"},
                                                                  {"short", "lower --min-length"},
                                                                  {"long", "raise --max-length"},
                                                                  {"ratio", "raise --max-ratio"}};
  std::vector<std::string> texts;
  texts.reserve(num_dropped.size());
  for (const auto& [reason, num_pairs] : num_dropped) texts.push_back(kAdviceByReason.at(reason));
  return join(texts, ", or ");
}

std::string text_of_counts(const std::array<uint64_t, 2>& counts) {
  return with_commas(static_cast<int64_t>(counts[0])) + " + " + with_commas(static_cast<int64_t>(counts[1]));
}

void make_translation(const PrepArguments& arguments, const TranslationOptions& options) {
  check(arguments, options);
  const bool has_joint_vocabulary = !options.vocabulary_path.empty();
  const std::string source_path = has_joint_vocabulary ? options.vocabulary_path : options.source_vocabulary_path,
                    target_path = has_joint_vocabulary ? options.vocabulary_path : options.target_vocabulary_path;
  refuse_output_onto(arguments, {source_path, target_path});
  Tokenizers tokenizers = load_tokenizers(target_path);
  if (!has_joint_vocabulary) tokenizers.source = load_tokenizer(source_path);
  const Tokenizer &target = *tokenizers.target, &source = tokenizers.source_or_target();
  PairBatches text(arguments.inputs, line_ends(arguments, false));

  ShardHeader header = header_of(target);
  // Two equal vocabularies are stored once, as a joint vocabulary.
  if (source.fingerprint() != target.fingerprint()) {
    header.source_vocabulary_size = source.size();
    header.source_fingerprint = source.fingerprint();
    header.source_tokenizer = source.serialize();
  }
  header.set_kind(kPairsKind);
  ordered_json provenance{{"tool", str("mh-prep ", version())}, {"inputs", arguments.inputs}};
  if (has_joint_vocabulary) provenance["vocabulary"] = options.vocabulary_path;
  else
    provenance["source_vocabulary"] = options.source_vocabulary_path,
    provenance["target_vocabulary"] = options.target_vocabulary_path;
  provenance.update({{"crlf", arguments.crlf_handling},
                     {"min_length", options.filters.min_length},
                     {"max_length", options.filters.max_length},
                     {"max_ratio", options.filters.max_ratio},
                     {"empty", options.filters.empty_handling}});
  header.provenance =
      provenance.dump(-1, ' ', false, ordered_json::error_handler_t::replace);  // file names may contain any bytes

  PairSummary summary;
  write_shard(arguments, header, [&](ShardWriter& writer) {
    summary = encode_pairs(text, source, target, options.filters, options.threads.num_threads(), writer);
    if (summary.num_pairs > 0) return;
    if (summary.num_dropped.empty())
      refuse_empty_inputs(arguments, "pairs of lines", "name a file with at least one pair");
    refuse_inputs(arguments, "at least one pair that no filter drops",
                  "only dropped pairs: " + dropped_text(summary.num_dropped), advice_on(summary.num_dropped));
  });
  log_removed_bytes(text.num_normalised_lines(), text.num_byte_order_marks());
  if (!summary.num_dropped.empty()) log_info("pairs dropped: " + dropped_text(summary.num_dropped));
  log_info(str(count_with_commas(summary.num_pairs, "pair"), ", ", text_of_counts(summary.num_tokens), " tokens, ",
               text_of_counts(summary.num_unknown), " unknown (source + target), ",
               format_throughput(summary.num_bytes, summary.seconds)));
}

class TranslationPreparation : public PreparationWithOptions<TranslationOptions, make_translation> {
 public:
  std::string inputs_help() const override {
    return "two text files of corresponding lines, source and target, or one file of lines 'source, tab, target' as "
           "written by paste(1)";
  }
};

const Registration<TranslationPreparation> translation_entry(preparations(), "translation",
                                                             "make a translation shard: one pair of lines per record");

}  // namespace

}  // namespace mh::text
