// Tests that every text file that a tool writes reads back equal or is refused when it is written: vocabularies of
// every type, files for other programs (vocab.txt, vocab.json, merges.txt, codes), tables, predictions and
// configurations. The entries contain special characters.
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <set>

#include "base/config.h"
#include "base/error.h"
#include "base/json_types.h"
#include "base/table.h"
#include "base/text.h"
#include "fixtures/folder.h"
#include "fixtures/status.h"
#include "metrics/predictions.h"
#include "text/byte_bpe.h"
#include "text/merges.h"
#include "text/records/classification.h"
#include "text/tokenizer.h"
#include "text/wordpiece.h"

using namespace mh;
using namespace mh::io;
using namespace mh::text;

namespace {

using Words = std::vector<std::string>;

// Generates valid UTF-8 text from line ends, white space, control characters, strings that have a meaning in one of the
// file formats, letters, and a string of 5000 letters.
rc::Gen<std::string> special_text() {
  auto part = rc::gen::element<std::string>(
      "\r", "\n", "\t", " ", "\v", "\f", std::string(1, '\0'), "\x01", "\x1c", "\x7f", "\u0085", "\u00a0", "\u2028",
      "\u2029", "\u3000", "\ufeff", "\u200b", "\u2581", "\u2585", "\u0120", "\\", "\\x20", "\"", "'", "#", "#version",
      "#version: 0.2", "@@", "</w>", "##", "<unk>", "<eos>", "[UNK]", "{", "}", "-", "a", "b", "\u00e9", "\u6771",
      "\U0001F600", "multihead-vocabulary 1\n", std::string(5000, 'x'));
  return rc::gen::map(rc::gen::resize(4, rc::gen::container<Words>(part)), [](const Words& parts) {
    std::string text;
    for (const std::string& p : parts) text += p;
    return text;
  });
}

// Generates the entries of a vocabulary: distinct non-empty strings other than <eos>, <unk> and a line feed.
rc::Gen<Words> special_entries() {
  return rc::gen::map(rc::gen::resize(12, rc::gen::container<Words>(special_text())), [](const Words& words) {
    Words distinct;
    std::set<std::string> known_texts{"", "<eos>", "<unk>", "\n"};
    for (const std::string& text : words)
      if (known_texts.insert(text).second) distinct.push_back(text);
    return distinct;
  });
}

std::vector<Piece> pieces_of(const Words& special, const Words& entries) {
  std::vector<Piece> pieces;
  for (const Words* words : {&special, &entries})
    for (const std::string& text : *words) pieces.push_back({text, pieces.size() * 3});
  return pieces;
}

bool have_same_pieces(const std::vector<Piece>& a, const std::vector<Piece>& b, bool compares_counts = true) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const Piece& x, const Piece& y) {
    return x.text == y.text && (!compares_counts || x.count == y.count);
  });
}

rc::Gen<std::vector<Merge>> special_merges() {
  return rc::gen::map(rc::gen::resize(8, rc::gen::container<std::vector<std::pair<std::string, std::string>>>(
                                             rc::gen::pair(special_text(), special_text()))),
                      [](const auto& pairs) {
                        std::vector<Merge> merges;
                        for (const auto& [left, right] : pairs)
                          if (!left.empty() && !right.empty()) merges.push_back({left, right});
                        return merges;
                      });
}

// Returns the result of `write`, or no value if `write` throws Error(input).
std::optional<std::string> write_or_refuse(const std::function<std::string()>& write) {
  try {
    return write();
  } catch (const Error& error) {
    RC_ASSERT(error.exit() == Exit::input);
    RC_ASSERT(std::string(error.what()).find("expected") != std::string::npos);
    return {};
  }
}

bool is_plain(const std::string& text) {
  return text.find_first_of(std::string(" \t\r\n\v\f\0", 7)) == text.npos && text.find("multihead") == text.npos &&
         !text.starts_with("\ufeff") && !text.starts_with("#version");
}

// Returns the text that an escaped field of a table stands for.
std::string unescape(const std::string& field) {
  std::string text;
  for (size_t i = 0; i < field.size(); ++i) {
    if (field[i] != '\\') {
      text += field[i];
      continue;
    }
    REQUIRE(field.substr(i, 2) == "\\x");
    text += static_cast<char>(std::stoi(field.substr(i + 2, 2), nullptr, 16));
    i += 3;
  }
  return text;
}

}  // namespace

TEST_CASE("word, char and subword-nmt vocabularies read back equal", "[round-trip]") {
  CHECK(rc::check("for any entries", [] {
    const Words entries = *special_entries();
    const std::vector<Merge> merges = *special_merges();
    for (const char* type : {"word", "char", "subword-nmt"}) {
      const bool has_merges = std::string(type) == "subword-nmt";
      const auto pieces = pieces_of({std::string(type) == "char" ? "\n" : "<eos>", "<unk>"}, entries);
      const std::string file = serialize_vocabulary(type, pieces, has_merges ? &merges : nullptr);
      const VocabularyFile reread_file = read_vocabulary(file, "v");
      RC_ASSERT(reread_file.type == type);
      RC_ASSERT(have_same_pieces(reread_file.pieces, pieces));
      RC_ASSERT(!has_merges || reread_file.merges == merges);
      RC_ASSERT(parse_tokenizer(file, "v")->serialize() == file);
    }
  }));
  // serialize_vocabulary() refuses entries that no reader accepts.
  for (const std::string invalid : {"", "\xff", "a\xc3", "again"}) {
    const std::vector<Piece> pieces = pieces_of({"<eos>", "<unk>", "again"}, {invalid});
    CHECK(status_of([&] { serialize_vocabulary("word", pieces); }) == 3);
    const std::vector<Merge> merges{{"a", invalid}};
    if (invalid != "again")
      CHECK(status_of([&] { serialize_vocabulary("subword-nmt", pieces_of({"<eos>", "<unk>"}, {}), &merges); }) == 3);
  }
}

TEST_CASE("WordPiece vocabularies read back equal; BERT's vocab.txt reads back equal or is refused when written",
          "[round-trip]") {
  const Words special(std::begin(kSpecialPieces), std::end(kSpecialPieces));
  CHECK(rc::check("for any entries", [&] {
    Words entries = *special_entries();
    std::erase(entries, "[UNK]");
    const auto pieces = *rc::gen::arbitrary<bool>() ? pieces_of(special, entries) : pieces_of(entries, special);
    const BertNormalisation normalisation{*rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<bool>()};
    const std::string file = serialize_vocabulary("wordpiece", pieces, nullptr, &normalisation);
    const VocabularyFile reread_file = read_vocabulary(file, "v");
    RC_ASSERT(have_same_pieces(reread_file.pieces, pieces));
    RC_ASSERT(reread_file.normalisation == normalisation);
    const auto vocab_txt = write_or_refuse([&] { return serialize_wordpieces(pieces); });
    if (vocab_txt) RC_ASSERT(have_same_pieces(read_wordpieces(*vocab_txt, "vocab.txt"), pieces, false));
    else RC_ASSERT(!std::all_of(entries.begin(), entries.end(), is_plain));
  }));
  const auto plain_pieces = pieces_of(special, {"a", "##b"});
  CHECK(have_same_pieces(read_wordpieces(serialize_wordpieces(plain_pieces), "vocab.txt"), plain_pieces, false));
}

TEST_CASE("subword-nmt codes read back equal or are refused when written", "[round-trip]") {
  CHECK(rc::check("for any merges", [&] {
    const std::vector<Merge> merges = *special_merges();
    const auto file = write_or_refuse([&] { return serialize_codes(merges, "v"); });
    if (file) RC_ASSERT(read_codes(*file, "codes") == merges);
    else
      RC_ASSERT(!std::all_of(merges.begin(), merges.end(),
                             [](const Merge& m) { return is_plain(m.left) && is_plain(m.right); }));
  }));
  // A carriage return within a line is an ordinary character.
  const std::vector<Merge> merges_with_returns{{"a\r", "\rb"}, {"\u2028", "\u0085"}};
  CHECK(read_codes(serialize_codes(merges_with_returns, "v"), "codes") == merges_with_returns);
  for (const Merge& invalid : {Merge{"a", "\r"}, Merge{"\r", "a"}, Merge{"a", "b\r"}, Merge{"a b", "c"},
                               Merge{"a", "b\n"}, Merge{"", "a"}, Merge{"a", ""}, Merge{"a", "\xff"}})
    CHECK_THROWS_WITH(serialize_codes({{"a", "b"}, invalid}, "v"), Catch::Contains("v: merge 2"));
}

TEST_CASE("GPT-2's vocab.json and merges.txt read back equal or are refused when written", "[round-trip]") {
  CHECK(rc::check("for any pieces and merges", [&] {
    const Words entries = *special_entries();
    NumberedPieces pieces;
    for (const std::string& text : entries) pieces.emplace(3 * pieces.size(), text);
    const auto json = write_or_refuse([&] { return serialize_byte_bpe_pieces(pieces); });
    RC_ASSERT(json.has_value() == !entries.empty());
    if (json) RC_ASSERT(read_numbered_pieces(*json, "vocab.json") == pieces);
    const std::vector<Merge> merges = *special_merges();
    const auto text = write_or_refuse([&] { return serialize_byte_bpe_merges(merges); });
    if (text) RC_ASSERT(read_byte_bpe_merges(*text, "merges.txt") == merges);
  }));
  const std::vector<Merge> plain_merges{{"a", "b"}, {"ab", "c"}};
  CHECK(read_byte_bpe_merges(serialize_byte_bpe_merges(plain_merges), "merges.txt") == plain_merges);
}

TEST_CASE("predictions with any ids and answers read back equal", "[round-trip]") {
  Folder folder;
  CHECK(rc::check("for any ids and answers", [&] {
    const Words ids = *special_entries();
    nlohmann::ordered_json predictions = nlohmann::ordered_json::object();
    metrics::Predictions expected;
    for (const std::string& id : ids) predictions[id] = expected[id] = *special_text();
    write_file_atomically(folder.file("predictions"), predictions.dump());
    RC_ASSERT(metrics::read_predictions(folder.file("predictions")) == expected);
  }));
}

TEST_CASE("escaped table fields and key-value lines unescape to the original text", "[round-trip]") {
  CHECK(table_field("") == "-");
  CHECK(table_field("-") == "\\x2d");
  CHECK(rc::check("for any text", [] {
    const std::string text = *special_text();
    const std::string field = table_field(text);
    RC_ASSERT(field.find_first_of(" \t\r\n\v\f\x7f") == field.npos);
    RC_ASSERT(!field.empty());
    RC_ASSERT((field == "-" ? "" : unescape(field)) == text);
    const std::string line = key_value_line("key", text);
    RC_ASSERT(std::count(line.begin(), line.end(), '\n') == 1);
    RC_ASSERT(std::count(line.begin(), line.end(), '\t') == 1);
    RC_ASSERT(line.find('\r') == line.npos);
    RC_ASSERT(unescape(line.substr(4, line.size() - 5)) == text);
  }));
}

namespace {

struct TextOptions {
  std::string text;
  std::vector<std::string> list;
  void describe(Fields& f) {
    f.field("text", text, "a text");
    f.field("list", list, "a list of texts");
  }
};

}  // namespace

TEST_CASE("strings of a configuration read back equal from the written TOML", "[round-trip]") {
  CHECK(rc::check("for any text", [] {
    TextOptions options{*special_text(), *special_entries()};
    TomlWriter writer;
    writer.section("part", options);
    const std::string toml = writer.text();
    Config config;
    config.load_text(toml, "config.toml");
    TextOptions reread_options;
    config.read("part", reread_options);
    config.check_all_known();
    RC_ASSERT(reread_options.text == options.text);
    RC_ASSERT(reread_options.list == options.list);
    RC_ASSERT(config_difference_texts(toml, toml, {""}).empty());
  }));
}
