#include "text/vocabulary.h"

#include <algorithm>
#include <filesystem>

#include "base/config.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/unicode.h"
#include "text/byte_bpe.h"
#include "text/folder_tokenizer.h"
#include "text/json_tokenizer.h"
#include "text/learn_sentencepiece.h"
#include "text/merges.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/word_cache.h"
#include "text/word_map.h"

namespace mh::text {

namespace {

using Counts = WordMap<uint64_t>;

[[noreturn]] void refuse_empty_text() {
  refuse_input("inputs", "text with at least one word", "no words", "name a file with text");
}

template <class Visit>
void for_each_segment(TextBatches& text, const Visit& visit) {
  ProgressLine progress("vocabulary", static_cast<int64_t>(text.expected_bytes()), "bytes");
  TextBatch batch;
  int64_t num_bytes = 0;
  while (text.next(batch)) {
    check_text(batch);
    for (const auto& s : batch.segments)
      visit(std::string_view(batch.text).substr(s.begin, s.end - s.begin), s.has_newline);
    num_bytes += static_cast<int64_t>(batch.input_bytes);
    progress.update(num_bytes);
  }
}

// Increases the count of each special piece by its count in `counts`. Returns the special pieces, then the other keys
// of `counts` with a count of at least options.min_count, by decreasing count; at most options.max_size pieces in total
// (0: no limit). Throws Error(usage) if the special pieces alone exceed options.max_size.
std::vector<Piece> order_by_count(const Counts& counts, std::vector<Piece> special_pieces,
                                  const VocabularyOptions& options) {
  if (options.max_size > 0 && special_pieces.size() > static_cast<size_t>(options.max_size))
    refuse_usage("--size", str("at least the ", special_pieces.size(), " special entries"), str(options.max_size),
                 "raise --size, or use 0 for no limit");
  std::vector<Piece> pieces;
  counts.for_each([&](std::string_view key, uint64_t count) {
    for (Piece& p : special_pieces)
      if (p.text == key) {
        p.count += count;
        return;
      }
    if (count >= static_cast<uint64_t>(options.min_count)) pieces.push_back({std::string(key), count});
  });
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.count != b.count ? a.count > b.count : a.text < b.text; });
  special_pieces.insert(special_pieces.end(), pieces.begin(), pieces.end());
  if (options.max_size > 0 && special_pieces.size() > static_cast<size_t>(options.max_size))
    special_pieces.resize(static_cast<size_t>(options.max_size));
  return special_pieces;
}

// Warns about words that end in @@, as the pieces of subword-nmt do: the text is probably segmented already, so the
// vocabulary would count pieces instead of words.
void warn_about_pieces(const Counts& words) {
  uint64_t num_distinct_marked_words = 0, num_marked_words = 0;
  words.for_each([&](std::string_view word, uint64_t count) {
    if (word.size() > 2 && word.ends_with("@@")) ++num_distinct_marked_words, num_marked_words += count;
  });
  if (num_distinct_marked_words > 0)
    log_warning(
        str("the text has ", count_with_commas(num_marked_words, "word"), " (",
            with_commas(static_cast<int64_t>(num_distinct_marked_words)),
            " distinct) with the ending @@ of pieces of subword-nmt: perplexity and BLEU with this vocabulary count "
            "pieces as words; sed 's/@@ //g' joins the pieces"));
}

std::unique_ptr<Tokenizer> make_word_vocabulary(const VocabularyOptions& options, TextBatches& text) {
  Counts counts;
  uint64_t num_lines = 0;
  for_each_segment(text, [&](std::string_view line, bool has_newline) {
    num_lines += has_newline ? 1 : 0;
    for_each_word(line, [&](const WordKey& word) { ++counts[word]; });
  });
  if (counts.size() == 0) refuse_empty_text();
  warn_about_pieces(counts);
  return make_word_tokenizer(order_by_count(counts, {{kEndOfLinePiece, num_lines}, {kUnknownPiece, 0}}, options));
}

std::unique_ptr<Tokenizer> make_char_vocabulary(const VocabularyOptions& options, TextBatches& text) {
  Counts counts;
  uint64_t num_lines = 0;
  for_each_segment(text, [&](std::string_view line, bool has_newline) {
    num_lines += has_newline ? 1 : 0;
    for (size_t i = 0; i < line.size();) {
      size_t n = 1;
      while (i + n < line.size() && is_continuation_byte(line[i + n])) ++n;
      ++counts[line.substr(i, n)];
      i += n;
    }
  });
  if (counts.size() == 0 && num_lines == 0) refuse_empty_text();
  return make_char_tokenizer(order_by_count(counts, {{"\n", num_lines}, {kUnknownPiece, 0}}, options));
}

std::unique_ptr<Tokenizer> make_subword_vocabulary(const VocabularyOptions& options, TextBatches& text) {
  std::vector<Merge> merges;
  if (!options.codes_path.empty())
    merges = read_codes(read_text_file(options.codes_path), input_name(options.codes_path));
  Counts words, pieces;
  uint64_t num_lines = 0;
  for_each_segment(text, [&](std::string_view line, bool has_newline) {
    num_lines += has_newline ? 1 : 0;
    for_each_spaced_word(line, [&](std::string_view word) { ++words[word]; });
  });
  if (words.size() == 0) refuse_empty_text();
  warn_about_pieces(words);
  if (options.codes_path.empty()) {
    merges = learn_merges(words, options.num_merges);
    if (merges.size() < static_cast<size_t>(options.num_merges))
      log_info(str("stopped after ", count_of(merges.size(), "merge"), ": no pair of symbols occurs twice"));
  }
  const Segmenter segmenter(merges);
  words.for_each([&](std::string_view word, uint64_t count) {
    for_each_piece(segmenter, word, [&](std::string_view piece) { pieces[piece] += count; });
  });
  return make_subword_tokenizer(order_by_count(pieces, {{kEndOfLinePiece, num_lines}, {kUnknownPiece, 0}}, options),
                                std::move(merges));
}

BertNormalisation normalisation_of(const VocabularyOptions& options) {
  return bert_normalisation(options.cased, options.strip_accents);
}

std::unique_ptr<Tokenizer> make_wordpiece_vocabulary(const VocabularyOptions& options, TextBatches& text) {
  Counts spaced_words, words;  // counts of the strings between spaces, and of normalised words
  uint64_t num_lines = 0;
  for_each_segment(text, [&](std::string_view line, bool has_newline) {
    num_lines += has_newline ? 1 : 0;
    for_each_spaced_word(line, [&](std::string_view spaced_word) { spaced_words[spaced_word] += 1; });
  });
  std::string word;
  spaced_words.for_each([&](std::string_view spaced_word, uint64_t count) {
    for_each_bert_word(bert_characters(spaced_word, normalisation_of(options)),
                       [&](std::span<const BertCharacter> characters) {
                         word.clear();
                         for (const BertCharacter& character : characters) append_utf8(character.c, word);
                         words[std::string_view(word)] += count;
                       });
  });
  if (words.size() == 0) refuse_empty_text();
  std::vector<Piece> pieces;
  for (std::string& piece : learn_wordpieces(words, {options.max_size, options.max_alphabet_size, options.min_count}))
    pieces.push_back({std::move(piece), 0});
  if (pieces.size() < static_cast<size_t>(options.max_size))
    log_info(str("stopped after ", count_of(pieces.size(), "entry"), ": no pair of pieces occurs --min-count times"));
  auto tokenizer = make_wordpiece_tokenizer(pieces, normalisation_of(options), "the vocabulary just learnt");
  std::vector<int32_t> tokens;
  spaced_words.for_each([&](std::string_view spaced_word, uint64_t count) {
    tokens.clear();
    tokenizer->encode_uncached(spaced_word, tokens);
    for (int32_t token : tokens) pieces[static_cast<size_t>(token)].count += count;
  });
  pieces[static_cast<size_t>(tokenizer->end_of_line_id())].count += num_lines;
  return make_wordpiece_tokenizer(std::move(pieces), normalisation_of(options), "the vocabulary just learnt");
}

std::unique_ptr<Tokenizer> make_byte_bpe_vocabulary(const VocabularyOptions& options, TextBatches& text) {
  Counts words;
  std::string line;  // the segment with its line feed, since white space before the line feed belongs to the same word
  for_each_segment(text, [&](std::string_view segment, bool has_newline) {
    line = segment;
    if (has_newline) line += '\n';
    count_byte_bpe_words(line, words);
  });
  if (words.size() == 0) refuse_empty_text();
  auto tokenizer = learn_byte_bpe(words, options.max_size, options.min_count);
  if (tokenizer->size() < options.max_size)
    log_info(
        str("stopped after ", count_of(tokenizer->size(), "entry"), ": no pair of pieces occurs --min-count times"));
  return tokenizer;
}

std::unique_ptr<Tokenizer> make_sentencepiece_vocabulary(const VocabularyOptions& options, TextBatches& text) {
  if (options.max_size == 0)
    refuse_usage("--size", "a number of pieces for --type " + options.type, "none",
                 "give a number, such as --size 8000");
  return make_sentencepiece_tokenizer(learn_sentencepiece(options, text), "the model just trained");
}

}  // namespace

std::vector<VocabularyOptions::UnusedOption> VocabularyOptions::unused_options() const {
  const std::string wordpiece = WordPieceTokenizer::kType, byte_bpe = ByteBpeTokenizer::kType;
  const std::vector<std::string> sentencepiece_types{"bpe", "unigram"};
  // The types that use each option, by its key.
  const std::vector<std::pair<std::string, std::vector<std::string>>> types_by_key{
      {"size", {"word", "char", "bpe", "unigram", "subword-nmt", wordpiece, byte_bpe}},
      {"min_count", {"word", "char", "subword-nmt", wordpiece, byte_bpe}},
      {"character_coverage", sentencepiece_types},
      {"byte_fallback", sentencepiece_types},
      {"threads", sentencepiece_types},
      {"merges", {"subword-nmt"}},
      {"codes", {"subword-nmt"}},
      {"from", {wordpiece, byte_bpe, JsonTokenizer::kType}},
      {"cased", {wordpiece}},
      {"strip_accents", {wordpiece}},
      {"alphabet", {wordpiece}}};
  std::vector<UnusedOption> unused;
  for (const auto& [key, types] : types_by_key)
    if (std::find(types.begin(), types.end(), type) == types.end())
      unused.push_back({key, "--type " + join_alternatives(types),
                        found_value("--type " + type, "--type " + VocabularyOptions().type)});
    else if (!source_path.empty() && (key == "alphabet" || key == "min_count"))
      unused.push_back({key, "--size, to learn a vocabulary", "--from, to convert a vocabulary"});
  return unused;
}

void VocabularyOptions::check() const {
  if (type == JsonTokenizer::kType && source_path.empty())
    refuse_usage("--type tokenizer-json", "--from, a tokenizer.json or a model folder", "no --from",
                 "give --from PATH and no text files, since mh-prep does not learn vocabularies of this type");
  VocabularyOptions options = *this, defaults;
  FieldLister lister, default_lister;
  lister.section("", options), default_lister.section("", defaults);
  for (const UnusedOption& unused : unused_options())
    for (size_t i = 0; i < lister.descriptions().size(); ++i)
      if (const FieldDescription& field = lister.descriptions()[i];
          field.key == unused.key && field.value != default_lister.descriptions()[i].value)
        refuse_usage(field_name("", field.key), unused.expected, unused.found,
                     str("leave ", field_name("", field.key), " out"));
  if (type == "subword-nmt" && (num_merges > 0) == !codes_path.empty())
    refuse_usage("--type subword-nmt", "either --merges, a number of merges to learn, or --codes, a file of merges",
                 num_merges > 0 ? "both" : "neither", "give exactly one of the two options, such as --merges 10000");
  const bool learns_or_converts = type == WordPieceTokenizer::kType || type == ByteBpeTokenizer::kType;
  if (learns_or_converts && (max_size > 0) == !source_path.empty())
    refuse_usage("--type " + type, "either --size, to learn a vocabulary, or --from, to read one",
                 max_size > 0 ? "both" : "neither", "give exactly one of the two options, such as --size 30000");
  if (type == ByteBpeTokenizer::kType && source_path.empty() && max_size < kMinByteBpeSize)
    refuse_usage("--size", str("at least ", kMinByteBpeSize, ": a piece for each byte, and ", kEndOfText),
                 str(max_size), "raise --size");
  if (!source_path.empty() && type == WordPieceTokenizer::kType && std::filesystem::is_directory(source_path))
    refuse_text_options("--from", source_path, cased, strip_accents);
}

std::unique_ptr<Tokenizer> make_vocabulary(const VocabularyOptions& options, TextBatches& text) {
  options.check();
  if (options.type == "word") return make_word_vocabulary(options, text);
  if (options.type == "char") return make_char_vocabulary(options, text);
  if (options.type == "subword-nmt") return make_subword_vocabulary(options, text);
  if (options.type == WordPieceTokenizer::kType) {
    if (options.source_path.empty()) return make_wordpiece_vocabulary(options, text);
    return read_wordpiece_vocabulary(options.source_path, normalisation_of(options));
  }
  if (options.type == ByteBpeTokenizer::kType) {
    if (options.source_path.empty()) return make_byte_bpe_vocabulary(options, text);
    return read_byte_bpe_folder(options.source_path);
  }
  if (options.type == JsonTokenizer::kType) {
    auto tokenizer = load_tokenizer(options.source_path);
    if (tokenizer->type() != JsonTokenizer::kType)
      refuse_input(options.source_path, "a tokenizer that needs the type tokenizer-json",
                   "a tokenizer of the type " + tokenizer->type(),
                   tokenizer->type() == SentencePieceTokenizer::kType
                       ? "give the folder as --vocab of mh-prep lm, without a vocabulary file"
                       : "give --type " + tokenizer->type());
    return tokenizer;
  }
  if (options.type == "byte") {
    TextBatch batch;  // reads the text only to report missing or empty inputs
    uint64_t num_bytes = 0;
    while (text.next(batch)) num_bytes += batch.input_bytes;
    if (num_bytes == 0) refuse_empty_text();
    return make_byte_tokenizer();
  }
  return make_sentencepiece_vocabulary(options, text);
}

}  // namespace mh::text
