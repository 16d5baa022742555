// Tests of tokenizers: round trips, comparison of optimised code with naive references and with the SentencePiece
// library, and refusal of damaged vocabularies.
#include "text/tokenizer.h"

#include <rapidcheck.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <xxhash.h>

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/random.h"
#include "fixtures/folder.h"
#include "fixtures/shards.h"
#include "fixtures/status.h"
#include "text/folder_tokenizer.h"
#include "text/records/language_modelling.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/vocabulary.h"
#include "text/word_map.h"

// The SentencePiece library exports this function, but its installed headers do not declare it.
namespace sentencepiece::logging {
void SetMinLogLevel(int level);
}

using namespace mh;
using namespace mh::io;
using namespace mh::text;
using shards::read_tokens;
using shards::TextShard;

namespace {

using TokenIds = std::vector<int32_t>;
using Words = std::vector<std::string>;

std::string utf8(uint32_t c) {
  auto byte = [](uint32_t v) { return std::string(1, static_cast<char>(v)); };
  auto continuation_byte = [&](int shift) { return byte(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) return byte(c);
  if (c < 0x800) return byte(0xC0 | c >> 6) + continuation_byte(0);
  if (c < 0x10000) return byte(0xE0 | c >> 12) + continuation_byte(6) + continuation_byte(0);
  return byte(0xF0 | c >> 18) + continuation_byte(12) + continuation_byte(6) + continuation_byte(0);
}

std::string join_text(const Words& parts, const std::string& separator = "") {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) text += (i > 0 ? separator : "") + parts[i];
  return text;
}

rc::Gen<std::string> characters(uint32_t low, uint32_t high) {
  return rc::gen::map(rc::gen::inRange(low, high), [](uint32_t c) { return utf8(c == '\n' ? 'n' : c); });
}

// Generates a line of valid UTF-8 without NUL and line feed: repeated words, words of 1 to 39 bytes for the 8- and
// 16-byte paths of WordMap, white space of all kinds, control, combining and astral characters, and U+2581, which
// SentencePiece writes for a space.
rc::Gen<std::string> line_of_text() {
  auto repeated_word = rc::gen::element<std::string>("a", "ab", "the", "tha", "thin", "<x>", "<unk>", "caf\u00e9",
                                                     "cafe\u0301", "\u6771\u4eac", "\U0001F600", "\u00bd", "\ufb01");
  auto spaces = rc::gen::element<std::string>(" ", " ", " ", "  ", "\t", "\v", "\f", "\u3000", "\u00a0", "\u2581",
                                              "\ufeff", "\u200b", "\r");
  auto long_word = rc::gen::map(rc::gen::inRange<size_t>(1, 40), [](size_t n) { return std::string(n, 'x'); });
  auto any_character =
      rc::gen::oneOf(characters(1, 0x20), characters(0x20, 0x80), characters(0x80, 0x300), characters(0x300, 0x370),
                     characters(0x2000, 0x3100), characters(0xE000, 0x10000), characters(0x10000, 0x110000));
  auto part = rc::gen::oneOf(repeated_word, repeated_word, spaces, spaces, long_word, any_character);
  return rc::gen::map(rc::gen::container<Words>(part), [](const Words& parts) { return join_text(parts); });
}

// words_of() and characters_of() are naive references for the word and the char tokenizer.
Words words_of(const std::string& text) {
  Words words;
  std::string word;
  for (char c : text + " ") {
    if (!is_word_space(c)) {
      word += c;
    } else if (!word.empty()) {
      words.push_back(word);
      word.clear();
    }
  }
  return words;
}
Words characters_of(const std::string& text) {
  Words characters;
  for (char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) characters.emplace_back();
    characters.back() += c;
  }
  return characters;
}

std::vector<Piece> add_special_pieces(const std::string& end_of_line, const Words& known_texts) {
  std::vector<Piece> pieces{{end_of_line, 1}, {kUnknownPiece, 0}};
  for (const std::string& text : std::set<std::string>(known_texts.begin(), known_texts.end()))
    if (text != end_of_line && text != kUnknownPiece) pieces.push_back({text, 2});
  return pieces;
}

Words even_elements(const Words& words) {
  Words even_words;
  for (size_t i = 0; i < words.size(); i += 2) even_words.push_back(words[i]);
  return even_words;
}

Words replace_unknown(const Words& words, const Words& known_texts) {
  std::set<std::string> set(known_texts.begin(), known_texts.end());
  Words result;
  for (const std::string& text : words) result.push_back(set.count(text) > 0 ? text : kUnknownPiece);
  return result;
}

TokenIds encode_text(const Tokenizer& tokenizer, const std::string& text) {
  TokenIds ids;
  tokenizer.encoder()->encode(text, ids);
  return ids;
}

TokenIds naive_ids(const std::vector<Piece>& pieces, const Words& parts) {
  std::map<std::string, int32_t> numbers;
  for (size_t i = 0; i < pieces.size(); ++i) numbers[pieces[i].text] = static_cast<int32_t>(i);
  TokenIds ids;
  for (const std::string& part : parts) ids.push_back(numbers.count(part) > 0 ? numbers[part] : 1);
  return ids;
}

constexpr int kUsageStatus = static_cast<int>(Exit::usage);
constexpr int kInputStatus = static_cast<int>(Exit::input);

// Generates lines of 0 to 19 words from a vocabulary of at most 400 words with falling frequencies.
Words random_lines(size_t count, uint64_t seed) {
  RandomSequence random(RandomStream(seed, "text"));
  static const char* const syllables[] = {"ka", "to", "mi", "re", "lu", "sen", "or", "\u00e9t", "\u6771", "\U0001F600"};
  auto word = [&] {
    uint64_t at = random.uniform_below(random.uniform_below(400) + 1);
    std::string text = syllables[at % 10];
    for (; at > 0; at /= 7) text += syllables[at % 10];
    return text;
  };
  Words lines(count);
  for (std::string& line : lines)
    for (uint64_t n = random.uniform_below(20); n > 0; --n) line += (line.empty() ? "" : " ") + word();
  return lines;
}

class LineIterator : public sentencepiece::SentenceIterator {
 public:
  explicit LineIterator(Words lines) : lines_(std::move(lines)) {}
  bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  Words lines_;
  size_t at_ = 0;
};

using Options = std::unordered_map<std::string, std::string>;

std::string train_model(const std::string& type, Options options = {}) {
  sentencepiece::logging::SetMinLogLevel(2);
  options.insert({{"model_type", type},
                  {"vocab_size", "120"},
                  {"character_coverage", "1"},
                  {"num_threads", "1"},
                  {"minloglevel", "2"}});
  std::string model;
  LineIterator lines(random_lines(600, 1));
  auto status = sentencepiece::SentencePieceTrainer::Train(options, &lines, &model);
  INFO(status.ToString());
  REQUIRE(status.ok());
  return model;
}

std::string encode_to_shard(const Words& files, const Tokenizer& tokenizer, int threads, const std::string& path) {
  TextBatches text(files, LineEnds::as_text, [&](std::string_view t) { return tokenizer.find_split(t); });
  ShardHeader header;
  header.vocabulary_size = tokenizer.size();
  header.set_kind(kTextKind);
  auto sink = open_sink(path);
  ShardWriter writer(*sink, header);
  encode_lines(text, tokenizer, threads, writer);
  writer.finish();
  sink->close();
  return read_text_file(path);
}

}  // namespace

TEST_CASE("WordMap has the same contents as std::map after the same insertions") {
  REQUIRE(rc::check("WordMap has the same contents as std::map for keys of any bytes", [] {
    auto keys = *rc::gen::container<Words>(
        rc::gen::resize(40, rc::gen::container<std::string>(rc::gen::element<char>('a', 'b', '\0', ' ', '\xff'))));
    std::map<std::string, int32_t> expected;
    WordMap<int32_t> map;
    for (size_t i = 0; i < keys.size(); ++i) expected[keys[i]] = map[keys[i]] = static_cast<int32_t>(i);
    RC_ASSERT(map.size() == expected.size());
    for (const auto& [key, value] : expected) {
      RC_ASSERT(map.find(std::string_view(key)) != nullptr);
      RC_ASSERT(*map.find(std::string_view(key)) == value);
      // Looks up the key as the start of a longer text, and the key extended by the next byte of that text.
      std::string longer_text = key + "aaaaaaaaaaaaaaaaaaaaaaaa";
      const char* end = longer_text.data() + longer_text.size();
      RC_ASSERT(*map.find(WordKey({longer_text.data(), key.size()}, end)) == value);
      const int32_t* extended_value = map.find(WordKey({longer_text.data(), key.size() + 1}, end));
      RC_ASSERT((extended_value != nullptr) == (expected.count(key + "a") > 0));
    }
    size_t num_visited = 0;
    map.for_each([&](std::string_view key, int32_t value) {
      ++num_visited;
      RC_ASSERT(expected.at(std::string(key)) == value);
    });
    RC_ASSERT(num_visited == expected.size());
  }));
  WordMap<uint64_t> large_map;
  for (uint64_t i = 0; i < 50000; ++i) large_map[std::to_string(i * i)] = i;
  CHECK(large_map.size() == 50000);
  bool finds_all = true;
  for (uint64_t i = 0; i < 50000; ++i) {
    const std::string key = std::to_string(i * i);
    finds_all =
        finds_all && large_map.find(std::string_view(key)) != nullptr && *large_map.find(std::string_view(key)) == i;
  }
  CHECK(finds_all);
  CHECK(large_map.find(std::string_view("2")) == nullptr);
}

TEST_CASE("the word tokenizer decodes to words joined by single spaces, with <unk> for unknown words") {
  REQUIRE(rc::check("the word tokenizer equals a naive reference", [] {
    const std::string line = *line_of_text();
    const Words line_words = words_of(line),
                known_texts = *rc::gen::arbitrary<bool>() ? line_words : even_elements(line_words);
    const std::vector<Piece> pieces = add_special_pieces(kEndOfLinePiece, known_texts);
    auto tokenizer = make_word_tokenizer(pieces);
    const TokenIds ids = encode_text(*tokenizer, line);
    RC_ASSERT(ids == naive_ids(pieces, line_words));
    RC_ASSERT(tokenizer->decode(ids) == join_text(replace_unknown(line_words, known_texts), " "));
    RC_ASSERT(parse_tokenizer(tokenizer->serialize(), "x")->serialize() == tokenizer->serialize());
  }));
}

TEST_CASE("the char tokenizer decodes to the text, with <unk> for unknown characters") {
  REQUIRE(rc::check("the char tokenizer equals a naive reference", [] {
    const std::string line = *line_of_text();
    const Words line_characters = characters_of(line),
                known_texts = *rc::gen::arbitrary<bool>() ? line_characters : even_elements(line_characters);
    const std::vector<Piece> pieces = add_special_pieces("\n", known_texts);
    auto tokenizer = make_char_tokenizer(pieces);
    const TokenIds ids = encode_text(*tokenizer, line);
    RC_ASSERT(ids == naive_ids(pieces, line_characters));
    RC_ASSERT(tokenizer->decode(ids) == join_text(replace_unknown(line_characters, known_texts)));
    RC_ASSERT(parse_tokenizer(tokenizer->serialize(), "x")->serialize() == tokenizer->serialize());
  }));
}

TEST_CASE("the byte tokenizer decodes any bytes to themselves") {
  auto tokenizer = make_byte_tokenizer();
  REQUIRE(rc::check("decode() inverts encode()", [&] {
    const auto bytes = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
    RC_ASSERT(tokenizer->decode(encode_text(*tokenizer, bytes)) == bytes);
  }));
}

TEST_CASE("the SentencePiece tokenizer encodes and decodes as the SentencePiece library does") {
  for (const auto& [type, options] :
       std::vector<std::pair<std::string, Options>>{{"bpe", {}},
                                                    {"unigram", {}},
                                                    {"bpe", {{"byte_fallback", "true"}, {"vocab_size", "400"}}},
                                                    {"unigram", {{"user_defined_symbols", "<x>,th,\u2581a"}}},
                                                    {"unigram", {{"normalization_rule_name", "identity"}}},
                                                    {"bpe", {{"normalization_rule_name", "identity"}}},
                                                    {"bpe", {{"remove_extra_whitespaces", "false"}}},
                                                    {"bpe", {{"split_by_whitespace", "false"}}},
                                                    {"unigram", {{"treat_whitespace_as_suffix", "true"}}},
                                                    {"unigram", {{"add_dummy_prefix", "false"}}}}) {
    const std::string name = type + (options.empty() ? "" : " " + options.begin()->first);
    INFO(name);
    const std::string model = train_model(type, options);
    auto tokenizer = make_sentencepiece_tokenizer(model, "x");
    auto encoder = tokenizer->encoder();  // one encoder for all lines, to test its cache of words
    sentencepiece::SentencePieceProcessor library_processor;
    REQUIRE(library_processor.LoadFromSerializedProto(model).ok());
    CHECK(rc::check(name, [&] {
      const std::string line = *line_of_text();
      std::vector<int> expected;
      std::string decoded_text;
      RC_ASSERT(library_processor.Encode(line, &expected).ok());
      RC_ASSERT(library_processor.Decode(expected, &decoded_text).ok());
      for (int pass = 0; pass < 2; ++pass) {
        TokenIds ids;
        encoder->encode(line, ids);
        RC_ASSERT(ids == TokenIds(expected.begin(), expected.end()));
        RC_ASSERT(tokenizer->decode(ids) == decoded_text);
      }
    }));
    if (options.empty())
      for (const std::string& line : random_lines(100, 2))
        CHECK(tokenizer->decode(encode_text(*tokenizer, line)) == line);
  }
}

namespace {

// Returns a SentencePiece model of the form of Llama 2 and Mistral.
const std::string& llama_model() {
  static const std::string model = train_model("bpe", {{"byte_fallback", "true"},
                                                       {"vocab_size", "400"},
                                                       {"normalization_rule_name", "identity"},
                                                       {"remove_extra_whitespaces", "false"}});
  return model;
}

// Returns the tokenizer of a folder with tokenizer.model and, unless `config` is empty, tokenizer_config.json.
std::unique_ptr<Tokenizer> folder_tokenizer(const std::string& model, const std::string& config = "") {
  Folder folder;
  write_file_atomically(folder.file("tokenizer.model"), model);
  if (!config.empty()) write_file_atomically(folder.file("tokenizer_config.json"), config);
  return read_tokenizer_folder(folder.path.string());
}

}  // namespace

TEST_CASE("a folder with tokenizer.model has the ids and the begin token of the SentencePiece library") {
  const auto tokenizer = folder_tokenizer(llama_model());
  sentencepiece::SentencePieceProcessor library_processor;
  REQUIRE(library_processor.LoadFromSerializedProto(llama_model()).ok());
  REQUIRE(library_processor.SetEncodeExtraOptions("bos").ok());
  CHECK(tokenizer->begin_id() == library_processor.bos_id());
  CHECK(tokenizer->end_of_line_id() == library_processor.bos_id());
  CHECK(dynamic_cast<const SentencePieceTokenizer&>(*tokenizer).end_id() == library_processor.eos_id());
  CHECK(tokenizer->encodes_line_feeds());
  CHECK(rc::check("ids", [&] {
    const std::string text = *line_of_text() + "\n" + *line_of_text();
    std::vector<int> expected;
    RC_ASSERT(library_processor.Encode(text, &expected).ok());
    const TokenIds ids = encode_text(*tokenizer, text);
    RC_ASSERT(expected.at(0) == tokenizer->begin_id());
    expected.erase(expected.begin());
    RC_ASSERT(ids == TokenIds(expected.begin(), expected.end()));
    std::string library_text;
    RC_ASSERT(library_processor.Decode(expected, &library_text).ok());
    RC_ASSERT(tokenizer->decode(ids) == library_text);
  }));
  CHECK(tokenizer->decode(encode_text(*tokenizer, "ka  to\n\nmi ")) == "ka  to\n\nmi ");
  // The vocabulary file keeps the tokens around a text, and has another fingerprint than the model alone.
  const auto copy = parse_tokenizer(tokenizer->serialize(), "copy");
  CHECK(copy->begin_id() == tokenizer->begin_id());
  CHECK(copy->encodes_line_feeds());
  CHECK(copy->serialize() == tokenizer->serialize());
  CHECK(dynamic_cast<const SentencePieceTokenizer&>(*copy).model() == llama_model());
  const auto plain = parse_tokenizer(llama_model(), "plain");
  CHECK(plain->begin_id() == -1);
  CHECK(plain->end_of_line_id() == library_processor.eos_id());
  CHECK(!plain->encodes_line_feeds());
  CHECK(plain->serialize() == llama_model());
  CHECK(plain->fingerprint() != copy->fingerprint());
  // The usual normalisation replaces line feeds by spaces.
  CHECK(!folder_tokenizer(train_model("bpe"))->encodes_line_feeds());
}

TEST_CASE("tokenizer_config.json states the tokens around a text of tokenizer.model") {
  const auto begin_of = [](const std::string& config) { return folder_tokenizer(llama_model(), config)->begin_id(); };
  CHECK(begin_of(R"({"tokenizer_class": "GemmaTokenizer", "add_prefix_space": true})") == 1);
  CHECK(begin_of(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false})") == -1);
  CHECK(begin_of(R"({"tokenizer_class": "Other", "add_bos_token": true, "bos_token": {"content": "ka"}})") > 2);
  CHECK(folder_tokenizer(llama_model(), R"({"add_bos_token": false})")->end_of_line_id() == 2);
  CHECK(folder_tokenizer(llama_model(), R"({"add_bos_token": false, "eos_token": "<s>"})")->end_of_line_id() == 1);
  // A special token that the model lacks does not occur in text.
  CHECK(begin_of(R"({"pad_token": "<pad>", "added_tokens_decoder": {"400": {"content": "<pad>", "special": true}}})") ==
        1);
  for (const char* config :
       {R"({"tokenizer_class": "Other"})", R"({"add_prefix_space": false})", R"({"add_bos_token": 1})",
        R"({"bos_token": "<missing>"})", R"({"added_tokens_decoder": {"400": {"content": "<tool>"}}})",
        R"({"eos_token": "<end>", "added_tokens_decoder": {"400": {"content": "<end>", "special": true}}})",
        R"({"added_tokens_decoder": {"1": {"content": "<other>"}}})"}) {
    INFO(config);
    CHECK(status_of([&] { begin_of(config); }) == kInputStatus);
  }
  CHECK(status_of([] { folder_tokenizer(train_model("bpe", {{"bos_id", "-1"}, {"eos_id", "1"}})); }) == kInputStatus);
  CHECK(status_of([] { folder_tokenizer("IQ== 0\nIg== 1\n"); }) == kInputStatus);  // a vocabulary of tiktoken
  const std::string vocabulary = folder_tokenizer(llama_model())->serialize();
  CHECK(folder_tokenizer(vocabulary, R"({"add_bos_token": false})")->begin_id() == 1);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"begin 1", "begin 400"}, {"begin 1\nend 2", "begin -1\nend -1"}, {"entries 400", "entries 399"}}) {
    std::string damaged_file = vocabulary;
    REQUIRE(damaged_file.find(from) != std::string::npos);
    damaged_file.replace(damaged_file.find(from), from.size(), to);
    CHECK(status_of([&] { parse_tokenizer(damaged_file, "damaged"); }) == kInputStatus);
  }
}

TEST_CASE("encode_lines() writes the same shard with several threads as with one") {
  Folder folder;
  // The end of a file ends a batch, so files of many sizes give batches of many sizes. Some files are empty, and file
  // 30 has several batches.
  Words files;
  RandomSequence random(RandomStream(3, "sizes"));
  for (uint64_t i = 0; i < 60; ++i) {
    files.push_back(folder.file("text" + std::to_string(i)));
    size_t count = i == 30                         ? 40000
                   : random.uniform_below(10) == 0 ? 0
                                                   : random.uniform_below(uint64_t{1} << random.uniform_below(11));
    std::string text = join_text(random_lines(count, i), "\n");
    write_file_atomically(files.back(), text + (i % 3 == 0 || text.empty() ? "" : "\n"));
  }
  auto batches = [&] { return TextBatches(files, LineEnds::as_text, [](std::string_view t) { return t.size(); }); };
  for (const char* type : {"word", "char", "byte", "bpe"}) {
    INFO(type);
    VocabularyOptions options;
    options.type = type;
    TextBatches text = batches();
    auto tokenizer =
        options.type == "bpe" ? make_sentencepiece_tokenizer(train_model("bpe"), "x") : make_vocabulary(options, text);
    const std::string single_threaded_bytes = encode_to_shard(files, *tokenizer, 1, folder.file("serial"));
    for (int threads : {2, 3, 8})
      CHECK(encode_to_shard(files, *tokenizer, threads, folder.file("parallel")) == single_threaded_bytes);
  }
}

TEST_CASE("a long last line is one record, and is not joined to the first line of the next file") {
  Folder folder;
  const size_t chunk_limit = size_t{1} << 20;
  for (size_t size : {chunk_limit - 1, chunk_limit, chunk_limit + 1, 2 * chunk_limit, 3 * chunk_limit}) {
    std::string line;
    while (line.size() < size) line += "ab ";
    line.resize(size);
    line.back() = 'c';
    for (const char* type : {"word", "char", "byte"}) {
      INFO(type << " " << size);
      write_file_atomically(folder.file("1"), line);
      write_file_atomically(folder.file("2"), "next\n");
      const Words files{folder.file("1"), folder.file("2")};
      VocabularyOptions options;
      options.type = type;
      TextBatches text(files, LineEnds::as_text, [](std::string_view t) { return t.size() - 1; });
      auto tokenizer = options.type == "word" ? make_word_tokenizer(add_special_pieces(kEndOfLinePiece, words_of(line)))
                                              : make_vocabulary(options, text);
      encode_to_shard(files, *tokenizer, 1, folder.file("x.mhs"));
      const TextShard shard = read_tokens(folder.file("x.mhs"));
      CHECK(shard.counts.num_records == 2);
      CHECK(shard.counts.text_bytes == size + 5);
      const bool adds_end_of_line = !tokenizer->takes_any_bytes();
      TokenIds expected = encode_text(*tokenizer, line);
      if (adds_end_of_line) expected.push_back(tokenizer->end_of_line_id());
      const TokenIds second_line = encode_text(*tokenizer, "next");
      expected.insert(expected.end(), second_line.begin(), second_line.end());
      expected.push_back(tokenizer->end_of_line_id());
      CHECK(shard.tokens == expected);
    }
  }
}

TEST_CASE("a vocabulary's fingerprint depends on its type and on the texts, counts and order of its pieces") {
  const Words known_texts{"a", "b", "c"};
  auto pieces = add_special_pieces(kEndOfLinePiece, known_texts);
  const std::string fingerprint = make_word_tokenizer(pieces)->fingerprint();
  CHECK(fingerprint.size() == 32);
  CHECK(make_word_tokenizer(pieces)->fingerprint() == fingerprint);
  CHECK(parse_tokenizer(make_word_tokenizer(pieces)->serialize(), "x")->fingerprint() == fingerprint);
  CHECK(make_char_tokenizer(pieces)->fingerprint() != fingerprint);
  for (size_t i = 0; i < pieces.size(); ++i) {
    auto changed_pieces = pieces;
    changed_pieces[i].text += "z";
    CHECK(make_word_tokenizer(changed_pieces)->fingerprint() != fingerprint);
    changed_pieces = pieces;
    ++changed_pieces[i].count;
    CHECK(make_word_tokenizer(changed_pieces)->fingerprint() != fingerprint);
  }
  std::swap(pieces[2], pieces[3]);
  CHECK(make_word_tokenizer(pieces)->fingerprint() != fingerprint);
}

TEST_CASE("a damaged vocabulary is refused") {
  auto parse = [](const std::string& bytes) { return status_of([&] { parse_tokenizer(bytes, "x"); }); };
  // Returns a vocabulary file with the given type, number of entries and body, and with a valid checksum.
  auto file = [](const std::string& type, const std::string& entries, const std::string& body) {
    char checksum[17];
    std::snprintf(checksum, sizeof checksum, "%016llx",
                  static_cast<unsigned long long>(XXH64(body.data(), body.size(), 0)));
    return "multihead-vocabulary 1\ntype " + type + "\nentries " + entries + "\nxxh64 " + checksum + "\n\n" + body;
  };
  REQUIRE(parse(file("word", "3", "<eos>\t1\n<unk>\t0\nthe\t7\n")) == 0);
  for (const char* entries : {"", "2", "4", "-3", "3x", "99999999999999999999", "18446744073709551615", "1000000000"})
    CHECK(parse(file("word", entries, "<eos>\t1\n<unk>\t0\nthe\t7\n")) == kInputStatus);
  for (const char* body : {"<eos>\t1\n<unk>\t0\nthe\n", "<eos>\t1\n<unk>\t0\nthe\t\n", "<eos>\t1\n<unk>\t0\nthe\t-1\n",
                           "<eos>\t1\n<unk>\t0\nthe\t7", "<eos>\t1\n<unk>\t0\n\t7\n", "<eos>\t1\n<unk>\t0\n<unk>\t7\n",
                           "<eos>\t1\n<unk>\t0\n\xff\t7\n", "<eos>\t1\n<unk>\t0\n\\xff\t7\n",
                           "<eos>\t1\n<unk>\t0\n\\q\t7\n", "<eos>\t1\n<unk>\t0\n\\x4\t7\n", "<eos>\t1\nthe\t7\na\t0\n",
                           "<unk>\t1\n<eos>\t0\nthe\t7\n", "\\x0a\t1\n<unk>\t0\nthe\t7\n"})
    CHECK(parse(file("word", "3", body)) == kInputStatus);
  CHECK(parse(file("word", "0", "")) == kInputStatus);
  CHECK(parse(file("word", "1", "<eos>\t1\n")) == kInputStatus);
  CHECK(parse(file("char", "3", "<eos>\t1\n<unk>\t0\nthe\t7\n")) == kInputStatus);
  CHECK(parse(file("byte", "1", "a\t1\n")) == kInputStatus);
  CHECK(parse(file("wort", "3", "<eos>\t1\n<unk>\t0\nthe\t7\n")) == kInputStatus);
  CHECK(parse("") == kInputStatus);
  CHECK(parse("multihead-vocabulary 1\n") == kInputStatus);

  Words words;
  for (int i = 0; i < 2000; ++i) words.push_back("word" + std::to_string(i * i));
  for (const std::string& intact_file :
       {make_word_tokenizer(add_special_pieces(kEndOfLinePiece, words))->serialize(),
        make_char_tokenizer(add_special_pieces("\n", characters_of("a\u00e9\u6771\U0001F600")))->serialize(),
        make_byte_tokenizer()->serialize()}) {
    REQUIRE(parse(intact_file) == 0);
    const bool has_checksum = intact_file.find("type byte") == std::string::npos;
    for (size_t i = 0; i < 16; ++i) CHECK(parse(intact_file.substr(0, intact_file.size() * i / 16)) == kInputStatus);
    for (size_t prefix_size = 0; prefix_size < std::min<size_t>(intact_file.size(), 100); ++prefix_size)
      CHECK(parse(intact_file.substr(0, prefix_size)) == kInputStatus);
    for (size_t i = 0; i < 16 + 100; ++i) {
      std::string damaged_file = intact_file;
      const size_t offset = i < 16 ? intact_file.size() * i / 16 : std::min(i - 16, intact_file.size() - 1);
      for (int bit = 0; bit < 8; ++bit) {
        damaged_file[offset] = static_cast<char>(damaged_file[offset] ^ (1 << bit));
        INFO("byte " << offset << " bit " << bit << " checksum " << has_checksum);
        CHECK(parse(damaged_file) == kInputStatus);
        damaged_file[offset] = intact_file[offset];
      }
    }
  }
}

TEST_CASE("a damaged SentencePiece model is refused or has another fingerprint") {
  const std::string model = train_model("bpe");
  auto parse = [](const std::string& bytes) { return status_of([&] { parse_tokenizer(bytes, "x"); }); };
  REQUIRE(parse(model) == 0);
  // The file format of SentencePiece has no checksum: a model that is truncated between two pieces or has changed
  // letters is valid, and only its fingerprint differs.
  for (size_t i = 0; i < 16; ++i) {
    const std::string truncated_model = model.substr(0, model.size() * i / 16);
    const int status = parse(truncated_model);
    CHECK((status == kInputStatus || (status == 0 && parse_tokenizer(truncated_model, "x")->fingerprint() !=
                                                         parse_tokenizer(model, "x")->fingerprint())));
    std::string damaged_model = model;
    damaged_model[model.size() * i / 16] ^= 1;
    const int damaged_status = parse(damaged_model);
    CHECK(
        (damaged_status == kInputStatus || (damaged_status == 0 && parse_tokenizer(damaged_model, "x")->fingerprint() !=
                                                                       parse_tokenizer(model, "x")->fingerprint())));
  }
}

TEST_CASE("a vocabulary never exceeds its size limit; a limit below the number of special entries is refused") {
  Folder folder;
  write_file_atomically(folder.file("text"), "a b\n");
  for (const char* type : {"word", "char"})
    for (int64_t size : {1, 2, 3, 10}) {
      TextBatches text({folder.file("text")}, LineEnds::as_text, [](std::string_view t) { return t.size(); });
      VocabularyOptions options;
      options.type = type;
      options.max_size = size;
      int64_t actual_size = 0;
      const int status = status_of([&] { actual_size = make_vocabulary(options, text)->size(); });
      CHECK(status == (size < 2 ? kUsageStatus : 0));
      if (status == 0) CHECK((actual_size >= 2 && actual_size <= size));
    }
}
