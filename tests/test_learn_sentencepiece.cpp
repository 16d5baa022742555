// SentencePiece models: no line of the text is left out in silence, and nothing that a text or a damaged model does to
// the library ends the process.
#include <sentencepiece_processor.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/random.h"
#include "base/unicode.h"
#include "folder.h"
#include "io/learn_sentencepiece.h"
#include "status.h"

using namespace mh;
using namespace mh::io;

namespace {

constexpr int kInput = 3;

class Learner {
 public:
  std::string learn(const std::string& type, int64_t size, const std::string& text, double coverage = 1) {
    write_file_atomically(folder_.file("text"), text);
    TextBatches batches({folder_.file("text")}, LineEnds::keep, [](std::string_view t) {
      const size_t last = t.rfind(' ');
      return last == t.npos ? t.npos : last + 1;
    });
    VocabularyOptions options;
    options.type = type;
    options.size = size;
    options.character_coverage = coverage;
    options.threads = 1;
    return learn_sentencepiece(options, batches);
  }
  std::string refusal_of(const std::string& type, int64_t size, const std::string& text) {
    try {
      learn(type, size, text);
    } catch (const Error& error) {
      CHECK(static_cast<int>(error.exit()) == kInput);
      return error.what();
    }
    return "";
  }

 private:
  Folder folder_;
};

std::vector<std::string> pieces_of(const std::string& model) {
  sentencepiece::SentencePieceProcessor library;
  REQUIRE(library.LoadFromSerializedProto(model).ok());
  std::vector<std::string> pieces;
  for (int i = 0; i < library.GetPieceSize(); ++i) pieces.push_back(library.IdToPiece(i));
  return pieces;
}

std::string word_of(size_t size) {
  std::string word;
  RandomSequence random(RandomStream(5, "word"));
  while (word.size() < size) word += static_cast<char>('a' + random.below(8));
  return word;
}

}  // namespace

TEST_CASE("lines with reserved characters take part in SentencePiece's training", "[sentencepiece]") {
  Learner learner;
  const std::string block = "\u2585";
  // As by a name that the trainer reads as an unknown character.
  const std::string with_block = "the cat\u2585 sat\n\u2585the dog \u2585\ndog dog cat\n";
  std::string with_name = with_block;
  for (size_t at = 0; (at = with_name.find(block)) != with_name.npos;) with_name.replace(at, block.size(), "<unk>");
  for (const char* type : {"bpe", "unigram"}) {
    INFO(type);
    const std::string model = learner.learn(type, 15, with_block);
    CHECK(model == learner.learn(type, 15, with_name));
    const auto pieces = pieces_of(model);
    CHECK(pieces.size() == 15);
    for (const std::string& piece : pieces) CHECK(piece.find(block) == piece.npos);
    // Each of these letters is in lines with the character alone.
    for (const char* letter : {"s", "h", "e"}) CHECK(std::count(pieces.begin(), pieces.end(), letter) == 1);
  }
  CHECK(learner.learn("bpe", 12, "the\u2581cat\n") == learner.learn("bpe", 12, "the cat\n"));
}

TEST_CASE("a word as long as BPE's trainer can number is learnt, a longer one is refused with its line",
          "[sentencepiece]") {
  Learner learner;
  const auto longest = static_cast<size_t>(kLongestBpeWord);
  const std::string first = "the cat sat\n";
  CHECK(pieces_of(learner.learn("bpe", 40, first + word_of(longest) + " a\n")).size() == 40);
  for (size_t size : {longest + 1, size_t{40000}, size_t{70000}}) {
    const std::string said = learner.refusal_of("bpe", 40, first + "a " + word_of(size) + " b");
    CHECK(said.find("text:2:") != said.npos);
    CHECK(said.find("32,768") != said.npos);
  }
  // Characters count once normalised, and normalisation parts words.
  const std::string half = word_of(20000);
  CHECK(pieces_of(learner.learn("bpe", 40, half + "\u3000" + half + "\t" + half)).size() == 40);
  std::string fractions;
  for (int i = 0; i < 20000; ++i) fractions += "\u2153";  // 1/3
  CHECK(learner.refusal_of("bpe", 40, first + fractions).find("60,000") != std::string::npos);
  CHECK(pieces_of(learner.learn("unigram", 40, first + word_of(70000))).size() == 40);
}

TEST_CASE("text from which SentencePiece cannot learn is refused, and the process goes on", "[sentencepiece]") {
  Learner learner;
  for (const char* type : {"bpe", "unigram"}) {
    INFO(type);
    for (const char* text : {"\u2585\n", "\x01\x02\n", "\u200b\n\u200b\n", "<unk>"})
      CHECK_FALSE(learner.refusal_of(type, 40, text).empty());
    for (const char* text : {"", "\n\n", "   \n \n"})
      CHECK(learner.refusal_of(type, 40, text).find("text to count") != std::string::npos);
    // The sizes that would do are named.
    CHECK(learner.refusal_of(type, 8000, "the cat sat on the mat\n").find("at most ") != std::string::npos);
    CHECK(learner.refusal_of(type, 8, "the cat sat on the mat\n").find("at least ") != std::string::npos);
    CHECK(learner.refusal_of(type, 40, "the cat\n\xff\n").find("text:2: byte 8") != std::string::npos);
  }
}

TEST_CASE("a SentencePiece model with any damage is refused or gives tokens, whatever the text", "[sentencepiece]") {
  Learner learner;
  const std::string model = learner.learn("bpe", 40, "the cat sat on the mat\nthe dog ate the cat\n");
  std::string text;  // a character of every kind that normalisation changes
  for (char32_t c = 0x20; c < 0x3400; ++c) append_utf8(c, text);
  int whole = 0, tables = 0, others = 0;
  RandomSequence random(RandomStream(9, "damage"));
  for (int i = 0; i < 300; ++i) {
    std::string bent = model;
    // The table of normalisation is most of the model; its trie follows the pieces.
    const size_t at = random.below(i % 2 == 0 ? 3000 : bent.size());
    bent[at] = static_cast<char>(bent[at] ^ (1 << random.below(8)));
    try {
      const auto tokenizer = parse_tokenizer(bent, "m");
      std::vector<int32_t> tokens;
      tokenizer->encoder()->encode(text, tokens);
      for (int32_t token : tokens) REQUIRE((token >= 0 && token < tokenizer->size()));
      tokenizer->decode(tokens);
      ++whole;
    } catch (const Error& error) {
      CHECK(static_cast<int>(error.exit()) == kInput);
      ++(std::string(error.what()).find("normalisation table") != std::string::npos ? tables : others);
    }
  }
  CHECK(whole > 0);
  CHECK(tables > 0);
  CHECK(others > 0);
}
