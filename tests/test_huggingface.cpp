// Names of settings and tensors of transformers: both directions of each table, defaults, and what is refused.
#include <catch2/catch.hpp>
#include <set>

#include "folder.h"
#include "huggingface/architecture.h"
#include "huggingface/vocabulary_files.h"
#include "status.h"

using namespace mh;
using namespace mh::huggingface;

namespace {

ConfigFile config(const std::string& text) { return {text, "config.json"}; }

Settings settings_from(const std::string& type, const std::string& text, const std::set<std::string>& tensors = {}) {
  return architectures().make(type, "model_type")->settings(config(text), tensors);
}

std::string refused(const std::string& type, const std::string& text) {
  try {
    settings_from(type, text);
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::input);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("values of a file of settings have a default and a kind", "[huggingface]") {
  const ConfigFile file = config(R"({"a": 3, "b": null, "c": 1, "d": "x", "e": [1]})");
  CHECK(file.value("a", 1) == 3);
  CHECK(file.value("b", 7) == 7);
  CHECK(file.value("none", "y") == "y");
  CHECK(file.value("c", 0.5) == 1);
  CHECK(file.others() == std::vector<std::string>{"d", "e"});
  CHECK_THROWS_WITH(file.value("d", 1), Catch::Contains("config.json: d") && Catch::Contains("a whole number"));
  CHECK_THROWS_WITH(file.value("a", true), Catch::Contains("true or false"));
  CHECK_THROWS_WITH(file.require("a", 0, {1, 2}, "why"), Catch::Contains("1 or 2") && Catch::Contains("why"));
  for (const char* bad : {"", "[]", "{", "3"}) CHECK(status_of([&] { config(bad); }) == 3);
  CHECK(ConfigFile::optional("/nowhere/at/all").empty());
}

TEST_CASE("what config.json leaves out is as transformers has it", "[huggingface]") {
  Settings s = settings_from("gpt2", "{}");
  CHECK(s["model.width"] == 768);
  CHECK(s["model.ffn"] == 3072);
  CHECK(s["model.activation"] == "gelu-tanh");
  CHECK(s["model.norm_epsilon"] == 1e-5);
  CHECK(s["attention.heads"] == 12);
  CHECK(settings_from("gpt2", R"({"n_inner": 100})")["model.ffn"] == 100);
  s = settings_from("bert", "{}");
  CHECK(s["model.norm_epsilon"] == 1e-12);
  CHECK(s["model.activation"] == "gelu");
  CHECK(s["model.segments"] == 2);
  CHECK(s["model.dropout_ffn"] == 0.1);
  CHECK(s["model.head"] == "words");
  CHECK(s["model.next_sentence"] == false);
  CHECK(settings_from("bert", "{}", {"pooler.dense.weight"})["model.next_sentence"] == true);
  CHECK(settings_from("bert", "{}", {"qa_outputs.weight"})["model.head"] == "span");
  const std::string kind = R"({"architectures": ["BertForSequenceClassification"])";
  CHECK(settings_from("bert", kind + "}")["model.classes"] == 2);
  CHECK(settings_from("bert", kind + R"(, "id2label": {"0": "a", "1": "b", "2": "c"}})")["model.classes"] == 3);
  CHECK(settings_from("bert", kind + R"(, "id2label": {"0": "a"}})")["model.head"] == "number");
  CHECK(settings_from("bert", kind + R"(, "classifier_dropout": 0.3})")["model.dropout_output"] == 0.3);
}

TEST_CASE("settings come back from what is written, and tensors are named once", "[huggingface]") {
  const std::set<std::string> pooler{"pooler.dense.weight"};
  for (const auto& [type, text] : std::vector<std::pair<std::string, std::string>>{
           {"gpt2", R"({"n_embd": 32, "n_inner": 48, "n_layer": 3, "n_head": 4, "attn_pdrop": 0.25})"},
           {"gpt2", R"({"tie_word_embeddings": false, "activation_function": "relu", "layer_norm_epsilon": 1e-3})"},
           {"bert", R"({"hidden_size": 32, "num_hidden_layers": 2, "hidden_act": "gelu_new"})"},
           {"bert", R"({"architectures": ["BertForQuestionAnswering"], "tie_word_embeddings": false})"},
           {"bert", R"({"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a"}})"},
           {"bert", R"({"architectures": ["BertForSequenceClassification"], "classifier_dropout": 0})"}}) {
    INFO(type << " " << text);
    const auto architecture = architectures().make(type, "model_type");
    Settings s = settings_from(type, text, pooler);
    CHECK(settings_of(toml_of(s)) == s);
    Settings whole = s;
    whole.insert({{"model.next_sentence", false}, {"model.classes", 0}, {"model.dropout_output", 0.0}});
    CHECK(settings_from(type, architecture->config(whole).dump(), pooler) == s);
    std::set<std::string> theirs, ours;
    const TensorNames names = architecture->names(s);
    for (const TensorPair& pair : names.pairs) {
      CHECK(theirs.insert(pair.theirs).second);
      CHECK(plain_name(architecture->prefix() + pair.theirs, architecture->prefix()) == pair.theirs);
      CHECK_FALSE(architecture->is_buffer(pair.theirs));
      for (const std::string& one : pair.ours) CHECK(ours.insert(one).second);
    }
    for (const auto& [copy, of] : names.copies) {
      CHECK(theirs.count(copy) == 0);
      CHECK(theirs.count(of) == 1);
    }
  }
}

TEST_CASE("names of old files are the new ones", "[huggingface]") {
  CHECK(plain_name("bert.embeddings.LayerNorm.gamma", "bert.") == "embeddings.LayerNorm.weight");
  CHECK(plain_name("embeddings.LayerNorm.beta", "bert.") == "embeddings.LayerNorm.bias");
  CHECK(plain_name("h.0.ln_1.weight", "transformer.") == "h.0.ln_1.weight");
}

TEST_CASE("settings that ours do not have are refused by their key", "[huggingface]") {
  CHECK_THAT(refused("gpt2", R"({"scale_attn_by_inverse_layer_idx": true})"), Catch::Contains("inverse_layer_idx"));
  CHECK_THAT(refused("gpt2", R"({"activation_function": "silu"})"), Catch::Contains("\"silu\""));
  CHECK_THAT(refused("bert", R"({"position_embedding_type": "relative_key"})"), Catch::Contains("relative_key"));
  CHECK_THAT(refused("bert", R"({"is_decoder": true})"), Catch::Contains("is_decoder"));
  CHECK_THAT(refused("bert", R"({"architectures": ["BertForTokenClassification"]})"), Catch::Contains("BertModel"));
}

TEST_CASE("tokens behind the vocabulary come from either file", "[huggingface]") {
  const Folder folder;
  const ConfigFile tokens = config(R"({"added_tokens_decoder": {"7": {"content": "<a>"}}})");
  CHECK(added_tokens(folder.path, tokens) == std::map<uint64_t, std::string>{{7, "<a>"}});
  write_file_atomically(folder.file("added_tokens.json"), R"({"<a>": 7, "<b>": 8})");
  CHECK(added_tokens(folder.path, tokens) == std::map<uint64_t, std::string>{{7, "<a>"}, {8, "<b>"}});
  for (const char* bad : {"[]", R"({"<c>": 7})", R"({"<c>": -1})", R"({"": 9})", R"({"<c>": "9"})"}) {
    write_file_atomically(folder.file("added_tokens.json"), bad);
    CHECK(status_of([&] { added_tokens(folder.path, tokens); }) == 3);
  }
  for (const char* bad :
       {R"({"added_tokens_decoder": {"x": {"content": "a"}}})", R"({"added_tokens_decoder": {"1": "a"}})"})
    CHECK(status_of([&] { added_tokens("/nowhere", config(bad)); }) == 3);
  CHECK_THROWS_WITH(require_files(folder.path, {"vocab.txt"}), Catch::Contains("vocab.txt"));
  write_file_atomically(folder.file("tokenizer.json"), "{}");
  CHECK_THROWS_WITH(require_files(folder.path, {"vocab.txt"}), Catch::Contains("save_vocabulary"));
}
