#include "text/records/translation.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "base/version.h"
#include "io/record_kind.h"
#include "io/shard_format.h"
#include "text/records/ordered_encoding.h"
#include "text/records/preparation.h"
#include "text/records/record_text.h"
#include "text/tokenizers.h"

namespace mh::text {

namespace {

class PairsKind : public io::RecordKind {
 public:
  int list_position() const override { return 2; }
  std::vector<std::string> preparations() const override { return {"translation"}; }
  std::vector<std::string> field_names() const override { return {"source", "target"}; }
  size_t num_token_fields() const override { return 2; }
  size_t num_source_fields() const override { return 1; }
  const char* length_rule() const override {
    return "pairs whose source and target each have at least an end-of-line token";
  }
  bool allows_length(size_t, uint64_t length, uint64_t) const override { return length > 0; }
  bool ends_with_end_of_line() const override { return true; }
};
const Registration<PairsKind> kind_entry(io::record_kinds(), kPairsKind, "A line and its translation.");

struct EncodedPairs {
  EncodedSequences sequences;
  PairSummary summary;
  uint64_t target_bytes = 0;
};

// The tokenizer of the source or of the target, with an encoder for one thread.
struct SentenceEncoder {
  const Tokenizer& tokenizer;
  std::unique_ptr<Encoder> encoder = tokenizer.encoder();

  // Appends the tokens of a line and the end-of-line token; returns the number of tokens without the end-of-line token.
  size_t add(const TextBatch& batch, const TextBatch::Segment& s, std::vector<int32_t>& out) {
    const size_t begin = out.size();
    encoder->encode(std::string_view(batch.text).substr(s.begin, s.end - s.begin), out);
    const int32_t end = tokenizer.end_of_line_id();
    if (std::find(out.begin() + static_cast<int64_t>(begin), out.end(), end) != out.end())
      refuse_input(str(batch.file, ":", s.line_number), "text without the end-of-line token",
                   "'" + tokenizer.piece(end) + "' in the text", "remove the token from the text");
    out.push_back(end);
    return out.size() - begin - 1;
  }
};

class PairEncoder {
 public:
  PairEncoder(const Tokenizer& source, const Tokenizer& target, const PairFilters& filters)
      : source_{source}, target_{target}, filters_(filters) {}

  EncodedPairs encode(const PairBatch& batch) {
    EncodedPairs out;
    std::vector<int32_t>& tokens = out.sequences.tokens;
    tokens.reserve((batch.source.text.size() + batch.target.text.size()) / 3);
    for (size_t i = 0; i < batch.source.segments.size(); ++i) {
      const TextBatch::Segment &s = batch.source.segments[i], &t = batch.target.segments[i];
      check_text(batch.source, s, false);
      check_text(batch.target, t, false);
      const size_t begin = tokens.size();
      const size_t source_length = source_.add(batch.source, s, tokens), source_end = tokens.size();
      const size_t target_length = target_.add(batch.target, t, tokens);
      if (const char* reason = filters_.drop_reason(source_length, target_length)) {
        if (source_length * target_length == 0 && filters_.empty_handling == "refuse")
          refuse_empty(batch, i, source_length == 0);
        ++out.summary.num_dropped[reason];
        tokens.resize(begin);
        continue;
      }
      out.sequences.ends.insert(out.sequences.ends.end(), {source_end, tokens.size()});
      const auto pair = std::span(tokens).subspan(begin);
      out.summary.num_unknown[0] += count_unknown(pair.first(source_length), source_.tokenizer);
      out.summary.num_unknown[1] += count_unknown(pair.last(target_length + 1), target_.tokenizer);
      out.summary.num_tokens[0] += source_length + 1;
      out.summary.num_tokens[1] += target_length + 1;
      out.target_bytes += t.end - t.begin + 1;
      ++out.summary.num_pairs;
    }
    out.summary.num_bytes = batch.source.input_bytes + batch.target.input_bytes;
    return out;
  }

 private:
  [[noreturn]] static void refuse_empty(const PairBatch& batch, size_t i, bool is_source) {
    const TextBatch& batch_side = is_source ? batch.source : batch.target;
    refuse_input(str(batch_side.file, ":", batch_side.segments[i].line_number),
                 "a pair with non-empty source and target", str("an empty ", is_source ? "source" : "target"),
                 "fill the empty line, or drop the pair with --empty drop");
  }
  SentenceEncoder source_, target_;
  PairFilters filters_;
};

}  // namespace

void PairFilters::check() const {
  if (max_length > 0 && min_length > max_length)
    refuse_usage("--min-length", str("at most --max-length ", max_length), str(min_length),
                 "lower --min-length, or raise --max-length");
  if (max_ratio > 0 && max_ratio < 1)
    refuse_usage("--max-ratio",
                 "at least 1 (length of the longer text divided by length of the shorter text), or 0 for no limit",
                 shortest_decimal(max_ratio), "raise --max-ratio to 1 or more");
}

const char* PairFilters::drop_reason(size_t source_length, size_t target_length) const {
  const auto [shorter, longer] = std::minmax(source_length, target_length);
  if (shorter == 0) return "empty";
  if (shorter < static_cast<size_t>(min_length)) return "short";
  if (max_length > 0 && longer > static_cast<size_t>(max_length)) return "long";
  if (max_ratio > 0 && static_cast<double>(longer) > max_ratio * static_cast<double>(shorter)) return "ratio";
  return nullptr;
}

PairSummary encode_pairs(PairBatches& text, const Tokenizer& source, const Tokenizer& target,
                         const PairFilters& filters, int num_threads, io::ShardWriter& writer) {
  filters.check();
  PairSummary summary;
  summary.seconds = encode_in_order<PairBatch, EncodedPairs>(
      num_threads, text.expected_bytes(), "bytes", [&](PairBatch& batch) { return text.next(batch); },
      [&] {
        return [encoder = std::make_shared<PairEncoder>(source, target, filters)](const PairBatch& batch) {
          return encoder->encode(batch);
        };
      },
      [&](const EncodedPairs& e) {
        e.sequences.write(writer);
        writer.add_text_bytes(e.target_bytes);
        for (const auto& [reason, num_pairs] : e.summary.num_dropped) {
          writer.add_dropped(reason, num_pairs);
          summary.num_dropped[reason] += num_pairs;
        }
        for (size_t side : {0, 1}) {
          summary.num_tokens[side] += e.summary.num_tokens[side];
          summary.num_unknown[side] += e.summary.num_unknown[side];
        }
        summary.num_pairs += e.summary.num_pairs;
        summary.num_bytes += e.summary.num_bytes;
        return summary.num_bytes;
      });
  return summary;
}

namespace {

uint64_t count_remaining_lines(TextBatches& text) {
  uint64_t num_lines = 0;
  for (TextBatch batch; text.next(batch);) num_lines += batch.segments.size();
  return num_lines;
}

}  // namespace

PairBatches::PairBatches(const std::vector<std::string>& files, LineEnds line_ends, ReadSizes sizes)
    : files_(files),
      source_lines_({files.front()}, line_ends, nullptr, sizes),
      target_lines_(std::vector<std::string>(files.begin() + 1, files.end()), line_ends, nullptr, sizes) {}

uint64_t PairBatches::expected_bytes() const {
  const uint64_t source_bytes = source_lines_.expected_bytes(), target_bytes = target_lines_.expected_bytes();
  return files_.size() == 1 ? source_bytes : source_bytes == 0 || target_bytes == 0 ? 0 : source_bytes + target_bytes;
}

bool PairBatches::next(PairBatch& batch) {
  batch.target = TextBatch();
  if (error_ != nullptr) std::rethrow_exception(error_);
  if (!source_lines_.next(batch.source)) {
    if (files_.size() > 1) require_no_more_targets();
    return false;
  }
  try {
    if (files_.size() == 1) split_at_tabs(batch);
    else add_targets(batch);
  } catch (...) {
    error_ = std::current_exception();
    if (batch.target.segments.empty()) throw;
    batch.source.segments.resize(batch.target.segments.size());
  }
  num_pairs_ += batch.source.segments.size();
  return true;
}

void PairBatches::split_at_tabs(PairBatch& batch) {
  batch.target.text = batch.source.text;
  batch.target.file = batch.source.file;
  for (TextBatch::Segment& source : batch.source.segments) {
    const std::string_view line = std::string_view(batch.source.text).substr(source.begin, source.end - source.begin);
    const auto num_tabs = std::count(line.begin(), line.end(), '\t');
    if (num_tabs != 1) {
      check_text(batch.source, source, false);  // an error about an invalid byte of the line has precedence
      refuse_input(str(batch.source.file, ":", source.line_number), "a source, one tab and a target",
                   num_tabs == 0 ? std::string("no tab") : str(num_tabs, " tabs"),
                   "join the lines of source and target with paste(1), or name a source file and a target file");
    }
    const size_t tab = line.find('\t');
    TextBatch::Segment target = source;
    source.end = source.begin + tab;
    target.begin += tab + 1;
    target.offset += tab + 1;
    batch.target.segments.push_back(target);
  }
}

bool PairBatches::has_target_line() {
  if (target_index_ < target_batch_.segments.size()) return true;
  target_index_ = 0;
  if (!target_lines_.next(target_batch_)) return false;
  uncounted_target_bytes_ += target_batch_.input_bytes;
  return true;
}

void PairBatches::require_no_more_targets() {
  if (has_target_line())
    refuse_unequal_lengths(
        num_pairs_, num_pairs_,
        num_pairs_ + target_batch_.segments.size() - target_index_ + count_remaining_lines(target_lines_));
}

void PairBatches::add_targets(PairBatch& batch) {
  TextBatch& target = batch.target;
  for (size_t i = 0; i < batch.source.segments.size(); ++i) {
    if (!has_target_line())
      refuse_unequal_lengths(num_pairs_ + i,
                             num_pairs_ + batch.source.segments.size() + count_remaining_lines(source_lines_),
                             num_pairs_ + i);
    TextBatch::Segment s = target_batch_.segments[target_index_++];
    target.file = target_batch_.file;
    const size_t begin = target.text.size(), size = s.end - s.begin;
    target.text.append(target_batch_.text, s.begin, size);
    s.begin = begin;
    s.end = begin + size;
    target.segments.push_back(s);
  }
  target.input_bytes = std::exchange(uncounted_target_bytes_, 0);
}

void PairBatches::refuse_unequal_lengths(uint64_t num_common_lines, uint64_t num_first_lines,
                                         uint64_t num_second_lines) {
  const std::string first = input_name(files_[0]), second = input_name(files_[1]);
  const std::string& longer = num_first_lines > num_second_lines ? first : second;
  refuse_input(first + ", " + second, "the same number of lines in both files",
               str(num_first_lines, " and ", count_of(num_second_lines, "line")),
               str("align the files; the first line without a partner is ", longer, ":", num_common_lines + 1));
}

PairStream::PairStream(io::ShardStream& stream) : stream_(stream), buffer_(1 << 14) {
  const io::ShardHeader& header = stream.header();
  io::require_kind(header, stream.name(), kPairsKind);
  for (io::Side side : {io::Side::source, io::Side::target}) {
    auto side_tokenizer = parse_tokenizer(header.tokenizer_of(side), stream.name());
    require_vocabulary(header, stream.name(), *side_tokenizer, "the tokenizer stored in the shard", side);
    tokenizers_[static_cast<int>(side)] = std::move(side_tokenizer);
  }
}

bool PairStream::read_sequence(io::Side side, std::vector<int32_t>& tokens) {
  const int64_t vocabulary_size = tokenizer(side).size();
  const int32_t end = tokenizer(side).end_of_line_id();
  tokens.clear();
  do {
    if (buffer_position_ == num_buffered_tokens_) {
      buffer_position_ = 0;
      num_buffered_tokens_ = stream_.read(buffer_);
      if (num_buffered_tokens_ == 0) break;
    }
    tokens.push_back(buffer_[buffer_position_++]);
    if (tokens.back() >= vocabulary_size)
      io::throw_damaged(
          stream_.name(),
          str("token ids below ", vocabulary_size, " in the ", side == io::Side::source ? "source" : "target", " text"),
          str(tokens.back(), " in pair ", lengths_.size() / 2 + 1));
  } while (tokens.back() != end);
  if (tokens.empty() || tokens.back() != end) return false;
  lengths_.push_back(static_cast<uint32_t>(tokens.size()));
  return true;
}

bool PairStream::next(std::vector<int32_t>& source, std::vector<int32_t>& target) {
  if (read_sequence(io::Side::source, source) && read_sequence(io::Side::target, target)) return true;
  if (lengths_ != stream_.sequence_lengths())
    io::throw_damaged(stream_.name(), "sources and targets with the lengths in the trailer", "other lengths");
  return false;
}

namespace {

// The options of mh-prep translation.
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

  io::ShardHeader header = header_of(target);
  // Two equal vocabularies are stored once, as a joint vocabulary.
  if (source.fingerprint() != target.fingerprint()) {
    header.source_vocabulary_size = source.size();
    header.source_fingerprint = source.fingerprint();
    header.source_tokenizer = source.serialize();
  }
  header.set_kind(kPairsKind);
  nlohmann::ordered_json provenance{{"tool", str("mh-prep ", version())}, {"inputs", arguments.inputs}};
  if (has_joint_vocabulary) provenance["vocabulary"] = options.vocabulary_path;
  else
    provenance["source_vocabulary"] = options.source_vocabulary_path,
    provenance["target_vocabulary"] = options.target_vocabulary_path;
  provenance.update({{"crlf", arguments.crlf_handling},
                     {"min_length", options.filters.min_length},
                     {"max_length", options.filters.max_length},
                     {"max_ratio", options.filters.max_ratio},
                     {"empty", options.filters.empty_handling}});
  header.provenance = provenance.dump(
      -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);  // file names may contain any bytes

  PairSummary summary;
  write_shard(arguments, header, [&](io::ShardWriter& writer) {
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

// Prints the pairs as a stream, since a shard may be larger than memory.
class PairLines : public RecordText {
 public:
  nlohmann::ordered_json count(io::ShardStream& stream) const override {
    uint64_t num_source_tokens = 0;
    std::vector<int32_t> source, target;
    for (PairStream pairs(stream); pairs.next(source, target);) num_source_tokens += source.size();
    return {{"source_tokens", num_source_tokens},
            {"target_tokens", stream.counts().num_tokens - num_source_tokens},
            {"dropped", stream.counts().num_dropped}};
  }
  void print(io::ShardStream& stream, bool as_ids, ByteSink& sink) const override {
    PairStream pairs(stream);
    const Tokenizer &source = pairs.tokenizer(io::Side::source), &target = pairs.tokenizer(io::Side::target);
    for (std::vector<int32_t> source_ids, target_ids; pairs.next(source_ids, target_ids);)
      sink.write(text_of_tokens(source_ids, source, as_ids) + "\t" + text_of_tokens(target_ids, target, as_ids) + "\n");
  }
};

const Registration<PairLines> text_entry(record_texts(), kPairsKind, "source, tab, target, one pair per line");

}  // namespace

}  // namespace mh::text
