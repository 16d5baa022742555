// Every text file that a tool writes is read back as it was, or is refused when it is written: vocabularies of every
// type, the files of other programs, tables, predictions and configurations, over entries with every odd character.
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
#include "text/records/classification/examples.h"
#include "text/tokenizer.h"
#include "text/wordpiece.h"

using namespace mh;
using namespace mh::io;
using namespace mh::text;

namespace {

using Words = std::vector<std::string>;

// Valid UTF-8 of odd parts: line ends and white space of all kinds, marks of the formats, text of any length.
rc::Gen<std::string> odd_text() {
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

// Different entries that are not empty.
rc::Gen<Words> odd_entries() {
  return rc::gen::map(rc::gen::resize(12, rc::gen::container<Words>(odd_text())), [](const Words& all) {
    Words kept;
    std::set<std::string> seen{"", "<eos>", "<unk>", "\n"};
    for (const std::string& text : all)
      if (seen.insert(text).second) kept.push_back(text);
    return kept;
  });
}

std::vector<Piece> pieces_of(const Words& special, const Words& entries) {
  std::vector<Piece> pieces;
  for (const Words* words : {&special, &entries})
    for (const std::string& text : *words) pieces.push_back({text, pieces.size() * 3});
  return pieces;
}

bool same(const std::vector<Piece>& a, const std::vector<Piece>& b, bool counts = true) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const Piece& x, const Piece& y) {
    return x.text == y.text && (!counts || x.count == y.count);
  });
}

rc::Gen<std::vector<Merge>> odd_merges() {
  return rc::gen::map(rc::gen::resize(8, rc::gen::container<std::vector<std::pair<std::string, std::string>>>(
                                             rc::gen::pair(odd_text(), odd_text()))),
                      [](const auto& pairs) {
                        std::vector<Merge> merges;
                        for (const auto& [left, right] : pairs)
                          if (!left.empty() && !right.empty()) merges.push_back({left, right});
                        return merges;
                      });
}

// What `write` gives, or nothing where it refuses with Error(input).
std::optional<std::string> written(const std::function<std::string()>& write) {
  try {
    return write();
  } catch (const Error& error) {
    RC_ASSERT(error.exit() == Exit::input);
    RC_ASSERT(std::string(error.what()).find("expected") != std::string::npos);
    return {};
  }
}

bool plain(const std::string& text) {
  return text.find_first_of(std::string(" \t\r\n\v\f\0", 7)) == text.npos && text.find("multihead") == text.npos &&
         !text.starts_with("\ufeff") && !text.starts_with("#version");
}

// The text of a field of a table.
std::string unescaped(const std::string& field) {
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

TEST_CASE("vocabularies of words, characters and merges come back as they were", "[round-trip]") {
  CHECK(rc::check("of any entries", [] {
    const Words entries = *odd_entries();
    const std::vector<Merge> merges = *odd_merges();
    for (const char* type : {"word", "char", "subword-nmt"}) {
      const bool merged = std::string(type) == "subword-nmt";
      const auto pieces = pieces_of({std::string(type) == "char" ? "\n" : "<eos>", "<unk>"}, entries);
      const std::string file = write_vocabulary(type, pieces, merged ? &merges : nullptr);
      const VocabularyFile again = read_vocabulary(file, "v");
      RC_ASSERT(again.type == type);
      RC_ASSERT(same(again.pieces, pieces));
      RC_ASSERT(!merged || again.merges == merges);
      RC_ASSERT(parse_tokenizer(file, "v")->serialize() == file);
    }
  }));
  // What no reader takes is not written.
  for (const std::string bad : {"", "\xff", "a\xc3", "again"}) {
    const std::vector<Piece> pieces = pieces_of({"<eos>", "<unk>", "again"}, {bad});
    CHECK(status_of([&] { write_vocabulary("word", pieces); }) == 3);
    const std::vector<Merge> merges{{"a", bad}};
    if (bad != "again")
      CHECK(status_of([&] { write_vocabulary("subword-nmt", pieces_of({"<eos>", "<unk>"}, {}), &merges); }) == 3);
  }
}

TEST_CASE("vocabularies of WordPiece and BERT's vocab.txt come back, or are not written", "[round-trip]") {
  const Words special(std::begin(kSpecialPieces), std::end(kSpecialPieces));
  CHECK(rc::check("of any entries", [&] {
    Words entries = *odd_entries();
    std::erase(entries, "[UNK]");
    const auto pieces = *rc::gen::arbitrary<bool>() ? pieces_of(special, entries) : pieces_of(entries, special);
    const BertText text{*rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<bool>()};
    const std::string file = write_vocabulary("wordpiece", pieces, nullptr, &text);
    const VocabularyFile again = read_vocabulary(file, "v");
    RC_ASSERT(same(again.pieces, pieces));
    RC_ASSERT(again.text == text);
    const auto list = written([&] { return write_wordpieces(pieces); });
    if (list) RC_ASSERT(same(read_wordpieces(*list, "vocab.txt"), pieces, false));
    else RC_ASSERT(!std::all_of(entries.begin(), entries.end(), plain));
  }));
  const auto plain_pieces = pieces_of(special, {"a", "##b"});
  CHECK(same(read_wordpieces(write_wordpieces(plain_pieces), "vocab.txt"), plain_pieces, false));
}

TEST_CASE("codes of subword-nmt come back, or are not written", "[round-trip]") {
  CHECK(rc::check("of any merges", [&] {
    const std::vector<Merge> merges = *odd_merges();
    const auto file = written([&] { return write_codes(merges, "v"); });
    if (file) RC_ASSERT(read_codes(*file, "codes") == merges);
    else
      RC_ASSERT(
          !std::all_of(merges.begin(), merges.end(), [](const Merge& m) { return plain(m.left) && plain(m.right); }));
  }));
  // Within a line a carriage return is a character as others are.
  const std::vector<Merge> within{{"a\r", "\rb"}, {"\u2028", "\u0085"}};
  CHECK(read_codes(write_codes(within, "v"), "codes") == within);
  for (const Merge& bad : {Merge{"a", "\r"}, Merge{"\r", "a"}, Merge{"a", "b\r"}, Merge{"a b", "c"}, Merge{"a", "b\n"},
                           Merge{"", "a"}, Merge{"a", ""}, Merge{"a", "\xff"}})
    CHECK_THROWS_WITH(write_codes({{"a", "b"}, bad}, "v"), Catch::Contains("v: merge 2"));
}

TEST_CASE("GPT-2's vocab.json and merges.txt come back, or are not written", "[round-trip]") {
  CHECK(rc::check("of any pieces and merges", [&] {
    const Words entries = *odd_entries();
    NumberedPieces pieces;
    for (const std::string& text : entries) pieces.emplace(3 * pieces.size(), text);
    const auto json = written([&] { return write_byte_bpe_pieces(pieces); });
    RC_ASSERT(json.has_value() == !entries.empty());
    if (json) RC_ASSERT(read_numbered_pieces(*json, "vocab.json") == pieces);
    const std::vector<Merge> merges = *odd_merges();
    const auto text = written([&] { return write_byte_bpe_merges(merges); });
    if (text) RC_ASSERT(read_byte_bpe_merges(*text, "merges.txt") == merges);
  }));
  const std::vector<Merge> plain_merges{{"a", "b"}, {"ab", "c"}};
  CHECK(read_byte_bpe_merges(write_byte_bpe_merges(plain_merges), "merges.txt") == plain_merges);
}

TEST_CASE("predictions come back as they were", "[round-trip]") {
  Folder folder;
  CHECK(rc::check("answers of any text", [&] {
    const Words ids = *odd_entries();
    nlohmann::ordered_json all = nlohmann::ordered_json::object();
    metrics::Predictions expected;
    for (const std::string& id : ids) all[id] = expected[id] = *odd_text();
    write_file_atomically(folder.file("predictions"), all.dump());
    RC_ASSERT(metrics::read_predictions(folder.file("predictions")) == expected);
  }));
}

TEST_CASE("text in a table's field and in a list of values is restored from what is written", "[round-trip]") {
  CHECK(table_field("") == "-");
  CHECK(table_field("-") == "\\x2d");
  CHECK(rc::check("any text", [] {
    const std::string text = *odd_text();
    const std::string field = table_field(text);
    RC_ASSERT(field.find_first_of(" \t\r\n\v\f\x7f") == field.npos);
    RC_ASSERT(!field.empty());
    RC_ASSERT((field == "-" ? "" : unescaped(field)) == text);
    const std::string line = key_and_value("key", text);
    RC_ASSERT(std::count(line.begin(), line.end(), '\n') == 1);
    RC_ASSERT(std::count(line.begin(), line.end(), '\t') == 1);
    RC_ASSERT(line.find('\r') == line.npos);
    RC_ASSERT(unescaped(line.substr(4, line.size() - 5)) == text);
  }));
}

namespace {

struct OneText {
  std::string text;
  std::vector<std::string> list;
  void describe(Fields& f) {
    f.field("text", text, "text");
    f.field("list", list, "texts");
  }
};

}  // namespace

TEST_CASE("text in a configuration comes back from the file that a run writes", "[round-trip]") {
  CHECK(rc::check("any text", [] {
    OneText options{*odd_text(), *odd_entries()};
    TomlWriter writer;
    writer.section("part", options);
    const std::string toml = writer.text();
    Config config;
    config.load_text(toml, "config.toml");
    OneText again;
    config.read("part", again);
    config.check_all_known();
    RC_ASSERT(again.text == options.text);
    RC_ASSERT(again.list == options.list);
    RC_ASSERT(changes(toml, toml, {""}).empty());
  }));
}
