// Models written as Hugging Face folders and read back, and refusals.
#include "conversion/huggingface_folder.h"

#include <c10/core/GradMode.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "fixtures/converted_models.h"
#include "fixtures/folder.h"
#include "fixtures/peak_memory.h"
#include "fixtures/status.h"
#include "text/wordpiece.h"

using namespace mh;

namespace {

// Returns a BERT model with random parameters, a small one by default. `model_lines`, `attention_lines`: further lines
// of [model] and [attention].
model::LoadedModel make_bert(const std::string& model_lines, const std::string& attention_lines = "",
                             const std::string& size_lines = "layers = 2\nwidth = 8\nffn_dim = 12\n") {
  std::vector<text::Piece> pieces;
  for (const char* piece : text::kSpecialPieces) pieces.push_back({piece, 0});
  for (const char* piece : {"a", "b", "##c"}) pieces.push_back({piece, 0});
  return converted_models::random_model(
      text::make_wordpiece_tokenizer(std::move(pieces), {}, "test"),
      "[model]\nbackbone = 'bert'\nnorm = 'post'\nactivation = 'gelu'\npositions = 'learned'\nmax_positions = 16\n"
      "scale_embedding = false\nbert.segments = 2\nbert.embedding_norm = true\ninit = 'bert'\n" +
          size_lines + model_lines + "[attention]\nheads = 2\n" + attention_lines);
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
    converted_models::check_same_model(conversion::read_folder(folder.file("model"), {}), written_model);
  }
}

TEST_CASE("a folder is converted to each type one parameter at a time, with the values of the folder", "[conversion]") {
  const Folder folder;
  const std::string path = folder.file("m.safetensors");
  conversion::write_folder(make_bert("", "", "layers = 12\nwidth = 512\nffn_dim = 2048\n"), folder.file("model"),
                           {"", io::DType::bf16});
  for (const io::DType type : {io::DType::f32, io::DType::bf16, io::DType::f16}) {
    INFO(io::name_of(type));
    const conversion::Folder huggingface_folder(folder.file("model"), {});
    const bool can_measure = reset_peak_memory();
    const int64_t initial_kb = peak_memory_kb();
    huggingface_folder.write_checkpoint(*open_sink(path), {}, type);
    // The largest tensor of 38 million parameters has 2048 * 512 elements in bf16.
    if (can_measure) CHECK(peak_memory_kb() - initial_kb < 3 * 2 * 1024 + 24 * 1024);
    const model::LoadedModel read_model = conversion::read_folder(folder.file("model"), {});
    const io::Checkpoint checkpoint(path);
    CHECK(checkpoint.tensors().size() == read_model.model->parameters().all().size());
    for (const nn::Parameter& p : read_model.model->parameters().all()) {
      INFO(p.name());
      const at::Tensor expected = p.master().detach().to(model::parameter_scalar_type(type).value());
      const io::TensorInfo* info = checkpoint.find(p.name());
      REQUIRE(info != nullptr);
      CHECK(info->type == type);
      CHECK(info->shape == p.sizes().vec());
      CHECK(std::memcmp(checkpoint.data(p.name()), expected.const_data_ptr(), expected.nbytes()) == 0);
    }
  }
}

TEST_CASE("a folder with numbers past the range of fp16 is converted to the other types only", "[conversion]") {
  const Folder folder;
  model::LoadedModel written_model = make_bert("");
  {
    const c10::NoGradGuard no_gradient;
    written_model.model->parameters().find("encoder.layers.1.ffn.up.weight")->master()[3][2].fill_(-70000);
  }
  conversion::write_folder(written_model, folder.file("model"));
  const conversion::Folder huggingface_folder(folder.file("model"), {});
  const auto write = [&](io::DType type) {
    huggingface_folder.write_checkpoint(*open_sink(folder.file("m")), {}, type);
  };
  CHECK(status_of([&] { write(io::DType::f16); }) == 3);
  CHECK_THROWS_WITH(write(io::DType::f16),
                    Catch::Contains("encoder.layers.1.ffn.up.weight") && Catch::Contains("-70000"));
  CHECK_FALSE(std::filesystem::exists(folder.file("m")));
  CHECK(status_of([&] { write(io::DType::bf16); }) == 0);
}

TEST_CASE("an unsupported architecture is refused in both directions, and no folder remains", "[conversion]") {
  const Folder folder;
  write_file_atomically(folder.file("config.json"), R"({"model_type": "gpt3"})");
  CHECK(status_of([&] { conversion::read_folder(folder.path, {}); }) == 3);
  CHECK_THROWS_WITH(conversion::read_folder(folder.path, {}),
                    Catch::Contains("one of: bert, camembert") && Catch::Contains("did you mean 'gpt2'?"));
  const std::string new_folder = folder.file("model");
  CHECK(status_of([&] { conversion::write_folder(make_bert("", "mixer = 'mixhead-a'\n"), new_folder); }) == 3);
  CHECK_FALSE(std::filesystem::exists(new_folder));
  CHECK(status_of([&] { conversion::write_folder(make_bert(""), folder.path); }) == 2);  // the folder exists
}
