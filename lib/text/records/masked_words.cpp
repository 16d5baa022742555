#include "text/records/masked_words.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/json_types.h"
#include "base/log.h"
#include "base/text.h"
#include "base/unicode.h"
#include "io/record_kind.h"
#include "text/records/ordered_encoding.h"
#include "text/records/preparation.h"
#include "text/records/record_text.h"
#include "text/tokenizer.h"
#include "text/tokenizers.h"

namespace mh::text {

namespace {

class DocumentsKind : public io::RecordKind {
 public:
  int list_position() const override { return 3; }
  std::vector<std::string> preparations() const override { return {"mlm"}; }
  std::vector<std::string> field_names() const override { return {"sentence"}; }
  size_t num_token_fields() const override { return 1; }
  const char* length_rule() const override {
    return "documents of at least one sentence, each followed by an empty sequence";
  }
  bool allows_length(size_t, uint64_t length, uint64_t previous_length) const override {
    return length > 0 || previous_length > 0;
  }
  bool ends_with_empty_sequence() const override { return true; }
};
const Registration<DocumentsKind> kind_entry(
    io::record_kinds(), kDocumentsKind,
    "The tokens of a sentence. Each document has at least one sentence, and an empty sequence follows the last "
    "sentence of a document.");

// The numbers of tokens removed from the start and the end of a segment.
struct Truncation {
  int64_t num_front_tokens = 0, num_back_tokens = 0;
};

// Returns the numbers of tokens to remove from two segments of `first_length` and `second_length` tokens, so that both
// have at most `max_tokens` tokens together. Tokens are removed from the longer segment, or from the second one if both
// are equally long.
std::pair<Truncation, Truncation> sample_truncations(int64_t first_length, int64_t second_length, int64_t max_tokens,
                                                     RandomSequence& random) {
  std::pair<Truncation, Truncation> truncations;
  while (first_length + second_length > max_tokens) {
    const bool shortens_first = first_length > second_length;
    Truncation& truncation = shortens_first ? truncations.first : truncations.second;
    ++(random.uniform() < 0.5 ? truncation.num_front_tokens : truncation.num_back_tokens);
    --(shortens_first ? first_length : second_length);
  }
  return truncations;
}

}  // namespace

PretrainingExamples::PretrainingExamples(Sequences sequences, const Tokenizer& tokenizer,
                                         const PretrainingOptions& options, uint64_t seed)
    : sequences_(std::move(sequences)),
      options_(options),
      special_tokens_(encoder_tokens(tokenizer, "documents")),
      continues_word_(word_continuations(tokenizer)),
      row_stream_(seed, "pretraining rows"),
      segment_stream_(seed, "pretraining segments"),
      mask_stream_(seed, "pretraining masks") {
  if (sequences_.ends.size() > UINT32_MAX)
    refuse_input("documents", str("at most ", UINT32_MAX, " sentences"), str(sequences_.ends.size(), " sentences"),
                 "train on fewer documents");
  // Each segment needs at least one token.
  if (const int64_t min_length = num_special_tokens() + (options_.next_sentence ? 2 : 1);
      options_.max_length < min_length)
    refuse_usage("train.batch.sequence_length",
                 str("at least ", min_length, ", so that an input sequence has a token to predict"),
                 str(options_.max_length), "raise train.batch.sequence_length");
  uint32_t begin = 0;
  for (uint32_t sequence = 0; sequence < sequences_.ends.size(); ++sequence) {
    if (sequences_.length(sequence) > 0) continue;
    if (begin == sequence)
      refuse_input("documents", "at least one sentence in each document",
                   str("none in document ", documents_.size() + 1), "make the shard again with mh-prep mlm");
    documents_.push_back({begin, sequence});
    begin = sequence + 1;
  }
  if (documents_.empty())
    refuse_input("documents", "at least one document", "none", "make the shard again with mh-prep mlm");
  if (options_.next_sentence && documents_.size() == 1)
    refuse_usage("model.bert.next_sentence",
                 "at least two documents, since next-sentence prediction pairs segments of different documents",
                 "one document", "separate documents by empty lines, or set model.bert.next_sentence=false");
}

int64_t PretrainingExamples::num_tokens() const {
  return sequences_.ends.empty() ? 0 : static_cast<int64_t>(sequences_.ends.back());
}

int64_t PretrainingExamples::count_tokens(SentenceRange s) const {
  return static_cast<int64_t>(sequences_.begin(s.end) - sequences_.begin(s.begin));
}

PretrainingExamples::SentenceRange PretrainingExamples::sample_second_segment(size_t document_index, int64_t max_tokens,
                                                                              RandomSequence& random) const {
  size_t other_index = random.uniform_below(documents_.size() - 1);
  if (other_index >= document_index) ++other_index;
  const SentenceRange sentences = documents_[other_index];
  SentenceRange segment{sentences.begin + static_cast<uint32_t>(random.uniform_below(sentences.end - sentences.begin)),
                        0};
  segment.end = segment.begin + 1;
  while (segment.end < sentences.end && count_tokens(segment) < max_tokens) ++segment.end;
  return segment;
}

void PretrainingExamples::plan_document(size_t document_index, uint32_t epoch,
                                        std::vector<SegmentPair>& segment_pairs) const {
  RandomSequence random(row_stream_, epoch, static_cast<uint32_t>(document_index));
  const SentenceRange sentences = documents_[document_index];
  for (uint32_t sentence = sentences.begin; sentence < sentences.end;) {
    int64_t target_length = max_text_tokens();
    // An input sequence with room for a single token cannot be shorter.
    if (random.uniform() < options_.short_fraction && max_text_tokens() > 1)
      target_length = 2 + static_cast<int64_t>(random.uniform_below(static_cast<uint64_t>(max_text_tokens() - 1)));
    SentenceRange chunk{sentence, sentence + 1};
    while (chunk.end < sentences.end && count_tokens(chunk) < target_length) ++chunk.end;
    sentence = chunk.end;
    if (!options_.next_sentence) {
      segment_pairs.push_back({chunk, {chunk.end, chunk.end}, false});
      continue;
    }
    const uint32_t num_sentences = chunk.end - chunk.begin;
    SegmentPair pair{{chunk.begin, chunk.begin + 1}, {}, false};
    if (num_sentences > 1) pair.first.end += static_cast<uint32_t>(random.uniform_below(num_sentences - 1));
    pair.is_next_sentence = num_sentences > 1 && random.uniform() >= 0.5;
    if (pair.is_next_sentence) {
      pair.second = {pair.first.end, chunk.end};
    } else {
      pair.second = sample_second_segment(document_index, target_length - count_tokens(pair.first), random);
      sentence = pair.first.end;  // the sentences after the split start the next input sequence
    }
    segment_pairs.push_back(pair);
  }
}

PretrainingExamples::Epoch PretrainingExamples::plan_epoch(uint32_t epoch) const {
  Epoch plan(this, epoch);
  for (size_t i = 0; i < documents_.size(); ++i) plan_document(i, epoch, plan.segment_pairs_);
  return plan;
}

int64_t PretrainingExamples::Epoch::length(int64_t i) const {
  const SegmentPair& pair = segment_pair(i);
  return pretraining_->num_special_tokens() +
         std::min(pretraining_->max_text_tokens(),
                  pretraining_->count_tokens(pair.first) + pretraining_->count_tokens(pair.second));
}

RandomSequence PretrainingExamples::Epoch::mask_random(int64_t i) const {
  return RandomSequence(pretraining_->mask_stream_, epoch_, static_cast<uint32_t>(i));
}

Example PretrainingExamples::Epoch::make_unmasked(int64_t i) const {
  const SegmentPair& pair = segment_pair(i);
  RandomSequence segment_random(pretraining_->segment_stream_, epoch_, static_cast<uint32_t>(i));
  const auto [first_truncation, second_truncation] =
      sample_truncations(pretraining_->count_tokens(pair.first), pretraining_->count_tokens(pair.second),
                         pretraining_->max_text_tokens(), segment_random);
  Example result;
  result.tokens.push_back(pretraining_->special_tokens_.begin_id);
  const auto add = [&](SentenceRange s, Truncation truncation, int64_t num_separators) {
    const size_t offset = result.tokens.size();
    result.tokens.resize(offset + static_cast<size_t>(pretraining_->count_tokens(s) - truncation.num_front_tokens -
                                                      truncation.num_back_tokens));
    pretraining_->sequences_.read(
        pretraining_->sequences_.begin(s.begin) + static_cast<uint64_t>(truncation.num_front_tokens),
        std::span(result.tokens).subspan(offset));
    result.tokens.insert(result.tokens.end(), static_cast<size_t>(num_separators),
                         pretraining_->special_tokens_.separator_id);
  };
  add(pair.first, first_truncation, pretraining_->num_first_separators());
  result.first_segment_length = static_cast<int32_t>(result.tokens.size());
  if (pretraining_->options_.next_sentence) add(pair.second, second_truncation, 1);
  result.targets.assign(result.tokens.size(), -1);
  if (pretraining_->options_.next_sentence) result.targets[0] = pair.is_next_sentence ? 0 : 1;
  return result;
}

Example PretrainingExamples::Epoch::make(int64_t i) const {
  Example result = make_unmasked(i);
  RandomSequence random = mask_random(i);
  pretraining_->mask_tokens(result, random);
  return result;
}

int64_t PretrainingExamples::Epoch::count_predicted_tokens(int64_t i) const {
  if (!pretraining_->options_.whole_word) {  // every unit of masking has one token
    const int64_t num_tokens = length(i);
    return std::min(pretraining_->max_predicted_tokens(num_tokens), num_tokens - pretraining_->num_special_tokens());
  }
  RandomSequence random = mask_random(i);
  int64_t count = 0;
  for (const auto& positions : pretraining_->sample_masked_units(make_unmasked(i), random))
    count += static_cast<int64_t>(positions.size());
  return count;
}

double PretrainingExamples::Epoch::next_sentence_weight(std::span<const int64_t> update_rows) const {
  if (!pretraining_->options_.next_sentence || update_rows.empty()) return 1;
  int64_t num_words = 0;
  for (const int64_t row : update_rows) num_words += count_predicted_tokens(row);
  return static_cast<double>(num_words) / static_cast<double>(update_rows.size());
}

std::vector<std::vector<int32_t>> PretrainingExamples::masking_units(const Example& example) const {
  std::vector<std::vector<int32_t>> units;
  bool starts_segment = true;  // whether token i is the first of its segment
  const auto first_segment_end = static_cast<size_t>(example.first_segment_length),
             first_separator = first_segment_end - static_cast<size_t>(num_first_separators());
  for (size_t i = 1; i < example.tokens.size(); ++i) {
    if (i + 1 == example.tokens.size() || (i >= first_separator && i < first_segment_end)) {
      starts_segment = true;
      continue;  // token i is a separator
    }
    if (!options_.whole_word || starts_segment || !continues_word_[static_cast<size_t>(example.tokens[i])])
      units.emplace_back();
    units.back().push_back(static_cast<int32_t>(i));
    starts_segment = false;
  }
  return units;
}

int64_t PretrainingExamples::max_predicted_tokens(int64_t length) const {
  const double num_predictions = std::nearbyint(static_cast<double>(length) * options_.mask_fraction);
  return std::min(options_.max_predictions, std::max(int64_t{1}, static_cast<int64_t>(num_predictions)));
}

std::vector<std::vector<int32_t>> PretrainingExamples::sample_masked_units(const Example& example,
                                                                           RandomSequence& random) const {
  std::vector<std::vector<int32_t>> units = masking_units(example), masked_units;
  std::vector<int64_t> unit_order(units.size());
  std::iota(unit_order.begin(), unit_order.end(), int64_t{0});
  random.shuffle(unit_order);
  const auto max_masked = static_cast<size_t>(max_predicted_tokens(static_cast<int64_t>(example.tokens.size())));
  size_t num_masked = 0;
  for (int64_t unit_index : unit_order) {
    std::vector<int32_t>& positions = units[static_cast<size_t>(unit_index)];
    if (num_masked + positions.size() > max_masked) continue;
    num_masked += positions.size();
    masked_units.push_back(std::move(positions));
  }
  return masked_units;
}

void PretrainingExamples::mask_tokens(Example& example, RandomSequence& random) const {
  for (const std::vector<int32_t>& positions : sample_masked_units(example, random))
    for (int32_t position : positions) {
      int32_t& token = example.tokens[static_cast<size_t>(position)];
      example.targets[static_cast<size_t>(position)] = token;
      if (random.uniform() < 0.8) token = special_tokens_.mask_id;
      else if (random.uniform() >= 0.5) token = static_cast<int32_t>(random.uniform_below(continues_word_.size()));
    }
}

namespace {

// The encoded lines of a batch; a blank line becomes an empty sequence.
struct EncodedLines {
  EncodedSequences sequences;
  DocumentSummary summary;
  bool begins_file = false;
};

EncodedLines encode(const TextBatch& batch, const Tokenizer& tokenizer, Encoder& encoder) {
  check_text(batch, false);
  EncodedLines out;
  out.begins_file = batch.segments.front().line_number == 1;
  std::vector<int32_t>& tokens = out.sequences.tokens;
  tokens.reserve(batch.text.size() / 3);
  for (const auto& s : batch.segments) {
    const size_t first_token = tokens.size();
    const std::string_view line = std::string_view(batch.text).substr(s.begin, s.end - s.begin);
    encoder.encode(line, tokens);
    if (tokens.size() > first_token || is_blank(line)) out.sequences.ends.push_back(tokens.size());
    else ++out.summary.num_lines_without_tokens;
  }
  out.summary.num_tokens = tokens.size();
  out.summary.num_unknown = count_unknown(tokens, tokenizer);
  out.summary.num_bytes = batch.input_bytes;
  return out;
}

// Writes sentences to a shard. An empty sequence ends a document; documents without sentences are skipped.
class DocumentWriter {
 public:
  DocumentWriter(io::ShardWriter& writer, DocumentSummary& summary) : writer_(writer), summary_(summary) {}
  void add(std::span<const int32_t> sentence) {
    if (sentence.empty()) return close();
    writer_.add_sequence(sentence);
    ++summary_.num_sentences;
    is_document_open_ = true;
  }
  void close() {
    if (!is_document_open_) return;
    writer_.add_sequence({});
    ++summary_.num_documents;
    is_document_open_ = false;
  }

 private:
  io::ShardWriter& writer_;
  DocumentSummary& summary_;
  bool is_document_open_ = false;
};

}  // namespace

DocumentSummary encode_documents(TextBatches& text, const Tokenizer& tokenizer, int num_threads,
                                 io::ShardWriter& writer) {
  DocumentSummary summary;
  DocumentWriter documents(writer, summary);
  summary.seconds = encode_in_order<TextBatch, EncodedLines>(
      num_threads, text.expected_bytes(), "bytes", [&](TextBatch& batch) { return text.next(batch); },
      [&] {
        return [&tokenizer, encoder = std::shared_ptr(tokenizer.encoder())](const TextBatch& batch) {
          return encode(batch, tokenizer, *encoder);
        };
      },
      [&](const EncodedLines& e) {
        if (e.begins_file) documents.close();
        size_t begin = 0;
        for (size_t end : e.sequences.ends) {
          documents.add(std::span(e.sequences.tokens).subspan(begin, end - begin));
          begin = end;
        }
        writer.add_text_bytes(e.summary.num_bytes);
        summary.num_tokens += e.summary.num_tokens;
        summary.num_unknown += e.summary.num_unknown;
        summary.num_lines_without_tokens += e.summary.num_lines_without_tokens;
        summary.num_bytes += e.summary.num_bytes;
        return summary.num_bytes;
      });
  documents.close();
  return summary;
}

namespace {

// The options of mh-prep mlm.
struct MlmOptions {
  BertVocabularyOptions vocabulary;
  EncodingThreads threads;
  void describe(Fields& f) {
    f.section("", vocabulary);
    f.section("", threads);
  }
};

void make_mlm(const PrepArguments& arguments, const MlmOptions& options) {
  const auto tokenizer = load_vocabulary(arguments, options.vocabulary);
  TextBatches text(arguments.inputs, line_ends(arguments, false), nullptr);
  io::ShardHeader header = header_of(*tokenizer);
  header.set_kind(kDocumentsKind);
  header.provenance = provenance_of(arguments, options.vocabulary, {});
  DocumentSummary summary;
  write_shard(arguments, header, [&](io::ShardWriter& writer) {
    summary = encode_documents(text, *tokenizer, options.threads.num_threads(), writer);
    if (summary.num_sentences == 0)
      refuse_inputs(arguments, "sentences, one per line", "none", "name a file with at least one sentence");
  });
  log_removed_bytes(text.num_normalised_lines(), text.num_byte_order_marks());
  if (summary.num_lines_without_tokens > 0)
    log_info("dropped " + count_with_commas(summary.num_lines_without_tokens, "line") + " without a token");
  if (summary.num_documents == 1)
    log_warning("only one document, but next-sentence prediction needs two or more; separate documents by empty lines");
  log_info(str(count_with_commas(summary.num_documents, "document"), ", ",
               count_with_commas(summary.num_sentences, "sentence"), ", ",
               count_with_commas(summary.num_tokens, "token"), ", ", format_count(summary.num_unknown, "unknown, "),
               format_throughput(summary.num_bytes, summary.seconds)));
}

class MlmPreparation : public PreparationWithOptions<MlmOptions, make_mlm> {
 public:
  std::string inputs_help() const override {
    return "text files, one sentence per line, an empty line between documents";
  }
};

const Registration<MlmPreparation> mlm_entry(preparations(), "mlm",
                                             "make a shard of documents for BERT's pre-training; each epoch of "
                                             "training draws new pairs of segments and new masks");

// Prints the documents one sentence per line.
class DocumentText : public WholeShardText {
 protected:
  nlohmann::ordered_json count_shard(const WholeShard& shard, const std::string&) const override {
    uint64_t num_documents = 0;  // number of empty sequences, one at the end of each document
    for (size_t i = 0; i < shard.size(); ++i) num_documents += shard.sequence(i, 0).empty() ? 1 : 0;
    return {{"documents", num_documents}, {"sentences", shard.size() - num_documents}};
  }
  // Prints an empty line between documents; the empty sequence that ends the last document is not printed.
  void print_text(const WholeShard& shard, const std::string&, const Tokenizer& tokenizer,
                  ByteSink& sink) const override {
    for (size_t i = 0; i + 1 < shard.size(); ++i)
      sink.write(text_of_tokens(shard.sequence(i, 0), tokenizer, false) + "\n");
  }
};

const Registration<DocumentText> text_entry(record_texts(), kDocumentsKind,
                                            "one sentence per line, an empty line between documents");

}  // namespace

}  // namespace mh::text
