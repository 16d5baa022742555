// Tests of rotary positions in config.json: both spellings, kinds of scaling, defaults and refusals.
#include "huggingface/rope.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "fixtures/huggingface_settings.h"
#include "fixtures/status.h"
#include "huggingface/layer_settings.h"

using namespace mh;
using namespace mh::huggingface;
using namespace huggingface_settings;

namespace {

constexpr RopeSizes kSizes{.head_size = 12, .max_positions = 64};
constexpr RopeFormat kPartial{.rotary_fraction_key = "partial_rotary_factor"};
constexpr RopeFormat kPhi3{.rotary_fraction_key = "partial_rotary_factor",
                           .default_original_length = 4096,
                           .has_only_longrope = true,
                           .has_plain_scaling = true};

Settings read(const std::string& text, const RopeFormat& format = {}, const RopeSizes& sizes = kSizes) {
  return read_rope(config(text), format, sizes);
}

std::string error_of(const std::string& text, const RopeFormat& format = {}) {
  try {
    read(text, format);
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::input);
    return error.what();
  }
  return "";
}

// Returns config.json with both spellings of the settings.
Json written(const Settings& rope, const RopeFormat& format = {}, const RopeSizes& sizes = kSizes) {
  Json config = Json::object();
  write_rope(rope, format, sizes, config);
  return config;
}

}  // namespace

TEST_CASE("rotary positions are read in the spelling of transformers 4 and of transformers 5", "[huggingface]") {
  const Settings plain{{"rotary.base", 10000.0}, {"rotary.size", 0}, {"rotary.scaling", "none"}};
  CHECK(read("{}") == plain);
  CHECK(read(R"({"rope_scaling": null})") == plain);
  CHECK(read(R"({"rope_theta": 10000})") == plain);
  CHECK(read(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})") == plain);
  CHECK(read(R"({"rope_parameters": {"rope_type": "default"}})") == plain);
  Settings linear = plain;
  linear["rotary.base"] = 5e5;
  linear["rotary.scaling"] = "linear";
  linear["rotary.factor"] = 8.0;
  CHECK(read(R"({"rope_theta": 500000, "rope_scaling": {"rope_type": "linear", "factor": 8}})") == linear);
  CHECK(read(R"({"rope_theta": 500000, "rope_scaling": {"type": "linear", "factor": 8.0}})") == linear);
  CHECK(read(R"({"rope_parameters": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500000.0}})") == linear);
}

TEST_CASE("two spellings that differ are refused, since each version of transformers reads one of them",
          "[huggingface]") {
  CHECK(error_of(R"({"rope_theta": 10000, "rope_parameters": {"rope_theta": 10000.0}})").empty());
  CHECK_THAT(error_of(R"({"rope_theta": 10000, "rope_parameters": {"rope_theta": 500000.0}})"),
             Catch::Contains("rope_parameters") && Catch::Contains("rope_theta"));
  CHECK_THAT(
      error_of(R"({"rope_scaling": {"rope_type": "linear", "factor": 2}, "rope_parameters": {"rope_theta": 1e4}})"),
      Catch::Contains("other rotary positions"));
  CHECK_THAT(error_of(R"({"rope_scaling": {"rope_type": "linear", "type": "dynamic", "factor": 2}})"),
             Catch::Contains("rope_type: expected the value of type"));
  CHECK_THAT(error_of(R"({"original_max_position_embeddings": 32, "rope_scaling": {"rope_type": "yarn", "factor": 2,
                          "original_max_position_embeddings": 16}})"),
             Catch::Contains("expected 32") && Catch::Contains("found 16"));
}

TEST_CASE("each kind of scaling has its numbers, and defaults where transformers has them", "[huggingface]") {
  const auto scaling = [](const std::string& text) {
    Settings settings = read(R"({"rope_scaling": )" + text + "}");
    for (const char* key : {"rotary.base", "rotary.size"}) settings.erase(key);
    return settings;
  };
  CHECK(scaling(R"({"rope_type": "dynamic", "factor": 2})") ==
        Settings{{"rotary.scaling", "dynamic"}, {"rotary.factor", 2.0}, {"rotary.original_length", 64}});
  CHECK(scaling(R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                    "original_max_position_embeddings": 16})") == Settings{{"rotary.scaling", "llama3"},
                                                                           {"rotary.factor", 8.0},
                                                                           {"rotary.low_factor", 1.0},
                                                                           {"rotary.high_factor", 4.0},
                                                                           {"rotary.original_length", 16}});
  const Settings yarn{{"rotary.scaling", "yarn"}, {"rotary.factor", 4.0},    {"rotary.original_length", 16},
                      {"rotary.beta_fast", 32.0}, {"rotary.beta_slow", 1.0}, {"rotary.truncate", true}};
  CHECK(scaling(R"({"type": "yarn", "factor": 4, "original_max_position_embeddings": 16})") == yarn);
  // A missing factor is the quotient of the two lengths. null counts as missing, and so does 0 if transformers tests
  // the number for truth.
  CHECK(scaling(R"({"rope_type": "yarn", "original_max_position_embeddings": 16, "beta_fast": null, "mscale": 0})") ==
        yarn);
  // mscale counts only with mscale_all_dim, and not beside attention_factor.
  CHECK(scaling(R"({"rope_type": "yarn", "original_max_position_embeddings": 16, "mscale": 1})") == yarn);
  Settings scaled_yarn = yarn;
  scaled_yarn["rotary.mscale"] = 0.5;
  scaled_yarn["rotary.mscale_all_dim"] = 1.0;
  CHECK(
      scaling(R"({"rope_type": "yarn", "original_max_position_embeddings": 16, "mscale": 0.5, "mscale_all_dim": 1})") ==
      scaled_yarn);
  Settings weighted_yarn = yarn;
  weighted_yarn["rotary.attention_factor"] = 1.5;
  weighted_yarn["rotary.truncate"] = false;
  CHECK(scaling(R"({"rope_type": "yarn", "original_max_position_embeddings": 16, "mscale": 0.5, "mscale_all_dim": 1,
                    "attention_factor": 1.5, "truncate": false})") == weighted_yarn);
  CHECK(setting_or(scaling(R"({"rope_type": "yarn", "factor": 4})"), "rotary.original_length", 0) == 64);
  const std::string lists = R"("short_factor": [1, 1, 1, 1, 1, 1], "long_factor": [1, 2, 3, 4, 5, 6])";
  const Settings longrope =
      scaling(R"({"rope_type": "longrope", "original_max_position_embeddings": 16, )" + lists + "}");
  CHECK(longrope.at("rotary.factor") == 4.0);
  CHECK(longrope.at("rotary.long_factors") == Json::array({1.0, 2.0, 3.0, 4.0, 5.0, 6.0}));
  CHECK_FALSE(longrope.contains("rotary.attention_factor"));
  // An attention factor that equals the derived one is not a setting of its own.
  Settings weighted_longrope =
      read(R"({"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 16,
               "attention_factor": )" +
           Json(std::sqrt(1.5)).dump() + ", " + lists + "}}");
  for (const char* key : {"rotary.base", "rotary.size"}) weighted_longrope.erase(key);
  CHECK(weighted_longrope == longrope);
}

TEST_CASE("yarn uses an explicit factor, whatever the quotient of both lengths", "[huggingface]") {
  // As transformers 4.57 and 5 do, which only warn. The quotient is 64 / 16.
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Settings yarn =
        read(std::string("{\"") + key +
             R"(": {"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 16, "rope_theta": 10000}})");
    CHECK(yarn.at("rotary.factor") == 2.0);
    CHECK(yarn.at("rotary.original_length") == 16);
  }
}

TEST_CASE("numbers of rope_scaling that transformers 4 and 5 read differently are refused", "[huggingface]") {
  const std::string top = R"({"original_max_position_embeddings": 16, "rope_scaling": {"rope_type": )",
                    only_nested = R"({"rope_scaling": {"original_max_position_embeddings": 16, "rope_type": )",
                    lists = R"("short_factor": [1, 1, 1, 1, 1, 1], "long_factor": [1, 2, 3, 4, 5, 6]}})";
  CHECK_THAT(error_of(top + R"("yarn", "factor": 4}})"),
             Catch::Contains("rope_scaling: original_max_position_embeddings: expected 16") &&
                 Catch::Contains("does not read for yarn; found none"));
  CHECK(error_of(R"({"original_max_position_embeddings": 64, "rope_scaling": {"rope_type": "yarn", "factor": 4}})")
            .empty());
  CHECK(error_of(R"({"original_max_position_embeddings": 16, "rope_parameters": {"rope_type": "yarn", "factor": 4}})")
            .empty());
  CHECK_THAT(error_of(only_nested + R"("longrope", "factor": 4, )" + lists),
             Catch::Contains("config.json: original_max_position_embeddings: expected 16") &&
                 Catch::Contains("does not read for longrope; found none"));
  CHECK(error_of(only_nested + R"("longrope", )" + lists).empty());  // transformers 4 does not read such a file
  CHECK_THAT(error_of(top + R"("longrope", "factor": 2, )" + lists),
             Catch::Contains("rope_scaling: factor: expected 4.0, the quotient") && Catch::Contains("found 2.0"));
  CHECK(error_of(top + R"("longrope", "factor": 4, )" + lists).empty());
  CHECK(error_of(top + R"("longrope", "factor": 2, "attention_factor": 1.5, )" + lists).empty());
}

TEST_CASE("a part of a head rotates only in architectures with such a key", "[huggingface]") {
  CHECK(read(R"({"partial_rotary_factor": 0.5})", kPartial).at("rotary.size") == 6);
  CHECK(read(R"({"partial_rotary_factor": 1.0})", kPartial).at("rotary.size") == 0);
  CHECK(read(R"({"rope_parameters": {"partial_rotary_factor": 0.5}})", kPartial).at("rotary.size") == 6);
  CHECK(read(R"({"partial_rotary_factor": 0.7})", kPartial).at("rotary.size") == 8);  // 8.4 elements, rounded down
  CHECK(error_of(R"({"partial_rotary_factor": 1.0})").empty());
  CHECK_THAT(error_of(R"({"partial_rotary_factor": 0.5})"), Catch::Contains("partial_rotary_factor: expected 1"));
  CHECK_THAT(error_of(R"({"rope_parameters": {"partial_rotary_factor": 0.5}})"),
             Catch::Contains("rope_parameters: partial_rotary_factor"));
  for (const char* part : {"0", "0.3", "1.5", "-1", "1e300", "0.1"})  // 0.3: 3 elements
    CHECK_THAT(error_of(std::string(R"({"partial_rotary_factor": )") + part + "}", kPartial),
               Catch::Contains("an even number of elements"));
  // The written fraction reads back as the same size, whatever the rounding of the quotient.
  for (int64_t head_size = 2; head_size <= 256; head_size += 7)
    for (int64_t size = 2; size < head_size; size += 2) {
      const RopeSizes sizes{head_size, 64};
      const Settings rope{{"rotary.base", 10000.0}, {"rotary.size", size}, {"rotary.scaling", "none"}};
      if (read(written(rope, kPartial, sizes).dump(), kPartial, sizes) != rope) FAIL(size << " of " << head_size);
    }
}

TEST_CASE("written rotary positions have both spellings and read back to the same settings", "[huggingface]") {
  const std::string lists = R"("short_factor": [1, 1, 1, 1, 1, 1], "long_factor": [1, 2, 3, 4, 5, 6])";
  for (
      const std::string& text :
      {std::string("{}"), std::string(R"({"rope_theta": 500000})"),
       std::string(R"({"rope_scaling": {"rope_type": "linear", "factor": 8}})"),
       std::string(R"({"rope_scaling": {"rope_type": "dynamic", "factor": 2}})"),
       std::string(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                        "original_max_position_embeddings": 16}})"),
       std::string(R"({"rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16,
                        "mscale": 0.5, "mscale_all_dim": 1, "truncate": false}})"),
       R"({"original_max_position_embeddings": 16, "rope_scaling": {"rope_type": "longrope", "factor": 4, )" + lists +
           "}}",
       R"({"rope_parameters": {"rope_type": "longrope", "factor": 2, "original_max_position_embeddings": 16, )" +
           lists + "}}",
       R"({"original_max_position_embeddings": 16, "rope_scaling": {"rope_type": "longrope", "attention_factor": 2, )" +
           lists + "}}"}) {
    INFO(text);
    const Settings rope = read(text);
    Json both = written(rope);
    CHECK(read(both.dump()) == rope);
    CHECK(both.at("rope_theta") == rope.at("rotary.base"));
    // Each version reads its own spelling only.
    Json version_4 = both, version_5 = both;
    version_4.erase("rope_parameters");
    for (const char* key : {"rope_theta", "rope_scaling", "original_max_position_embeddings"}) version_5.erase(key);
    CHECK(read(version_4.dump()) == rope);
    CHECK(read(version_5.dump()) == rope);
  }
}

TEST_CASE("Phi-3 scales by longrope only, under three names, with exactly the keys that transformers 4 accepts",
          "[huggingface]") {
  const std::string lists = R"("short_factor": [1, 1.5, 2], "long_factor": [2, 3, 4])";
  const std::string sizes = R"("partial_rotary_factor": 0.5, "original_max_position_embeddings": 16, )";
  const Settings rope = read("{" + sizes + R"("rope_scaling": {"type": "longrope", )" + lists + "}}", kPhi3);
  CHECK(rope.at("rotary.scaling") == "longrope");
  CHECK(rope.at("rotary.size") == 6);
  CHECK(rope.at("rotary.factor") == 4.0);
  for (const char* name : {"su", "yarn"})
    CHECK(read("{" + sizes + R"("rope_scaling": {"type": ")" + name + "\", " + lists + "}}", kPhi3) == rope);
  CHECK(read("{" + sizes + R"("rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 16,
              "rope_theta": 10000, "partial_rotary_factor": 0.5, )" +
                 lists + "}}",
             kPhi3) == rope);
  CHECK_THAT(error_of(R"({"rope_scaling": {"rope_type": "linear", "factor": 2}})", kPhi3),
             Catch::Contains("default, longrope") && Catch::Contains("\"linear\""));
  CHECK_THAT(
      error_of("{" + sizes + R"("rope_scaling": {"type": "su", "short_factor": [1], "long_factor": [1]}})", kPhi3),
      Catch::Contains("short_factor: expected a list of 3 numbers"));
  const Json both = written(rope, kPhi3);
  CHECK(both.at("rope_scaling").size() == 3);
  CHECK(both.at("rope_scaling").at("type") == "longrope");
  CHECK(read(both.dump(), kPhi3) == rope);
  // Without original_max_position_embeddings, the original length is 4096, the default of Phi-3's configuration class,
  // and not max_position_embeddings.
  CHECK(read(R"({"partial_rotary_factor": 0.5, "rope_scaling": {"type": "su", )" + lists + "}}", kPhi3,
             {.head_size = 12, .max_positions = 131072})
            .at("rotary.factor") == 32.0);
  CHECK(read(R"({"partial_rotary_factor": 0.5, "rope_scaling": {"type": "su", )" + lists + "}}", kPhi3,
             {.head_size = 12, .max_positions = 64})
            .at("rotary.factor") == 1.0);
  CHECK_THAT(
      error_of(R"({"rope_scaling": {"type": "su", "original_max_position_embeddings": 16, )" + lists + "}}", kPhi3),
      Catch::Contains("expected 4096, the default of the architecture") && Catch::Contains("found 16"));
}

TEST_CASE("unknown kinds and keys of rotary positions, and missing or invalid numbers, are refused by name",
          "[huggingface]") {
  CHECK_THAT(error_of(R"({"rope_scaling": {"rope_type": "proportional"}})"),
             Catch::Contains("rope_type") && Catch::Contains("\"proportional\""));
  CHECK_THAT(error_of(R"({"rope_scaling": {"rope_type": "none"}})"), Catch::Contains("\"none\""));
  CHECK_THAT(error_of(R"({"rope_scaling": {"rope_type": "su"}})"), Catch::Contains("\"su\""));
  CHECK_THAT(error_of(R"({"rope_parameters": {"mrope_section": [1, 2]}})"),
             Catch::Contains("rope_parameters: mrope_section"));
  CHECK_THAT(error_of(R"({"rope_parameters": {"full_attention": {}}})"), Catch::Contains("full_attention"));
  CHECK_THAT(error_of(R"({"rope_scaling": {"rope_type": "linear"}})"),
             Catch::Contains("factor") && Catch::Contains("none"));
  CHECK_THAT(error_of(R"({"rope_scaling": {"rope_type": "linear", "factor": -2}})"), Catch::Contains("greater than 0"));
  CHECK_THAT(error_of(R"({"rope_scaling": {"rope_type": "linear", "factor": "2"}})"), Catch::Contains("a number"));
  CHECK_THAT(error_of(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1}})"),
             Catch::Contains("high_freq_factor"));
  CHECK_THAT(error_of(R"({"rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 0}})"),
             Catch::Contains("original_max_position_embeddings"));
  for (const char* key : {"factor", "attention_factor"})
    CHECK_THAT(error_of(std::string(R"({"rope_scaling": {"rope_type": "yarn", ")") + key + "\": 0}}"),
               Catch::Contains(std::string(key) + ": expected a number greater than 0") && Catch::Contains("found 0"));
  CHECK_THAT(error_of(R"({"rope_scaling": [2]})"), Catch::Contains("rope_scaling: expected an object"));
  CHECK_THAT(error_of(R"({"rope_theta": 0})"), Catch::Contains("rope_theta"));
  CHECK_THAT(error_of(R"({"rope_scaling": {"rope_type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1],
                          "long_factor": [1, 1, 1, 1, 1, -1]}})"),
             Catch::Contains("long_factor"));
}

TEST_CASE("settings of layers become overrides of the kind of most layers, and read back", "[huggingface]") {
  LayerSettings layers;
  const Settings sliding{{"window", 5}, {"transform", Json::array({"rotary"})}, {"rotary.base", 10000.0}};
  const Settings full{
      {"window", 0}, {"transform", Json::array({"rotary"})}, {"rotary.base", 1e6}, {"rotary.factor", 8.0}};
  const Settings plain{{"window", 0}, {"transform", Json::array()}};
  for (const Settings& layer : {full, sliding, plain, sliding, full, full}) layers.add(layer);
  CHECK(layers.kinds.size() == 3);
  Settings settings{{"model.layers", 6}, {"attention.heads", 4}};
  set_layers(layers, settings);
  // Three of six layers have the settings `full`, but the shared settings are `sliding`, since overrides can turn
  // `sliding` into the other settings, while no override removes rotary.factor.
  CHECK(settings.at("attention.window") == 5);
  CHECK(settings.at("attention.decoder.self.0.window") == 0);
  CHECK(settings.at("attention.decoder.self.0.rotary.factor") == 8.0);
  CHECK_FALSE(settings.contains("attention.decoder.self.1.window"));
  CHECK(settings.at("attention.decoder.self.2.transform") == Json::array());
  CHECK_FALSE(settings.contains("attention.rotary.factor"));
  const LayerSettings read_layers = layers_of(settings, 6);
  for (size_t layer = 0; layer < 6; ++layer) {
    CHECK(read_layers.of_layer(layer).at("heads") == 4);
    for (const auto& [key, value] : layers.of_layer(layer)) CHECK(read_layers.of_layer(layer).at(key) == value);
  }
  // If each kind lacks settings of the other, the shared settings are the settings that both kinds have.
  LayerSettings scaled_layers;
  scaled_layers.add({{"transform", Json::array({"rotary"})}, {"rotary.factor", 2.0}, {"rotary.beta_fast", 8.0}});
  scaled_layers.add({{"transform", Json::array({"rotary"})}, {"rotary.factor", 2.0}, {"rotary.low_factor", 3.0}});
  Settings scaled_settings;
  set_layers(scaled_layers, scaled_settings);
  CHECK(scaled_settings == Settings{{"attention.transform", Json::array({"rotary"})},
                                    {"attention.rotary.factor", 2.0},
                                    {"attention.decoder.self.0.rotary.beta_fast", 8.0},
                                    {"attention.decoder.self.1.rotary.low_factor", 3.0}});
  // Options of the kind of layers apply to all layers without an override.
  const LayerSettings of_kind = layers_of({{"attention.window", 3},
                                           {"attention.decoder.self.window", 4},
                                           {"attention.decoder.self.1.window", 6},
                                           {"attention.decoder.cross.window", 7}},
                                          2);
  CHECK(of_kind.of_layer(0) == Settings{{"window", 4}});
  CHECK(of_kind.of_layer(1) == Settings{{"window", 6}});
}
