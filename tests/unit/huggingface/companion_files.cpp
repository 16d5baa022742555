// Companions, the parts of a Hugging Face folder that mh-convert stores: read from a folder, and added to a new one.
#include "huggingface/companion_files.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "fixtures/folder.h"

using namespace mh;
using namespace mh::huggingface;
using io::Json;

namespace {

std::string read(const Folder& folder, const std::string& config = "{}") {
  return read_companions(folder.path.string(), {config, "config.json"});
}

// A new folder: config.json, and the other files.
struct NewFolder {
  Json config = {{"bos_token_id", 1}, {"eos_token_id", 2}, {"pad_token_id", nullptr}};
  std::map<std::string, std::string> files{
      {"tokenizer_config.json", R"({"eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"})"},
      {"special_tokens_map.json", R"({"eos_token": "</s>"})"}};
};

NewFolder folder_with(const std::string& companions) {
  NewFolder folder;
  add_companions(companions, "test", folder.config, folder.files);
  return folder;
}

}  // namespace

TEST_CASE("generation settings, chat template and special tokens of a folder are written to a new folder",
          "[huggingface]") {
  const Folder folder;
  const std::string chat_template = "{% for m in messages %}<|im_start|>\u00e4{% endfor %}\n";
  write_file_atomically(folder.file("generation_config.json"), R"({"eos_token_id": [2, 7], "temperature": 0.6})");
  write_file_atomically(folder.file("chat_template.jinja"), chat_template);
  write_file_atomically(folder.file("special_tokens_map.json"),
                        R"({"eos_token": "<end>", "pad_token": {"content": "<pad>", "lstrip": false}})");
  write_file_atomically(folder.file("tokenizer_config.json"),
                        R"({"chat_template": "short", "pad_token": "<pad>", "padding_side": "left",
                            "tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": {"0": {}}})");
  const std::string companions = read(folder, R"({"pad_token_id": 3, "eos_token_id": [2, 7], "bos_token_id": 9})");
  const NewFolder result = folder_with(companions);
  CHECK(result.config == Json{{"bos_token_id", 1}, {"eos_token_id", {2, 7}}, {"pad_token_id", 3}});
  CHECK(Json::parse(result.files.at("generation_config.json")) == Json{{"eos_token_id", {2, 7}}, {"temperature", 0.6}});
  CHECK(result.files.at("chat_template.jinja") == chat_template);
  CHECK(Json::parse(result.files.at("special_tokens_map.json")) ==
        Json{{"eos_token", "</s>"}, {"pad_token", {{"content", "<pad>"}, {"lstrip", false}}}});
  CHECK(Json::parse(result.files.at("tokenizer_config.json")) == Json{{"eos_token", "</s>"},
                                                                      {"tokenizer_class", "PreTrainedTokenizerFast"},
                                                                      {"chat_template", "short"},
                                                                      {"pad_token", "<pad>"},
                                                                      {"padding_side", "left"}});
  // A new folder that is read again gives the same companion files.
  const Folder copy;
  for (const auto& [name, text] : result.files) write_file_atomically(copy.file(name), text);
  const NewFolder again = folder_with(read(copy, result.config.dump()));
  CHECK(again.config == result.config);
  CHECK(again.files == result.files);
}

TEST_CASE("a folder without companions gives none, and files that multihead does not write are not made",
          "[huggingface]") {
  const Folder folder;
  CHECK(read(folder).empty());
  CHECK(read(folder, R"({"pad_token_id": null, "eos_token_id": 5})").empty());
  CHECK(read(folder, R"({"pad_token_id": -1})").empty());
  const NewFolder original;
  CHECK(folder_with("").files == original.files);
  NewFolder without_map;
  without_map.files.erase("special_tokens_map.json");
  add_companions(R"({"special_tokens_map.json": {"pad_token": "x"}, "other.json": {}})", "test", without_map.config,
                 without_map.files);
  CHECK(without_map.files.size() == 1);
  // A list of tokens that end a text without the token of the vocabulary is not written.
  CHECK(folder_with(R"({"config.json": {"eos_token_id": [7, 8]}})").config.at("eos_token_id") == 2);
}

TEST_CASE("the tokens that end a text come from generation_config.json, and without it from config.json",
          "[huggingface]") {
  const auto ids = [](const std::string& companions) { return end_token_ids(companions, "test"); };
  using Ids = std::vector<int32_t>;
  CHECK(ids("").empty());
  CHECK(ids(R"({"generation_config.json": {"temperature": 1}, "chat_template.jinja": "x"})").empty());
  CHECK(ids(R"({"generation_config.json": {"eos_token_id": 2}})") == Ids{2});
  CHECK(
      ids(R"({"generation_config.json": {"eos_token_id": [128001, 128009]}, "config.json": {"eos_token_id": [3]}})") ==
      Ids{128001, 128009});
  CHECK(ids(R"({"generation_config.json": {"eos_token_id": null}, "config.json": {"eos_token_id": [3, 7]}})") ==
        Ids{3, 7});
  for (const char* value : {"-1", R"("</s>")", "[2, -3]", "[2, null]", "2147483648", "1.5", "{}"}) {
    INFO(value);
    CHECK_THROWS_WITH(ids(str(R"({"generation_config.json": {"eos_token_id": )", value, "}}")),
                      Catch::Contains("test: generation_config.json: eos_token_id: expected the id of a token"));
  }
}

TEST_CASE("companions are limited in size, and damaged files are refused", "[huggingface]") {
  const Folder folder;
  write_file_atomically(folder.file("chat_template.jinja"), std::string(kMaxCompanionBytes + 1, 'x'));
  CHECK(read(folder).empty());
  write_file_atomically(folder.file("chat_template.jinja"), std::string(kMaxCompanionBytes, 'x'));
  CHECK(read(folder).empty());  // too large together with its name
  write_file_atomically(folder.file("chat_template.jinja"), "\xff");
  CHECK_THROWS_WITH(read(folder), Catch::Contains("chat_template.jinja") && Catch::Contains("UTF-8"));
  write_file_atomically(folder.file("chat_template.jinja"), "");
  write_file_atomically(folder.file("generation_config.json"), "[]");
  CHECK_THROWS_WITH(read(folder), Catch::Contains("generation_config.json"));
  CHECK_THROWS_WITH(folder_with("{"), Catch::Contains("test"));
  CHECK_THROWS_WITH(folder_with(R"({"chat_template.jinja": {}})"),
                    Catch::Contains("test: chat_template.jinja: expected a text; found a JSON object"));
  CHECK_THROWS_WITH(folder_with(R"({"config.json": "x"})"), Catch::Contains("test: config.json"));
}
