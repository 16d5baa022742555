// The language model in a folder of a model for text and images.
#include "huggingface/text_part.h"

#include <catch2/catch.hpp>
#include <string>

#include "fixtures/huggingface_settings.h"

using namespace mh::huggingface;
using huggingface_settings::config;

TEST_CASE("tensors of the language model have the names of a folder of its own, and other parts have none",
          "[huggingface]") {
  for (const char* prefix : {"language_model.model.", "model.language_model."})
    CHECK(language_model_tensor_name(std::string(prefix) + "layers.0.mlp.up_proj.weight") ==
          "model.layers.0.mlp.up_proj.weight");
  for (const char* prefix : {"language_model.", ""})
    CHECK(language_model_tensor_name(std::string(prefix) + "lm_head.weight") == "lm_head.weight");
  for (const char* name : {"vision_tower.vision_model.embeddings.weight", "multi_modal_projector.norm.weight"})
    for (const std::string prefix : {"", "model."}) CHECK(language_model_tensor_name(prefix + name).empty());
  CHECK(language_model_tensor_name("audio_tower.norm.weight") == "audio_tower.norm.weight");  // unknown, and refused
}

TEST_CASE("Gemma 3 for text and images gets its settings from text_config", "[huggingface]") {
  const auto whole = config(R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "head_dim": 8}})");
  CHECK(has_text_part(whole));
  CHECK(text_part(whole).value("head_dim", 0) == 8);
  CHECK(text_part(whole).path() == "config.json: text_config");
  CHECK_FALSE(has_text_part(config(R"({"model_type": "gemma3_text"})")));
  CHECK_THROWS_WITH(text_part(config(R"({"model_type": "gemma3"})")), Catch::Contains("text_config"));
  CHECK_THROWS_WITH(text_part(config(R"({"model_type": "gemma3", "text_config": 3})")), Catch::Contains("an object"));
}
