// Tests of the conversion from and to Hugging Face transformers: config.json, tensor names, added tokens, defaults, and
// refusals.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "base/file.h"
#include "base/unicode.h"
#include "fixtures/folder.h"
#include "fixtures/huggingface_settings.h"
#include "fixtures/status.h"
#include "huggingface/architecture.h"
#include "text/folder_tokenizer.h"
#include "text/tokenizers.h"

using namespace mh;
using namespace mh::huggingface;
using namespace huggingface_settings;

TEST_CASE("JsonConfig returns defaults for missing and null values and refuses values of another type",
          "[huggingface]") {
  const JsonConfig file = config(R"({"a": 3, "b": null, "c": 1, "d": "x", "e": [1]})");
  CHECK(file.value("a", 1) == 3);
  CHECK(file.value("b", 7) == 7);
  CHECK(file.value("none", "y") == "y");
  CHECK(file.value("c", 0.5) == 1);
  CHECK(file.unread_keys() == std::vector<std::string>{"d", "e"});
  CHECK_THROWS_WITH(file.value("d", 1), Catch::Contains("config.json: d") && Catch::Contains("a whole number"));
  CHECK_THROWS_WITH(file.value("a", true), Catch::Contains("true or false"));
  CHECK_THROWS_WITH(file.require("a", 0, {1, 2}, "why"), Catch::Contains("1 or 2") && Catch::Contains("why"));
  for (const char* invalid_json : {"", "[]", "{", "3"}) CHECK(status_of([&] { config(invalid_json); }) == 3);
  CHECK(JsonConfig::read_if_exists("/nowhere/at/all").empty());
}

TEST_CASE("JsonConfig distinguishes a missing key from null where null is a value", "[huggingface]") {
  const JsonConfig file = config(R"({"window": 5, "none": null, "cap": 3, "flag": true, "kind": "yarn"})");
  CHECK(file.nullable<int64_t>("window", 4096) == 5);
  CHECK(file.nullable<int64_t>("none", 4096) == std::nullopt);
  CHECK(file.nullable<int64_t>("absent", 4096) == 4096);
  CHECK(file.nullable<int64_t>("absent", std::nullopt) == std::nullopt);
  CHECK(file.nullable<double>("cap", 30.0) == 3.0);
  CHECK(file.nullable<bool>("flag", false) == true);
  CHECK(file.nullable<std::string>("kind", std::nullopt) == "yarn");
  CHECK(file.has("none"));
  CHECK_FALSE(file.has("absent"));
  CHECK(file.unread_keys().empty());
  CHECK_THROWS_WITH(file.nullable<int64_t>("kind", 1), Catch::Contains("config.json: kind: expected a whole number"));
}

TEST_CASE("JsonConfig reads lists and objects, and names the place of an error in an object", "[huggingface]") {
  const JsonConfig file =
      config(R"({"factors": [1, 2.5], "types": ["a"], "rope": {"factor": 2, "kind": 3}, "none": null})");
  CHECK(file.numbers("factors") == std::vector<double>{1, 2.5});
  CHECK(file.texts("types") == std::vector<std::string>{"a"});
  CHECK(file.numbers("none") == std::nullopt);
  CHECK(file.texts("absent") == std::nullopt);
  CHECK_FALSE(file.object("none"));
  CHECK_FALSE(file.object("absent"));
  const JsonConfig object = file.object("rope").value();
  CHECK(object.value("factor", 1.0) == 2);
  CHECK(object.keys() == std::vector<std::string>{"factor", "kind"});
  CHECK(object.unread_keys() == std::vector<std::string>{"kind"});
  CHECK_THROWS_WITH(object.value("kind", "yarn"), Catch::Contains("config.json: rope: kind: expected text"));
  CHECK_THROWS_WITH(file.numbers("types"), Catch::Contains("a list of numbers"));
  CHECK_THROWS_WITH(file.texts("factors"), Catch::Contains("a list of texts"));
  CHECK_THROWS_WITH(file.object("factors"), Catch::Contains("an object"));
}

TEST_CASE("keys missing from config.json have the defaults of transformers", "[huggingface]") {
  Settings s = settings_from("gpt2", "{}");
  CHECK(s["model.width"] == 768);
  CHECK(s["model.ffn_dim"] == 3072);
  CHECK(s["model.activation"] == "gelu-tanh");
  CHECK(s["model.norm_epsilon"] == 1e-5);
  CHECK(s["attention.heads"] == 12);
  CHECK(settings_from("gpt2", R"({"n_inner": 100})")["model.ffn_dim"] == 100);
  s = settings_from("bert", "{}");
  CHECK(s["model.norm_epsilon"] == 1e-12);
  CHECK(s["model.activation"] == "gelu");
  CHECK(s["model.bert.segments"] == 2);
  CHECK(s["model.dropout_ffn"] == 0.1);
  CHECK(s["model.bert.head"] == "words");
  CHECK(s["model.bert.next_sentence"] == false);
  CHECK(settings_from("bert", "{}", {"pooler.dense.weight"})["model.bert.next_sentence"] == true);
  CHECK(settings_from("bert", "{}", {"qa_outputs.weight"})["model.bert.head"] == "span");
  const std::string classifier_config = R"({"architectures": ["BertForSequenceClassification"])";
  CHECK(settings_from("bert", classifier_config + "}")["model.bert.classes"] == 2);
  CHECK(settings_from(
            "bert", classifier_config + R"(, "id2label": {"0": "a", "1": "b", "2": "c"}})")["model.bert.classes"] == 3);
  CHECK(settings_from("bert", classifier_config + R"(, "id2label": {"0": "a"}})")["model.bert.head"] == "number");
  CHECK(settings_from("bert", classifier_config + R"(, "classifier_dropout": 0.3})")["model.dropout_output"] == 0.3);
}

TEST_CASE("a written config.json reads back to the same settings, and each tensor name occurs once", "[huggingface]") {
  const std::set<std::string> pooler{"pooler.dense.weight"};
  for (const auto& [type, text] : std::vector<std::pair<std::string, std::string>>{
           {"gpt2", R"({"n_embd": 32, "n_inner": 48, "n_layer": 3, "n_head": 4, "attn_pdrop": 0.25})"},
           {"gpt2", R"({"tie_word_embeddings": false, "activation_function": "relu", "layer_norm_epsilon": 1e-3})"},
           {"bert", R"({"hidden_size": 32, "num_hidden_layers": 2, "hidden_act": "gelu_new"})"},
           {"bert", R"({"architectures": ["BertForQuestionAnswering"], "tie_word_embeddings": false})"},
           {"bert", R"({"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a"}})"},
           {"bert", R"({"architectures": ["BertForSequenceClassification"], "classifier_dropout": 0})"},
           {"roberta", R"({"hidden_size": 32, "type_vocab_size": 1, "layer_norm_eps": 1e-5})"},
           {"roberta", R"({"architectures": ["RobertaForMaskedLM"], "tie_word_embeddings": false})"},
           {"xlm-roberta", R"({"architectures": ["XLMRobertaForSequenceClassification"], "id2label": {"0": "a"}})"},
           {"xlm-roberta", R"({"architectures": ["XLMRobertaForQuestionAnswering"], "hidden_act": "relu"})"},
           {"camembert", R"({"architectures": ["CamembertForSequenceClassification"], "classifier_dropout": 0})"}}) {
    INFO(type << " " << text);
    const auto architecture = architectures().make(type, "model_type");
    Settings s = settings_from(type, text, pooler);
    CHECK(settings_of(toml_of(s)) == s);
    Settings complete_settings = s;
    complete_settings.insert(
        {{"model.bert.next_sentence", false}, {"model.bert.classes", 0}, {"model.dropout_output", 0.0}});
    CHECK(settings_from(type, architecture->config(complete_settings).dump(), pooler) == s);
    // Keys whose defaults could differ between versions of transformers are written.
    const Json written_config = architecture->config(complete_settings);
    for (const char* key : {"tie_word_embeddings", "use_cache", "initializer_range", "add_cross_attention", "dtype"})
      CHECK(written_config.contains(key));
    std::set<std::string> transformers_names, library_names;
    const TensorNames names = architecture->tensor_names(s);
    for (const TensorPair& pair : names.pairs) {
      CHECK(transformers_names.insert(pair.huggingface_name).second);
      CHECK(canonical_name(architecture->tensor_prefix() + pair.huggingface_name, architecture->tensor_prefix()) ==
            pair.huggingface_name);
      CHECK_FALSE(architecture->is_buffer(pair.huggingface_name));
      for (const std::string& library_name : pair.multihead_names) CHECK(library_names.insert(library_name).second);
    }
    for (const auto& [copy, original] : names.aliases) {
      CHECK(transformers_names.count(copy) == 0);
      CHECK(transformers_names.count(original) == 1);
    }
  }
}

TEST_CASE("tensor names of old checkpoints (gamma, beta, with prefix) are converted to current names",
          "[huggingface]") {
  CHECK(canonical_name("bert.embeddings.LayerNorm.gamma", "bert.") == "embeddings.LayerNorm.weight");
  CHECK(canonical_name("embeddings.LayerNorm.beta", "bert.") == "embeddings.LayerNorm.bias");
  CHECK(canonical_name("h.0.ln_1.weight", "transformer.") == "h.0.ln_1.weight");
}

TEST_CASE("a buffer of a layer is recognised by its whole name, not by its ending", "[huggingface]") {
  CHECK(name_in_layer("layers.12.attention.bias", "layers.") == "attention.bias");
  for (const char* name : {"layers.attention.bias", "layers.01.attention.bias", "layers.1", "layer.1.attention.bias",
                           "layers.-1.attention.bias", "layers.1x.attention.bias"})
    CHECK(name_in_layer(name, "layers.").empty());
  const auto is_buffer = [](const char* type, const char* name) {
    return architectures().make(type, "model_type")->is_buffer(name);
  };
  CHECK(is_buffer("gpt2", "h.0.attn.bias"));
  CHECK(is_buffer("gpt2", "h.11.attn.masked_bias"));
  CHECK_FALSE(is_buffer("gpt2", "h.0.attn.c_attn.bias"));
  CHECK_FALSE(is_buffer("gpt2", "h.0.mlp.attn.bias"));
  CHECK(is_buffer("gpt_neox", "layers.0.attention.bias"));
  CHECK(is_buffer("gpt_neox", "layers.0.attention.masked_bias"));
  CHECK(is_buffer("gpt_neox", "layers.0.attention.rotary_emb.inv_freq"));
  CHECK_FALSE(is_buffer("gpt_neox", "layers.0.attention.dense.bias"));
  CHECK_FALSE(is_buffer("gpt_neox", "layers.0.attention.query_key_value.bias"));
  CHECK(is_buffer("llama", "layers.0.self_attn.rotary_emb.inv_freq"));
  CHECK_FALSE(is_buffer("llama", "layers.0.self_attn.o_proj.bias"));
  CHECK(is_buffer("bert", "embeddings.position_ids"));
}

TEST_CASE("settings with lists of numbers and with overrides of layers survive the form of TOML", "[huggingface]") {
  const Settings settings{{"attention.rotary.short_factors", Json::array({1.0, 1.25, 1e-5})},
                          {"attention.rotary.long_factors", Json::array()},
                          {"attention.group_sizes", Json::array({2, 3})},
                          {"attention.transform", Json::array({"qk-norm", "rotary"})},
                          {"attention.decoder.self.3.transform", Json::array()},
                          {"attention.decoder.self.3.rotary.base", 1000000.0},
                          {"attention.decoder.self.13.window", 5},
                          {"model.norm_epsilon", 1e-6}};
  CHECK(settings_of(toml_of(settings)) == settings);
}

TEST_CASE("an unsupported setting of config.json is refused, and the message names its key or value", "[huggingface]") {
  CHECK_THAT(refusal_message("gpt2", R"({"scale_attn_by_inverse_layer_idx": true})"),
             Catch::Contains("inverse_layer_idx"));
  CHECK_THAT(refusal_message("gpt2", R"({"activation_function": "quick_gelu"})"), Catch::Contains("\"quick_gelu\""));
  CHECK_THAT(refusal_message("bert", R"({"position_embedding_type": "relative_key"})"),
             Catch::Contains("relative_key"));
  CHECK_THAT(refusal_message("bert", R"({"is_decoder": true})"), Catch::Contains("is_decoder"));
  CHECK_THAT(refusal_message("bert", R"({"architectures": ["BertForTokenClassification"]})"),
             Catch::Contains("BertModel"));
}

TEST_CASE("positions of RoBERTa count from the row after the padding token", "[huggingface]") {
  for (const char* type : {"roberta", "xlm-roberta", "camembert"}) {
    INFO(type);
    const auto architecture = architectures().make(type, "model_type");
    Settings s = settings_from(type, R"({"max_position_embeddings": 514, "num_hidden_layers": 1})");
    CHECK(s["model.max_positions"] == 512);
    CHECK(s["model.bert.head"] == "words");
    CHECK(s.count("model.bert.next_sentence") == 0);
    CHECK(architecture->config(s).at("max_position_embeddings") == 514);
    CHECK(architecture->config(s).at("pad_token_id") == 1);
    CHECK(architecture->tensor_prefix() == "roberta.");
    const TensorNames names = architecture->tensor_names(s);
    for (const TensorPair& pair : names.pairs)
      CHECK(pair.num_unused_rows == (pair.huggingface_name == "embeddings.position_embeddings.weight" ? 2 : 0));
    CHECK(names.aliases.at("lm_head.decoder.weight") == "embeddings.word_embeddings.weight");
    CHECK(names.aliases.at("lm_head.decoder.bias") == "lm_head.bias");
    CHECK(architecture->belongs_to_output_head("lm_head.bias"));
    CHECK(architecture->is_unused("pooler.dense.weight", s));
    CHECK_THAT(refusal_message(type, R"({"pad_token_id": 0})"), Catch::Contains("pad_token_id"));
    CHECK_THAT(refusal_message(type, R"({"max_position_embeddings": 2})"), Catch::Contains("more than 2"));
    CHECK_THAT(refusal_message(type, R"({"position_embedding_type": "relative_key"})"),
               Catch::Contains("relative_key"));
    CHECK_THAT(refusal_message(type, R"({"is_decoder": true})"), Catch::Contains("is_decoder"));
    CHECK_THAT(refusal_message(type, R"({"add_cross_attention": true})"), Catch::Contains("add_cross_attention"));
    CHECK_THAT(refusal_message(type, R"({"hidden_act": "relu"})"), Catch::Contains("head for masked words"));
  }
}

TEST_CASE("a vocabulary of a type that transformers cannot read for an architecture is refused", "[huggingface]") {
  const text::Tokenizers bytes{text::make_byte_tokenizer(), nullptr};
  for (const auto& [type, expected] :
       {std::pair{"llama", "tokenizer-json, byte-bpe or sentencepiece"}, {"roberta", "tokenizer-json"}})
    CHECK_THROWS_WITH(
        architectures().make(type, "model_type")->vocabulary_files(bytes, {{"model.max_positions", 8}}, "test"),
        Catch::Contains(str("test: expected a vocabulary of the type ", expected, ", which transformers requires")) &&
            Catch::Contains("found a vocabulary of the type byte"));
  const Folder folder;
  CHECK_THROWS_WITH(architectures().make("roberta", "model_type")->tokenizers(folder.path.string()),
                    Catch::Contains(folder.path.string() + ": expected a folder with tokenizer.json; found no"));
}

TEST_CASE("the classifier of RoBERTa is a pooler and a dense layer", "[huggingface]") {
  const auto architecture = architectures().make("roberta", "model_type");
  Settings s =
      settings_from("roberta", R"({"architectures": ["RobertaForSequenceClassification"], "num_hidden_layers": 1,
                     "id2label": {"0": "a", "1": "b", "2": "c"}, "classifier_dropout": 0.3})");
  CHECK(s["model.bert.head"] == "classes");
  CHECK(s["model.bert.classes"] == 3);
  CHECK(s["model.dropout_output"] == 0.3);
  std::map<std::string, std::string> names;
  for (const TensorPair& pair : architecture->tensor_names(s).pairs)
    names[pair.huggingface_name] = pair.multihead_names[0];
  CHECK(names.at("classifier.dense.weight") == "pooler.weight");
  CHECK(names.at("classifier.dense.bias") == "pooler.bias");
  CHECK(names.at("classifier.out_proj.weight") == "head.classes.weight");
  CHECK(names.count("pooler.dense.weight") == 0);
  CHECK(settings_from("roberta", "{}", {"classifier.out_proj.weight"})["model.bert.head"] == "classes");
  CHECK(settings_from("roberta", "{}", {"qa_outputs.weight"})["model.bert.head"] == "span");
}

TEST_CASE("a BERT head without a format in transformers is refused, and the message names the supported heads",
          "[huggingface]") {
  const Settings settings{{"model.layers", 1}, {"model.bert.head", "tags"}};
  const auto architecture = architectures().make("bert", "model_type");
  CHECK(status_of([&] { architecture->tensor_names(settings); }) == 3);
  CHECK_THROWS_WITH(architecture->tensor_names(settings), Catch::Contains("words, number, classes, span"));
}

TEST_CASE("added tokens are read from added_tokens.json, tokenizer_config.json and tokenizer.json", "[huggingface]") {
  std::string pieces = "{", separator;
  for (int byte = 0; byte < 256; ++byte) {
    std::string letter;
    append_utf8(text::character_of_byte(static_cast<uint8_t>(byte)), letter);
    pieces += separator + Json(letter).dump() + ":" + std::to_string(byte);
    separator = ",";
  }
  const std::string vocabulary = pieces + "}";
  // Returns a tokenizer.json with the 256 byte pieces, one merge, <|endoftext|> and the added token `token`, a JSON
  // object.
  auto tokenizer_json = [&](const std::string& token) {
    return R"({"added_tokens":[{"id":256,"content":"<|endoftext|>","special":true}, )" + token +
           R"(], "normalizer":null, "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
           "model":{"type":"BPE","merges":[["a","b"]],"vocab":)" +
           pieces + R"(,"ab":257}}})";
  };
  const Folder folder;
  auto write = [&](const char* name, const std::string& text) { write_file_atomically(folder.file(name), text); };
  auto read = [&] { return text::read_byte_bpe_folder(folder.path); };
  CHECK_THROWS_WITH(read(), Catch::Contains("vocab.json"));
  write("vocab.json", vocabulary);
  CHECK_THROWS_WITH(read(), Catch::Contains("merges.txt"));
  write("merges.txt", "! #\n");
  CHECK(status_of(read) == 3);  // no <|endoftext|>
  write("vocab.json", pieces + R"(,"<|endoftext|>":256,"!#":257})");
  CHECK(read()->size() == 258);
  CHECK(read()->serialize().find("added_tokens") == std::string::npos);
  write("added_tokens.json", R"({"<a>": 258})");
  CHECK(read()->added_tokens().at(258) == std::set<std::string>{"appended"});
  write("tokenizer_config.json",
        R"({"added_tokens_decoder": {"258": {"content": "<a>"}, "259": {"content": "<b>", "special": true}},
                                     "pad_token": "<a>", "sep_token": "<nowhere>", "additional_special_tokens": ["<b>"]})");
  const auto tokenizer = read();
  CHECK(tokenizer->size() == 260);
  CHECK(tokenizer->added_tokens().at(258) == std::set<std::string>{"appended", "pad_token", "special"});
  CHECK(tokenizer->added_tokens().at(259) == std::set<std::string>{"appended", "additional_special_tokens", "special"});
  CHECK(text::token_id_of_role(tokenizer->added_tokens(), "eos_token") == 256);
  CHECK(text::token_id_of_role(tokenizer->added_tokens(), "sep_token") == -1);
  for (const char* invalid_json : {"[]", R"({"<c>": 258})", R"({"<a>": 259})", R"({"<c>": -1})", R"({"": 260})",
                                   R"({"<c>": "260"})", R"({"<c>": 261})", R"({"!": 260})"}) {
    write("added_tokens.json", invalid_json);
    INFO(invalid_json);
    CHECK(status_of(read) == 3);
  }
  std::filesystem::remove(folder.file("added_tokens.json"));
  for (const char* invalid_json :
       {R"({"added_tokens_decoder": {"x": {"content": "a"}}})", R"({"added_tokens_decoder": {"258": "a"}})"}) {
    write("tokenizer_config.json", invalid_json);
    CHECK(status_of(read) == 3);
  }
  write("tokenizer_config.json", R"({"eos_token": {"content": "<c>"}})");
  for (const char* name : {"vocab.json", "merges.txt"}) std::filesystem::remove(folder.file(name));
  write("tokenizer.json", tokenizer_json(R"({"id":258,"content":"<c>","special":true,"normalized":true})"));
  CHECK(read()->size() == 259);
  CHECK(read()->added_tokens().at(258) == std::set<std::string>{"appended", "eos_token", "normalized", "special"});
  write("vocab.json", vocabulary);
  CHECK_THROWS_WITH(read(), Catch::Contains("vocab.json") && Catch::Contains("'ab'"));
}
