// Models written as Hugging Face folders and read back, and refusals.
#include "conversion/huggingface_folder.h"

#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/file.h"
#include "fixtures/folder.h"
#include "fixtures/models.h"
#include "fixtures/status.h"
#include "text/wordpiece.h"

using namespace mh;

namespace {

// Returns a small BERT model with random parameters. `model_lines`, `attention_lines`: further lines of [model] and
// [attention].
model::LoadedModel make_bert(const std::string& model_lines, const std::string& attention_lines = "") {
  std::vector<text::Piece> pieces;
  for (const char* piece : text::kSpecialPieces) pieces.push_back({piece, 0});
  for (const char* piece : {"a", "b", "##c"}) pieces.push_back({piece, 0});
  model::LoadedModel loaded_model;
  loaded_model.name = "test";
  loaded_model.tokenizers.target = text::make_wordpiece_tokenizer(std::move(pieces), {}, "test");
  loaded_model.config = models::parse_model_config(
      "[model]\nbackbone = 'bert'\nnorm = 'post'\nactivation = 'gelu'\npositions = 'learned'\nmax_positions = 16\n"
      "scale_embedding = false\nbert.segments = 2\nbert.embedding_norm = true\ninit = 'bert'\nlayers = 2\nwidth = 8\n"
      "ffn = 12\n" +
      model_lines + "[attention]\nheads = 2\n" + attention_lines);
  loaded_model.model =
      model::build_language_model(loaded_model.config, model::vocabulary_sizes_of(loaded_model.tokenizers), at::kCPU);
  c10::NoGradGuard no_gradient;
  at::manual_seed(1);
  for (nn::Parameter& p : loaded_model.model->parameters().all()) p.master().copy_(at::randn(p.master().sizes()));
  return loaded_model;
}

}  // namespace

TEST_CASE("a written Hugging Face folder reads back to the same configuration, vocabulary and bits of the parameters",
          "[conversion]") {
  for (const char* model_lines :
       {"", "bert.next_sentence = true\n", "tied = false\n", "bert.head = 'classes'\nbert.classes = 3\n",
        "bert.head = 'classes'\nbert.classes = 2\nbert.labels = ['no', 'yes']\ndropout_output = 0.25\n",
        "bert.head = 'number'\n", "bert.head = 'span'\n"}) {
    INFO(model_lines);
    const Folder folder;
    const model::LoadedModel written_model = make_bert(model_lines);
    conversion::write_folder(written_model, folder.file("model"));
    const model::LoadedModel read_model = conversion::read_folder(folder.file("model"), {});
    CHECK(read_model.config.toml() == written_model.config.toml());
    CHECK(read_model.tokenizers.target->serialize() == written_model.tokenizers.target->serialize());
    CHECK(read_model.model->parameters().all().size() == written_model.model->parameters().all().size());
    for (const nn::Parameter& p : written_model.model->parameters().all()) {
      INFO(p.name());
      const nn::Parameter* read_parameter = read_model.model->parameters().find(p.name());
      REQUIRE(read_parameter != nullptr);
      CHECK(at::equal(read_parameter->master(), p.master()));
    }
  }
}

TEST_CASE("an unsupported architecture is refused in both directions, and no folder remains", "[conversion]") {
  const Folder folder;
  write_file_atomically(folder.file("config.json"), R"({"model_type": "llama"})");
  CHECK(status_of([&] { conversion::read_folder(folder.path, {}); }) == 3);
  CHECK_THROWS_WITH(conversion::read_folder(folder.path, {}), Catch::Contains("\"bert\" or \"gpt2\""));
  const std::string new_folder = folder.file("model");
  CHECK(status_of([&] { conversion::write_folder(make_bert("", "mixer = 'mixhead-a'\n"), new_folder); }) == 3);
  CHECK_FALSE(std::filesystem::exists(new_folder));
  CHECK(status_of([&] { conversion::write_folder(make_bert(""), folder.path); }) == 2);  // the folder exists
}
