// Checkpoint averaging, and refusal of checkpoints that differ in model configuration, vocabulary or parameters.
#include "analysis/average.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "base/error.h"
#include "fixtures/contains.h"
#include "fixtures/modern_options.h"
#include "fixtures/runs.h"
#include "fixtures/segments.h"
#include "fixtures/words.h"

using namespace runs;

namespace {

constexpr const char* kGated = "[attention]\ncombiner = 'mae'\n[attention.mae]\nhidden = 8\n";

// Returns the message of the error of status Exit::input that analysis::average_checkpoints() throws for these
// checkpoints; "" without an error.
std::string average_error(const std::vector<const io::Checkpoint*>& files) {
  try {
    analysis::average_checkpoints(files);
  } catch (const Error& error) {
    CHECK(error.exit() == Exit::input);
    return error.what();
  }
  return "";
}

// Writes a copy of the checkpoint `from` to the path `to`. `new_name` maps the name of a tensor to its name in the
// copy; "" leaves the tensor out.
void copy_with_new_names(const io::Checkpoint& from, const std::string& to,
                         const std::function<std::string(const std::string&)>& new_name) {
  std::vector<io::TensorView> views;
  for (io::TensorInfo info : from.tensors()) {
    const void* data = from.data(info.name);
    info.name = new_name(info.name);
    if (!info.name.empty()) views.push_back({info, data});
  }
  auto sink = open_sink(to);
  io::write_checkpoint(*sink, views, from.metadata());
  sink->close();
}

}  // namespace

TEST_CASE("averaged parameters and batch norm statistics equal plain loops in fp64, rounded to fp32", "[average]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  std::vector<std::unique_ptr<io::Checkpoint>> files;
  std::vector<const io::Checkpoint*> checkpoints;
  for (const auto& [name, seed] : {std::pair{"a", 1}, {"b", 2}, {"c", 3}}) {
    train_in_folder(folder, name, kGated + train_length(2) + str("seed = ", seed, "\n"));
    // last.safetensors also contains the moments of the optimizer, which averaging must ignore.
    files.push_back(std::make_unique<io::Checkpoint>(folder.file(name) + "/last.safetensors"));
    checkpoints.push_back(files.back().get());
  }
  const model::LoadedModel mean = analysis::average_checkpoints(checkpoints);
  int num_statistics = 0;
  for (const auto& p : mean.model->parameters().all()) {
    INFO(p.name());
    const auto* actual = p.master().const_data_ptr<float>();
    int num_wrong = 0, num_changed = 0;
    for (int64_t i = 0; i < p.master().numel(); ++i) {
      double sum = 0;
      float first = 0;
      for (const io::Checkpoint* file : checkpoints) {
        float value;
        std::memcpy(&value, static_cast<const char*>(file->data(p.name())) + i * 4, 4);
        sum += static_cast<double>(value);
        if (file == checkpoints[0]) first = value;
      }
      num_wrong += actual[i] == static_cast<float>(sum / 3) ? 0 : 1;
      num_changed += actual[i] == first ? 0 : 1;
    }
    CHECK(num_wrong == 0);
    CHECK(num_changed > 0);
    num_statistics += p.traits().trainable ? 0 : 1;
  }
  CHECK(num_statistics == 4);  // running mean and variance of the batch norm in the gates of 2 layers
  CHECK(mean.tokenizers.target->size() == 6);
  // The average of a single checkpoint has the parameters of that checkpoint.
  const model::LoadedModel average_of_one = analysis::average_checkpoints({checkpoints[1]}),
                           second = model::load_model(*checkpoints[1], at::kCPU);
  for (const auto& p : average_of_one.model->parameters().all())
    CHECK(at::equal(p.master(), second.model->parameters().find(p.name())->master()));
}

TEST_CASE("with any option of modern decoders, averaged parameters are the means of the parameters", "[average]") {
  const auto tokenizer = words::word_tokenizer({"a", "b", "c", "d"});
  const Folder folder;
  for (const modern_options::Configuration& c : modern_options::all()) {
    INFO(c.name);
    const segment_fixtures::Model m("decoder", "", c.toml);
    const auto write = [&](const char* name) {
      io::Metadata metadata = text::metadata_of({text::parse_tokenizer(tokenizer->serialize(), "test"), nullptr});
      metadata[io::kFormatKey] = "1";
      metadata[io::kConfigKey] = m.config.toml();
      auto sink = open_sink(folder.file(name));
      model::write_parameters(*sink, m.model->parameters(), std::move(metadata));
    };
    std::map<std::string, at::Tensor> sums;
    for (const char* name : {"a", "b"}) {
      write(name);
      const c10::NoGradGuard no_gradient;
      for (auto& p : m.model->parameters().all()) {
        at::Tensor& sum = sums.try_emplace(p.name(), at::zeros(p.master().sizes(), at::kDouble)).first->second;
        sum.add_(p.master());
        p.master().mul_(-0.75);
      }
    }
    const io::Checkpoint a(folder.file("a")), b(folder.file("b"));
    const model::LoadedModel mean = analysis::average_checkpoints({&a, &b});
    CHECK(mean.config.toml() == m.config.toml());
    for (const auto& p : mean.model->parameters().all()) {
      INFO(p.name());
      CHECK(at::equal(p.master(), sums.at(p.name()).div(2).to(at::kFloat)));
    }
  }
}

TEST_CASE("averaging refuses checkpoints with different model configurations, vocabularies or parameters",
          "[average]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  train_in_folder(folder, "a", train_length(1));
  train_in_folder(folder, "rate", train_length(1) + "lr = 0.5\n");
  train_in_folder(folder, "heads", train_length(1) + "[attention]\nheads = 2\n");
  train_in_folder(folder, "layer", train_length(1) + "[attention.decoder.self.1]\nmixer = 'mixhead-a'\n");
  train_in_folder(folder, "dropout", train_length(1) + "[model]\ndropout_ffn = 0.2\n");
  const io::Checkpoint a(folder.file("a") + "/last.safetensors"), rate(folder.file("rate") + "/last.safetensors"),
      heads(folder.file("heads") + "/last.safetensors"), layer(folder.file("layer") + "/last.safetensors"),
      dropout(folder.file("dropout") + "/last.safetensors");
  CHECK(average_error({&a, &rate}).empty());
  for (const auto& [file, difference] :
       {std::pair{&heads, "attention.heads: 4 -> 2"}, {&layer, "mixhead-a"}, {&dropout, "model.dropout_ffn"}}) {
    const std::string text = average_error({&a, &rate, file});
    CHECK(contains(text, difference));
    CHECK((contains(text, a.name()) && contains(text, file->name())));
  }
  auto tokenizer = words::word_tokenizer({"a", "b", "c", "e"});
  io::Metadata other_metadata = a.metadata();
  other_metadata[io::kTokenizerKey] = io::to_base64(tokenizer->serialize());
  other_metadata[io::kFingerprintKey] = tokenizer->fingerprint();
  other_metadata.erase(io::kChecksumsKey);
  std::vector<io::TensorView> views;
  for (const io::TensorInfo& info : a.tensors()) views.push_back({info, a.data(info.name)});
  auto sink = open_sink(folder.file("words"));
  io::write_checkpoint(*sink, views, other_metadata);
  sink->close();
  const io::Checkpoint other_vocabulary(folder.file("words"));
  CHECK((contains(average_error({&a, &other_vocabulary}), "the vocabulary of " + a.name()) &&
         contains(average_error({&a, &other_vocabulary}), "words")));

  copy_with_new_names(a, folder.file("lacks"),
                      [](const std::string& name) { return name == "decoder.norm.bias" ? "" : name; });
  copy_with_new_names(a, folder.file("more"),
                      [](const std::string& name) { return name == "decoder.norm.bias" ? "decoder.norm.bais" : name; });
  const io::Checkpoint without_bias(folder.file("lacks")), misspelt(folder.file("more"));
  CHECK((contains(average_error({&a, &without_bias}), "decoder.norm.bias") &&
         contains(average_error({&a, &without_bias}), "lacks")));
  CHECK(contains(average_error({&a, &misspelt}), "decoder.norm.bais"));
}
