// Tests of SentencePiece models: training uses every line of the text, and the library does not end the process for any
// text or any damaged model.
#include "text/learn_sentencepiece.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/random.h"
#include "base/unicode.h"
#include "fixtures/folder.h"
#include "fixtures/status.h"

using namespace mh;
using namespace mh::text;

namespace {

constexpr int kInputStatus = 3;

class Learner {
 public:
  std::string learn(const std::string& type, int64_t size, const std::string& text, const std::string& name = "text") {
    write_file_atomically(folder_.file(name), text);
    TextBatches batches({folder_.file(name)}, LineEnds::as_text, [](std::string_view t) {
      const size_t last = t.rfind(' ');
      return last == t.npos ? t.npos : last + 1;
    });
    VocabularyOptions options;
    options.type = type;
    options.max_size = size;
    options.character_coverage = 1;
    options.num_threads = 1;
    return learn_sentencepiece(options, batches);
  }
  std::string refusal_of(const std::string& type, int64_t size, const std::string& text,
                         const std::string& name = "text") {
    try {
      learn(type, size, text, name);
    } catch (const Error& error) {
      CHECK(static_cast<int>(error.exit()) == kInputStatus);
      return error.what();
    }
    return "";
  }

 private:
  Folder folder_;
};

std::vector<std::string> pieces_of(const std::string& model) {
  sentencepiece::SentencePieceProcessor library_processor;
  REQUIRE(library_processor.LoadFromSerializedProto(model).ok());
  std::vector<std::string> pieces;
  for (int i = 0; i < library_processor.GetPieceSize(); ++i) pieces.push_back(library_processor.IdToPiece(i));
  return pieces;
}

std::string random_word(size_t size) {
  std::string word;
  RandomSequence random(RandomStream(5, "word"));
  while (word.size() < size) word += static_cast<char>('a' + random.uniform_below(8));
  return word;
}

}  // namespace

TEST_CASE("SentencePiece training uses lines that contain the reserved characters U+2581 and U+2585",
          "[sentencepiece]") {
  Learner learner;
  const std::string reserved_character = "\u2585";
  // `text_with_unk` is `text_with_block` with <unk> in place of U+2585; the trainer reads <unk> as an unknown
  // character.
  const std::string text_with_block = "the cat\u2585 sat\n\u2585the dog \u2585\ndog dog cat\n";
  std::string text_with_unk = text_with_block;
  for (size_t at = 0; (at = text_with_unk.find(reserved_character)) != text_with_unk.npos;)
    text_with_unk.replace(at, reserved_character.size(), "<unk>");
  for (const char* type : {"bpe", "unigram"}) {
    INFO(type);
    const std::string model = learner.learn(type, 15, text_with_block);
    CHECK(model == learner.learn(type, 15, text_with_unk));
    const auto pieces = pieces_of(model);
    CHECK(pieces.size() == 15);
    for (const std::string& piece : pieces) CHECK(piece.find(reserved_character) == piece.npos);
    // The letters s, h and e occur only in lines with U+2585.
    for (const char* letter : {"s", "h", "e"}) CHECK(std::count(pieces.begin(), pieces.end(), letter) == 1);
  }
  CHECK(learner.learn("bpe", 12, "the\u2581cat\n") == learner.learn("bpe", 12, "the cat\n"));
}

TEST_CASE("the BPE trainer accepts a word of the maximum length, and a longer word is refused with its line number",
          "[sentencepiece]") {
  Learner learner;
  const auto max_length = static_cast<size_t>(kMaxBpeWordCharacters);
  const std::string first_line = "the cat sat\n";
  CHECK(pieces_of(learner.learn("bpe", 40, first_line + random_word(max_length) + " a\n")).size() == 40);
  for (size_t size : {max_length + 1, size_t{40000}, size_t{70000}}) {
    const std::string message = learner.refusal_of("bpe", 40, first_line + "a " + random_word(size) + " b");
    CHECK(message.find("text:2:") != message.npos);
    CHECK(message.find("32,768") != message.npos);
  }
  // The length of a word is counted in characters after normalisation, which may also split a word.
  const std::string word = random_word(20000);
  CHECK(pieces_of(learner.learn("bpe", 40, word + "\u3000" + word + "\t" + word)).size() == 40);
  std::string fractions;
  for (int i = 0; i < 20000; ++i) fractions += "\u2153";  // one third; normalised to 3 characters
  CHECK(learner.refusal_of("bpe", 40, first_line + fractions).find("60,000") != std::string::npos);
  CHECK(pieces_of(learner.learn("unigram", 40, first_line + random_word(70000))).size() == 40);
}

TEST_CASE("a file name with special bytes does not change the text that SentencePiece learns from", "[sentencepiece]") {
  Learner learner;
  const std::string name = "x\ny\x01z \u2585", first_line = "the cat sat\n";
  // The word is so long that the child process checks its length, but short enough to be learnt.
  const std::string text = first_line + random_word(20000) + "\n";
  CHECK(learner.learn("bpe", 40, text, name) == learner.learn("bpe", 40, text));
  const std::string refusal = learner.refusal_of("bpe", 40, text + random_word(40000), name);
  CHECK_THAT(refusal, Catch::Contains(name + ":3: expected words of at most 32,768 characters"));
  CHECK_THAT(refusal, Catch::Contains("found a word of 40,000"));
}

TEST_CASE("text from which SentencePiece cannot learn is refused, and the process continues", "[sentencepiece]") {
  Learner learner;
  for (const char* type : {"bpe", "unigram"}) {
    INFO(type);
    const std::string no_characters =
        "expected text with at least one character that can become a piece; found no such character";
    for (const char* text : {"\x01\x02\n", "\u200b\n\u200b\n"})
      CHECK_THAT(learner.refusal_of(type, 40, text), Catch::Contains(no_characters));
    // From text with only unknown characters, a model of type unigram learns the special pieces and the space; a model
    // of type bpe learns no pieces and is refused.
    const bool is_bpe = std::string(type) == "bpe";
    for (const char* text : {"\u2585\n", "<unk>"})
      CHECK_THAT(
          learner.refusal_of(type, 40, text),
          Catch::Contains(
              is_bpe ? no_characters
                     : "--size 40: expected at most 4, the number of pieces that this text yields; found 40; choose"));
    for (const char* text : {"", "\n\n", "   \n \n"})
      CHECK(learner.refusal_of(type, 40, text).find("text with at least one word") != std::string::npos);
    // The message states the limit of the vocabulary size.
    const std::string short_text = "the cat sat on the mat\n";
    CHECK_THAT(learner.refusal_of(type, 8000, short_text),
               Catch::StartsWith("--size 8000: expected at most ") &&
                   Catch::EndsWith("choose a smaller --size, or give more text"));
    CHECK_THAT(learner.refusal_of(type, 8, short_text), Catch::StartsWith("--size 8: expected at least 13: "));
    CHECK(learner.refusal_of(type, 2, short_text) ==
          "--size 2: expected at least 4: the special pieces and a character; found 2; choose a larger --size");
    CHECK(learner.refusal_of(type, 40, "the cat\n\xff\n").find("text:2: byte 8") != std::string::npos);
  }
}

TEST_CASE("a SentencePiece model with a flipped bit is refused or encodes text to valid tokens", "[sentencepiece]") {
  Learner learner;
  const std::string model = learner.learn("bpe", 40, "the cat sat on the mat\nthe dog ate the cat\n");
  std::string text;  // U+0020 to U+33FF, with all kinds of characters that normalisation changes
  for (char32_t c = 0x20; c < 0x3400; ++c) append_utf8(c, text);
  int num_accepted = 0, num_refused_tables = 0, num_other_refusals = 0;
  RandomSequence random(RandomStream(9, "damage"));
  for (int i = 0; i < 300; ++i) {
    std::string damaged_model = model;
    // Most bytes of the model are its normalisation table. Half of the flipped bits are in the first 3000 bytes: the
    // pieces and the start of the table, where its trie is.
    const size_t at = random.uniform_below(i % 2 == 0 ? 3000 : damaged_model.size());
    damaged_model[at] = static_cast<char>(damaged_model[at] ^ (1 << random.uniform_below(8)));
    try {
      const auto tokenizer = parse_tokenizer(damaged_model, "m");
      std::vector<int32_t> tokens;
      tokenizer->encoder()->encode(text, tokens);
      for (int32_t token : tokens) REQUIRE((token >= 0 && token < tokenizer->size()));
      tokenizer->decode(tokens);
      ++num_accepted;
    } catch (const Error& error) {
      CHECK(static_cast<int>(error.exit()) == kInputStatus);
      ++(std::string(error.what()).find("normalisation table") != std::string::npos ? num_refused_tables
                                                                                    : num_other_refusals);
    }
  }
  CHECK(num_accepted > 0);
  CHECK(num_refused_tables > 0);
  CHECK(num_other_refusals > 0);
}
