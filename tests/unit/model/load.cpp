// Tests of loading a model: fp32, fp16 and bf16 checkpoints, with masters and, for evaluation in bf16, without masters.
#include "model/load.h"

#include <c10/core/GradMode.h>
#include <c10/util/accumulate.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <stdexcept>

#include "analysis/swap_checkpoint.h"
#include "attention/dispatch.h"
#include "base/error.h"
#include "base/file.h"
#include "fixtures/every_model.h"
#include "fixtures/folder.h"
#include "fixtures/peak_memory.h"
#include "fixtures/skip.h"
#include "fixtures/status.h"
#include "fixtures/words.h"
#include "model/partial_load.h"
#include "nn/product.h"
#include "text/tokenizer.h"

using namespace mh;
using namespace mh::model;

namespace {

constexpr io::DType kTypes[] = {io::DType::f32, io::DType::f16, io::DType::bf16};

io::Metadata metadata_of(const ModelConfig& config, const VocabularySizes& sizes) {
  io::Metadata metadata{{io::kFormatKey, "1"}, {io::kConfigKey, config.toml()}};
  metadata.merge(text::metadata_of({words::numbered_word_tokenizer(sizes.target),
                                    sizes.source > 0 ? words::numbered_word_tokenizer(sizes.source) : nullptr}));
  return metadata;
}

// Writes a model of this configuration, whose parameters are random, as a checkpoint with tensors of this type.
void write_model(const std::string& path, const std::string& toml, io::DType type) {
  const auto model = translators::build_model(toml, every_model::kVocabularySizes);
  write_parameters(*open_sink(path), model->parameters(),
                   metadata_of(models::parse_model_config(toml), every_model::kVocabularySizes), type);
}

LoadedModel load_with_bf16_copies(const std::string& path) {
  LoadedModel loaded_model = load_model(path, at::kCPU);
  loaded_model.model->parameters().use_bf16_copies(true);
  return loaded_model;
}
LoadedModel load_without_masters(const std::string& path) { return load_model(path, at::kCPU, {}, Masters::absent); }

// Returns the hidden states and the logits of a model for the input of every_model.h.
std::vector<at::Tensor> outputs_of(LanguageModel& model, bool is_encoder_only) {
  const c10::NoGradGuard no_gradient;
  const at::Tensor hidden = model.hidden(every_model::input(model, is_encoder_only), {});
  return {hidden, model.logits(hidden)};
}

void check_equal(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) CHECK(at::equal(actual[i], expected[i]));
}

// Configurations with every combination of tied and separate tables, of one table and of bands.
std::vector<std::string> table_configurations() {
  std::vector<std::string> tomls;
  for (const char* bands :
       {"tied = false\n", "tied = false\noutput_bias = true\n", "vocabulary_rows = 37\nscore_padded_rows = true\n",
        "input_cutoffs = [10, 20]\noutput_cutoffs = [10, 20]\n",
        "input_cutoffs = [10, 20]\noutput_cutoffs = [10, 20]\ntied_projections = true\n",
        "input_cutoffs = [10, 20]\noutput_cutoffs = [10, 20]\ntied = false\nfirst_band_projection = true\n",
        "input_cutoffs = [10, 20]\noutput_cutoffs = [10, 20]\ncutoff_factor = 1\n",
        "output_cutoffs = [10, 20]\ncutoff_factor = 1\ntied = false\n"})
    tomls.push_back(str("[model]\nlayers = 1\nwidth = 16\nffn_dim = 24\n", bands, "[attention]\nheads = 4\n"));
  return tomls;
}

// A decoder of about 42 million parameters, 12 layers of width 512 and a tied table of 8000 rows.
constexpr const char* kLargeModel =
    "[model]\nlayers = 12\nwidth = 512\nffn_dim = 2048\npositions = 'none'\n[attention]\nheads = 8\n";
constexpr int64_t kLargeVocabulary = 8000;

// Writes a checkpoint of kLargeModel with numbers from a formula, one tensor at a time.
void write_large_model(const std::string& path, io::DType type) {
  const ModelConfig config = models::parse_model_config(kLargeModel);
  const auto model = build_language_model(config, {kLargeVocabulary}, at::kMeta);
  CheckpointTensors tensors;
  at::Tensor buffer;
  for (const nn::Parameter& p : model->parameters().all()) {
    const bool is_norm = p.name().find("norm.weight") != std::string::npos;
    const auto produce = [&buffer, &p, type, is_norm] {
      buffer = at::arange(c10::multiply_integers(p.sizes()), at::kFloat).remainder_(251).sub_(125).div_(4000);
      if (is_norm) buffer.add_(1);
      buffer = buffer.to(parameter_scalar_type(type).value());
      return buffer.const_data_ptr();
    };
    tensors.add(p.name(), p.sizes().vec(), produce, type);
  }
  auto sink = open_sink(path);
  io::write_checkpoint(*sink, tensors.views(), metadata_of(config, {kLargeVocabulary}));
  sink->close();
}

}  // namespace

TEST_CASE("a model without masters computes the bits of a model with bf16 copies, for every stored type", "[load]") {
  const Folder folder;
  const std::string path = folder.file("m.safetensors");
  std::vector<std::string> tomls = every_model::configurations();
  for (std::string& toml : table_configurations()) tomls.push_back(std::move(toml));
  for (const std::string& toml : tomls)
    for (const io::DType type : kTypes) {
      INFO(toml << io::name_of(type));
      const bool is_encoder_only = toml.find("'bert'") != toml.npos;
      write_model(path, toml, type);
      const LoadedModel expected = load_with_bf16_copies(path), actual = load_without_masters(path);
      CHECK(actual.model->parameters().device().is_cpu());
      for (const attention::Path attention_path : {attention::Path::automatic, attention::Path::composed}) {
        for (const LoadedModel* m : {&expected, &actual}) m->model->set_path(attention_path);
        check_equal(outputs_of(*actual.model, is_encoder_only), outputs_of(*expected.model, is_encoder_only));
      }
      for (const nn::Parameter& p : actual.model->parameters().all())
        CHECK(p.is_evaluation_only() == (p.traits().is_product_operand || p.traits().is_lookup_table));
    }
}

TEST_CASE("decoding with mapped weights computes the bits of decoding with bf16 copies, also after pages are released",
          "[load]") {
  const Folder folder;
  const std::string path = folder.file("m.safetensors"), toml = table_configurations().front();
  write_model(path, toml, io::DType::bf16);
  const LoadedModel expected = load_with_bf16_copies(path), actual = load_without_masters(path);
  const auto expected_outputs = [&] {
    const nn::DecodingProducts products;
    return outputs_of(*expected.model, false);
  }();
  const nn::DecodingProducts products;
  for (int pass = 0; pass < 2; ++pass) check_equal(outputs_of(*actual.model, false), expected_outputs);
}

TEST_CASE("bf16 tensors of a mapped checkpoint are used in place, unless they are not aligned", "[load]") {
  const Folder folder;
  const std::string path = folder.file("m.safetensors"), toml = table_configurations().front();
  write_model(path, toml, io::DType::bf16);
  const std::string bytes = read_text_file(path);
  const LoadedModel aligned = load_without_masters(path);
  int num_in_place = 0;
  for (const nn::Parameter& p : aligned.model->parameters().all()) {
    INFO(p.name());
    const char* name = mapped_file_name_at(p.value().const_data_ptr());
    CHECK((name != nullptr) == p.is_evaluation_only());
    if (name == nullptr) continue;
    CHECK(name == path);
    ++num_in_place;
  }
  CHECK(num_in_place > 5);
  // One more space at the end of the header moves all data to an odd address.
  const auto header_length = static_cast<size_t>(static_cast<uint8_t>(bytes[0])) +
                             256 * static_cast<size_t>(static_cast<uint8_t>(bytes[1])) +
                             65536 * static_cast<size_t>(static_cast<uint8_t>(bytes[2]));
  std::string shifted_bytes = bytes;
  for (int i = 0; i < 3; ++i) shifted_bytes[static_cast<size_t>(i)] = static_cast<char>((header_length + 1) >> (8 * i));
  shifted_bytes.insert(8 + header_length, " ");
  const std::string shifted_path = folder.file("shifted.safetensors");
  write_file_atomically(shifted_path, shifted_bytes);
  const LoadedModel shifted = load_without_masters(shifted_path),
                    shifted_with_masters = load_with_bf16_copies(shifted_path);
  for (const nn::Parameter& p : shifted.model->parameters().all())
    CHECK(mapped_file_name_at(p.value().const_data_ptr()) == nullptr);
  check_equal(outputs_of(*shifted.model, false), outputs_of(*aligned.model, false));
  check_equal(outputs_of(*shifted_with_masters.model, false), outputs_of(*aligned.model, false));
}

TEST_CASE("loading a model without masters takes two bytes a parameter", "[load]") {
  if (!reset_peak_memory()) SKIP("peak memory cannot be reset on this system");
  const Folder folder;
  const std::string path = folder.file("large.safetensors");
  const c10::NoGradGuard no_gradient;
  for (const io::DType type : kTypes) {
    INFO(io::name_of(type));
    write_large_model(path, type);
    const at::Tensor tokens = models::random_tokens(1, 16, kLargeVocabulary, 1);
    reset_peak_memory();
    const int64_t initial_kb = peak_memory_kb();
    const LoadedModel loaded_model = load_without_masters(path);
    const int64_t num_parameters = loaded_model.model->parameters().num_trainable_elements();
    CHECK(num_parameters > 40'000'000);
    const int64_t limit_kb = 2 * num_parameters / 1024 + 64 * 1024;  // with masters: 10 bytes a parameter
    CHECK(peak_memory_kb() - initial_kb < limit_kb);
    loaded_model.model->logits(loaded_model.model->hidden(Input{tokens}, {}));
    CHECK(peak_memory_kb() - initial_kb < limit_kb);
    if (type != io::DType::bf16) continue;
    // The packed weights of decoding replace the mapped pages.
    const nn::DecodingProducts products;
    loaded_model.model->logits(loaded_model.model->hidden(Input{tokens}, {}));
    CHECK(peak_memory_kb() - initial_kb < limit_kb);
  }
}

TEST_CASE("loading a model with masters holds one tensor of the file at a time", "[load]") {
  if (!reset_peak_memory()) SKIP("peak memory cannot be reset on this system");
  const Folder folder;
  const std::string path = folder.file("large.safetensors");
  write_large_model(path, io::DType::f32);
  reset_peak_memory();
  const int64_t initial_kb = peak_memory_kb();
  const LoadedModel loaded_model = load_model(path, at::kCPU);
  CHECK(peak_memory_kb() - initial_kb <
        4 * loaded_model.model->parameters().num_trainable_elements() / 1024 + 64 * 1024);
}

TEST_CASE("a model without masters refuses training, bf16 copies and writing", "[load]") {
  const Folder folder;
  const std::string path = folder.file("m.safetensors");
  write_model(path, table_configurations().front(), io::DType::bf16);
  const LoadedModel loaded_model = load_without_masters(path);
  nn::ParameterList& parameters = loaded_model.model->parameters();
  CHECK_THROWS_AS(parameters.use_bf16_copies(true), std::logic_error);
  CHECK_THROWS_AS(parameters.refresh_bf16_copies(), std::logic_error);
  CHECK_THROWS_AS(parameters.initialise(1), std::logic_error);
  CHECK_THROWS_AS(load_parameters(io::Checkpoint(path), parameters), std::logic_error);
  for (const io::DType type : kTypes)
    CHECK_THROWS_AS(write_parameters(*open_sink(folder.file("x")), parameters, {}, type), std::logic_error);
  CHECK_FALSE(std::filesystem::exists(folder.file("x")));
}

TEST_CASE("masters have the values of fp16 and bf16 checkpoints, and written types read back to the same bits",
          "[load]") {
  const Folder folder;
  const std::string toml = table_configurations().front();
  const auto model = translators::build_model(toml, every_model::kVocabularySizes);
  for (const io::DType type : kTypes) {
    INFO(io::name_of(type));
    const std::string path = folder.file("m.safetensors"), again = folder.file("again.safetensors");
    write_model(path, toml, type);
    const LoadedModel loaded_model = load_model(path, at::kCPU);
    for (const nn::Parameter& p : loaded_model.model->parameters().all())
      CHECK(at::equal(p.master(),
                      model->parameters().find(p.name())->master().to(*parameter_scalar_type(type)).to(at::kFloat)));
    write_parameters(*open_sink(again), loaded_model.model->parameters(), io::Checkpoint(path).metadata(), type);
    CHECK(read_text_file(again) == read_text_file(path));
  }
}

TEST_CASE("finite numbers past the range of fp16 are not written as fp16", "[load]") {
  const Folder folder;
  const auto model = translators::build_model(table_configurations().front(), every_model::kVocabularySizes);
  at::Tensor& weight = model->parameters().all().front().master();
  const c10::NoGradGuard no_gradient;
  const auto status = [&](io::DType type) {
    return status_of([&] { write_parameters(*open_sink(folder.file("x")), model->parameters(), {}, type); });
  };
  weight[0][0].fill_(65504);
  CHECK(status(io::DType::f16) == 0);
  weight[0][0].fill_(70000);
  CHECK(status(io::DType::f16) == 3);
  CHECK(status(io::DType::bf16) == 0);
}

TEST_CASE("a parameter of integers, of another shape, missing or unknown is refused with and without masters",
          "[load]") {
  const Folder folder;
  const std::string path = folder.file("m.safetensors");
  write_model(path, table_configurations().front(), io::DType::f32);
  const io::Checkpoint checkpoint(path);
  const auto check_refused = [&](const std::string& message,
                                 const std::function<void(std::vector<io::TensorView>&)>& change) {
    std::vector<io::TensorView> views;
    for (const io::TensorInfo& info : checkpoint.tensors()) views.push_back({info, checkpoint.data(info.name)});
    change(views);
    const std::string changed_path = folder.file("changed.safetensors");
    const auto sink = open_sink(changed_path);
    io::write_checkpoint(*sink, views, checkpoint.metadata());
    sink->close();
    for (const Masters masters : {Masters::present, Masters::absent}) {
      const auto load = [&] { load_model(changed_path, at::kCPU, {}, masters); };
      CHECK(status_of(load) == 3);
      CHECK_THROWS_WITH(load(), Catch::Contains(message));
    }
  };
  check_refused("expected F32 (30, 16); found I32 (30, 16)", [](auto& views) {
    REQUIRE(views[0].info.shape == std::vector<int64_t>{30, 16});
    views[0].info.type = io::DType::i32;
  });
  check_refused("expected F32 (30, 16); found F32 (16, 30)", [](auto& views) { views[0].info.shape = {16, 30}; });
  check_refused("expected F16 (30, 16); found F16 (60, 16)", [](auto& views) {
    views[0].info.type = io::DType::f16;
    views[0].info.shape = {60, 16};
  });
  check_refused("no tensor of this name", [](auto& views) { views.erase(views.begin()); });
  check_refused("the unknown tensor other", [](auto& views) {
    views.push_back(views.back());
    views.back().info.name = "other";
  });
}

TEST_CASE("a mapped checkpoint that another program changes or shortens is refused before results are reported",
          "[load]") {
  const Folder folder;
  const std::string path = folder.file("m.safetensors");
  write_model(path, table_configurations().front(), io::DType::bf16);
  {
    const LoadedModel loaded_model = load_without_masters(path);
    loaded_model.require_unchanged_file();
    const LoadedModel with_masters = load_model(path, at::kCPU);
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
    CHECK(status_of([&] { loaded_model.require_unchanged_file(); }) == 3);
    CHECK_THROWS_WITH(loaded_model.require_unchanged_file(), Catch::Contains("another program has changed"));
    CHECK_NOTHROW(with_masters.require_unchanged_file());  // holds copies of all parameters
  }
  {
    const LoadedModel loaded_model = load_without_masters(path);
    const std::string bytes = read_text_file(path);
    write_file_atomically(path, "another file");  // the mapped file keeps its data without a name
    CHECK_NOTHROW(loaded_model.require_unchanged_file());
    write_file_atomically(path, bytes);
  }
  const LoadedModel loaded_model = load_without_masters(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 2);
  CHECK_THROWS_WITH(loaded_model.require_unchanged_file(), Catch::Contains("has shortened"));
}

TEST_CASE("a checkpoint that another program shortens after its checksums were verified is refused by every loader",
          "[load]") {
  const Folder folder;
  const std::string path = folder.file("m.safetensors"), toml = table_configurations().front();
  write_model(path, toml, io::DType::bf16);
  const io::Checkpoint checkpoint(path);
  checkpoint.verify();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 2);  // within the last page, so no SIGBUS
  const auto model = translators::build_model(toml, every_model::kVocabularySizes);
  nn::ParameterList& parameters = model->parameters();
  for (const Masters masters : {Masters::present, Masters::absent}) {
    const auto load = [&] { load_model(checkpoint, at::kCPU, {}, masters); };
    CHECK(status_of(load) == 3);
    CHECK_THROWS_WITH(load(), Catch::Contains("another program has shortened"));
  }
  CHECK(status_of([&] { load_parameters(checkpoint, parameters); }) == 3);
  CHECK(status_of([&] { load_matching_parameters(checkpoint, parameters); }) == 3);
  CHECK(status_of([&] {
          analysis::rewrite_checkpoint(*open_sink(folder.file("swapped")), checkpoint, parameters, {});
        }) == 3);
  CHECK_FALSE(std::filesystem::exists(folder.file("swapped")));
  // Optimiser moments and memories are fp32 tensors of a training state.
  write_model(path, toml, io::DType::f32);
  const io::Checkpoint state(path);
  state.verify();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 2);
  at::Tensor moment = at::empty(parameters.all().front().sizes(), at::kFloat);
  CHECK(status_of([&] { load_tensor(state, parameters.all().front().name(), moment); }) == 3);
}
