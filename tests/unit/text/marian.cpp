// Tokenizers of Marian: pieces of two SentencePiece models in one table, language codes, vocabulary files and folders.
#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "fixtures/folder.h"
#include "fixtures/sentencepiece_model.h"
#include "fixtures/status.h"
#include "io/checkpoint.h"
#include "text/marian_tokenizer.h"
#include "text/tokenizer_json.h"

using namespace mh;
using namespace mh::text;

namespace {

using TokenIds = std::vector<int32_t>;

TokenIds encode(const Tokenizer& tokenizer, const std::string& text) {
  TokenIds tokens;
  tokenizer.encoder()->encode(text, tokens);
  return tokens;
}

void write_folder(const Folder& folder) {
  write_file_atomically(folder.file("source.spm"), sentencepiece_model::source_model());
  write_file_atomically(folder.file("target.spm"), sentencepiece_model::target_model());
  write_file_atomically(
      folder.file("vocab.json"),
      dynamic_cast<const MarianTokenizer&>(*sentencepiece_model::marian_tokenizers().source).table_json());
}

}  // namespace

TEST_CASE("Marian tokens are the entries of SentencePiece's pieces, and missing entries are unknown", "[text]") {
  const Tokenizers tokenizers = sentencepiece_model::marian_tokenizers();
  const Tokenizer &source = *tokenizers.source, &target = *tokenizers.target;
  CHECK(source.size() == 14);
  CHECK(source.end_of_line_id() == 0);
  CHECK(source.unknown_id() == 1);
  CHECK(source.begin_id() == -1);
  CHECK(encode(source, "").empty());
  CHECK(encode(source, "the cats") == TokenIds{4, 5, 6});
  CHECK(encode(source, "  the   cats ") == TokenIds{4, 5, 6});
  // The table lacks the piece "a".
  CHECK(encode(source, "a t") == TokenIds{3, 1, 3, 7});
  // A character that the model of a side lacks is an entry if the other side has a piece of the same text.
  CHECK(encode(source, "cat\u00e9") == TokenIds{5, 11});
  CHECK(encode(source, "cat\u4e2d") == TokenIds{5, 1});
  CHECK(encode(target, "die katzen") == TokenIds{8, 9, 10});
  // Special tokens in text are text.
  const TokenIds tokens = encode(source, "</s>");
  CHECK(std::count(tokens.begin(), tokens.end(), 0) == 0);
  CHECK(tokenizers.have_same_entries());
}

TEST_CASE("a language code in front of a text is one Marian token", "[text]") {
  const Tokenizers tokenizers = sentencepiece_model::marian_tokenizers();
  const Tokenizer& source = *tokenizers.source;
  CHECK(encode(source, ">>fra<< the cats") == TokenIds{2, 4, 5, 6});
  CHECK(encode(source, ">>fra<<") == TokenIds{2});
  CHECK(encode(source, ">>deu<< the") == TokenIds{1, 4});
  CHECK(encode(source, ">><< the") == TokenIds{1, 4});
  // Elsewhere in the text a code is text.
  const TokenIds tokens = encode(source, "the >>fra<< cats");
  CHECK(std::count(tokens.begin(), tokens.end(), 2) == 0);
  CHECK(tokens.size() > 3);
}

TEST_CASE("Marian tokens decode to text", "[text]") {
  const Tokenizers tokenizers = sentencepiece_model::marian_tokenizers();
  CHECK(tokenizers.target->decode(TokenIds{8, 9, 10}) == "die katzen");
  CHECK(tokenizers.target->decode(TokenIds{8, 0, 9, 0}) == "die\nkatze\n");
  CHECK(tokenizers.target->decode(TokenIds{}).empty());
}

TEST_CASE("a Marian vocabulary reads back from its vocabulary file", "[text]") {
  const Tokenizers tokenizers = sentencepiece_model::marian_tokenizers();
  const std::string bytes = tokenizers.source->serialize();
  const auto copy = parse_tokenizer(bytes, "v");
  CHECK(copy->type() == "marian");
  CHECK(copy->serialize() == bytes);
  CHECK(copy->fingerprint() == tokenizers.source->fingerprint());
  CHECK(copy->fingerprint() != tokenizers.target->fingerprint());
  CHECK(encode(*copy, ">>fra<< the cats") == TokenIds{2, 4, 5, 6});
  for (size_t length = 0; length < bytes.size(); length += 7)
    CHECK(status_of([&] { parse_tokenizer(bytes.substr(0, length), "v"); }) == 3);
}

TEST_CASE("a Marian vocabulary with repeated pieces or with tokens outside the table is refused", "[text]") {
  const auto make = [](std::vector<std::string> pieces, int32_t end_id, int32_t unknown_id) {
    MarianTokenizer(sentencepiece_model::source_model(), std::move(pieces), end_id, unknown_id, "v");
  };
  CHECK_THROWS_WITH(make({"</s>", "<unk>", "a", "a"}, 0, 1),
                    Catch::Contains("v: expected distinct pieces; found 'a' twice; copy the file again"));
  for (const auto& [end_id, unknown_id] : {std::pair{-1, 1}, {2, 1}, {0, -1}, {0, 2}})
    CHECK_THROWS_WITH(
        make({"</s>", "<unk>"}, end_id, unknown_id),
        Catch::Contains("v: expected tokens below 2 for the end of a text and for unknown pieces; found the tokens"));
}

TEST_CASE("a Marian vocabulary file with a valid checksum but an invalid member is refused", "[text]") {
  const auto parse = [](const nlohmann::json& content) {
    parse_tokenizer(serialize_embedded_file("marian", 2, -1, 0, content.dump()), "v");
  };
  const std::string model = io::to_base64(sentencepiece_model::source_model());
  const nlohmann::json pieces{"</s>", "<unk>"};
  parse({{"model", model}, {"pieces", pieces}, {"unknown", 1}});
  const auto has_members = Catch::Contains("v: expected the members model, pieces and unknown");
  CHECK_THROWS_WITH(parse({{"model", model}, {"unknown", 1}}), has_members && Catch::Contains("found no pieces"));
  for (const int unknown_id : {-1, 2})
    CHECK_THROWS_WITH(parse({{"model", model}, {"pieces", pieces}, {"unknown", unknown_id}}),
                      has_members && Catch::Contains("found unknown = " + std::to_string(unknown_id)));
  CHECK_THROWS_WITH(parse({{"model", "*"}, {"pieces", pieces}, {"unknown", 1}}),
                    Catch::Contains("v: model: expected base64; found other characters"));
}

TEST_CASE("both vocabularies of a Marian folder are read, and errors name the file", "[text]") {
  const Folder folder;
  write_folder(folder);
  const Tokenizers expected = sentencepiece_model::marian_tokenizers();
  Tokenizers tokenizers = load_tokenizers(folder.path.string());
  CHECK(tokenizers.source->serialize() == expected.source->serialize());
  CHECK(tokenizers.target->serialize() == expected.target->serialize());
  CHECK(load_tokenizer(folder.path.string())->serialize() == expected.target->serialize());

  write_file_atomically(folder.file("tokenizer_config.json"), R"({"separate_vocabs": true})");
  CHECK_THROWS_WITH(load_tokenizers(folder.path.string()), Catch::Contains("no target_vocab.json"));
  write_file_atomically(folder.file("target_vocab.json"), R"({"</s>": 0, "<unk>": 1, "<pad>": 2})");
  tokenizers = load_tokenizers(folder.path.string());
  CHECK(tokenizers.target->size() == 3);
  CHECK_FALSE(tokenizers.have_same_entries());

  write_file_atomically(folder.file("tokenizer_config.json"), R"({"eos_token": {"content": "<pad>"}})");
  CHECK(load_tokenizers(folder.path.string()).target->end_of_line_id() == 13);
  write_file_atomically(folder.file("tokenizer_config.json"), R"({"unk_token": "none"})");
  CHECK_THROWS_WITH(load_tokenizers(folder.path.string()),
                    Catch::Contains("vocab.json") && Catch::Contains("'none', the unk_token"));
  write_file_atomically(folder.file("vocab.json"), R"({"</s>": 0, "<unk>": 2})");
  CHECK_THROWS_WITH(load_tokenizers(folder.path.string()), Catch::Contains("vocab.json"));
}

TEST_CASE("a folder of T5 without tokenizer.json has the vocabulary of spiece.model", "[text]") {
  const Folder folder;
  write_file_atomically(folder.file("spiece.model"), sentencepiece_model::source_model());
  const auto tokenizer = load_tokenizer(folder.path.string());
  CHECK(tokenizer->type() == "sentencepiece");
  CHECK(tokenizer->begin_id() == -1);
  CHECK(tokenizer->piece(tokenizer->end_of_line_id()) == "</s>");
  CHECK(encode(*tokenizer, "the cats") == TokenIds{4, 5, 6});
  write_file_atomically(folder.file("tokenizer_config.json"), R"({"tokenizer_class": "AlbertTokenizer"})");
  CHECK_THROWS_WITH(load_tokenizer(folder.path.string()), Catch::Contains("tokenizer_class"));
}
