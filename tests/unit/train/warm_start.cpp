// Warm start: a new run that starts from the weights of a checkpoint.
#include <catch2/catch.hpp>
#include <filesystem>

#include "base/file.h"
#include "fixtures/runs.h"
#include "fixtures/status.h"
#include "io/origin.h"
#include "train/derived_metadata.h"
#include "train/run_folder.h"

using namespace runs;

namespace {

// Returns whether all parameters are bit-identical.
bool have_same_parameters(model::LoadedModel& a, model::LoadedModel& b) {
  for (const auto& p : a.model->parameters().all())
    if (!at::equal(p.master(), b.model->parameters().find(p.name())->master())) return false;
  return true;
}

}  // namespace

TEST_CASE("a warm start loads only the weights of the checkpoint, and resume of that run gives bit-identical weights",
          "[warm-start]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  auto first = train_in_folder(folder, "first", train_length(3));
  const io::Checkpoint checkpoint(folder.file("first") + "/last.safetensors");
  {
    Trainer trainer(config_of(folder, train_length(4) + "seed = 7\n"), folder.file("from"), false, at::kCPU,
                    {&checkpoint});
    // The new run writes its training state before the first update, so that it can be resumed even if it is killed
    // before that update ends.
    auto initial = model::load_model(folder.file("from") + "/last.safetensors", at::kCPU);
    CHECK(have_same_parameters(initial, first));
    CHECK(io::Checkpoint(folder.file("from") + "/last.safetensors")
              .metadata_entry(io::kTrainingKey)
              .find("\"update\":0") != std::string::npos);
    CHECK(io::Checkpoint(folder.file("from") + "/last.safetensors").metadata_entry(io::kConfigKey) ==
          read_text_file(folder.file("from") + "/config.toml"));
  }
  auto resumed = train_in_folder(folder, "from", train_length(4) + "seed = 7\n", true);
  {
    Trainer trainer(config_of(folder, train_length(4) + "seed = 7\n"), folder.file("whole"), false, at::kCPU,
                    {&checkpoint});
    at::set_num_threads(1);
    CHECK(trainer.run() == 0);
  }
  auto uninterrupted = model::load_model(folder.file("whole") + "/last.safetensors", at::kCPU);
  CHECK(have_same_parameters(resumed, uninterrupted));
  CHECK_FALSE(have_same_parameters(uninterrupted, first));
}

TEST_CASE("a run that starts from a converted model, and its resume, keep the origin and the parts of its folder",
          "[warm-start]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  auto first = train_in_folder(folder, "first", train_length(1));
  io::Metadata metadata = derived_metadata(io::Checkpoint(folder.file("first") + "/last.safetensors"));
  CHECK(metadata.count(io::kOriginKey) == 0);
  const io::Metadata expected{{io::kOriginKey, R"([{"huggingface":"folder","model_type":"mistral"}])"},
                              {io::kHuggingFaceKey, R"({"chat_template.jinja":"x"})"}};
  metadata.insert(expected.begin(), expected.end());
  model::write_parameters(*open_sink(folder.file("converted")), first.model->parameters(), metadata);
  const io::Checkpoint checkpoint(folder.file("converted"));
  CHECK(inherited_metadata(checkpoint) == expected);
  { Trainer(config_of(folder, train_length(2)), folder.file("from"), false, at::kCPU, {&checkpoint}); }
  const std::string state_path = folder.file("from") + "/last.safetensors";
  CHECK(inherited_metadata(io::Checkpoint(state_path)) == expected);
  train_in_folder(folder, "from", train_length(2), true);
  CHECK(inherited_metadata(io::Checkpoint(state_path)) == expected);
  CHECK(io::last_origin_text(io::Checkpoint(state_path).metadata(), io::kModelTypeKey) == "mistral");
}

TEST_CASE("a warm start from a checkpoint with parameters of other shapes is refused", "[warm-start]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  train_in_folder(folder, "first", train_length(1));
  const io::Checkpoint checkpoint(folder.file("first") + "/last.safetensors");
  CHECK(status_of([&] {
          Trainer(config_of(folder, train_length(4) + "[model]\nffn_dim = 24\n"), folder.file("other"), false, at::kCPU,
                  {&checkpoint});
        }) == 3);
  CHECK_FALSE(std::filesystem::exists(folder.file("other")));
}

TEST_CASE("a run that was killed between its first state and config.toml starts again, with or without a warm start",
          "[warm-start]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  auto first = train_in_folder(folder, "first", train_length(1));
  const io::Checkpoint checkpoint(folder.file("first") + "/last.safetensors");
  const std::string run = folder.file("run"), state = run + "/last.safetensors";
  const auto make_killed_run = [&] {
    std::filesystem::remove_all(run);
    { Trainer(config_of(folder, train_length(2)), run, false, at::kCPU, {&checkpoint}); }
    std::filesystem::remove(run + "/config.toml");
  };
  make_killed_run();
  CHECK(status_of([&] { RunFolder(run, true); }) == 3);
  CHECK_THROWS_WITH(RunFolder(run, true), Catch::Contains("without config.toml; start a run"));
  {
    Trainer trainer(config_of(folder, train_length(2)), run, false, at::kCPU, {&checkpoint});
    at::set_num_threads(1);
    CHECK(trainer.run() == 0);
  }
  auto restarted = model::load_model(state, at::kCPU);
  {
    Trainer trainer(config_of(folder, train_length(2)), folder.file("whole"), false, at::kCPU, {&checkpoint});
    at::set_num_threads(1);
    CHECK(trainer.run() == 0);
  }
  auto uninterrupted = model::load_model(folder.file("whole") + "/last.safetensors", at::kCPU);
  CHECK(have_same_parameters(restarted, uninterrupted));

  // A run from random weights removes the state of the killed run before it writes config.toml, so that its resume does
  // not start from that state.
  make_killed_run();
  { Trainer(config_of(folder, train_length(2)), run, false); }
  CHECK(std::filesystem::exists(run + "/config.toml"));
  CHECK_FALSE(std::filesystem::exists(state));
}

TEST_CASE("a new run replaces no state of a completed update, no other weights and no damaged state", "[warm-start]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  train_in_folder(folder, "first", train_length(1));
  const io::Checkpoint checkpoint(folder.file("first") + "/last.safetensors");
  const std::string run = folder.file("run"), state = run + "/last.safetensors";
  const auto check_refused = [&](const std::string& file) {
    const std::string bytes = read_text_file(file);
    CHECK(status_of([&] { RunFolder(run, false); }) == 2);
    CHECK_THROWS_WITH(RunFolder(run, false), Catch::Contains("restore config.toml"));
    CHECK(status_of([&] { RunFolder(run, true); }) == 3);
    CHECK_THROWS_WITH(RunFolder(run, true), Catch::Contains("restore config.toml"));
    CHECK(read_text_file(file) == bytes);
    std::filesystem::remove_all(run);
  };
  train_in_folder(folder, "run", train_length(1));
  std::filesystem::remove(run + "/config.toml");
  check_refused(state);
  { Trainer(config_of(folder, train_length(2)), run, false, at::kCPU, {&checkpoint}); }
  std::filesystem::remove(run + "/config.toml");
  std::filesystem::copy(state, run + "/best.safetensors");
  check_refused(state);
  { Trainer(config_of(folder, train_length(2)), run, false, at::kCPU, {&checkpoint}); }
  std::filesystem::remove(run + "/config.toml");
  std::filesystem::resize_file(state, std::filesystem::file_size(state) / 2);
  check_refused(state);
}
