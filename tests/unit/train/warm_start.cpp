// A new run that begins with a checkpoint's weights.
#include <catch2/catch.hpp>
#include <filesystem>

#include "base/file.h"
#include "fixtures/runs.h"
#include "fixtures/status.h"

using namespace runs;

namespace {

std::string length(int updates) { return str("[train]\nlength = '", updates, "u'\n"); }

bool same(model::LoadedModel& a, model::LoadedModel& b) {
  for (const auto& p : a.model->parameters().all())
    if (!at::equal(p.master(), b.model->parameters().find(p.name())->master())) return false;
  return true;
}

}  // namespace

TEST_CASE("a run from a checkpoint begins with its weights and nothing else of it", "[from]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  auto first = run_of(folder, "first", length(3));
  const io::Checkpoint checkpoint(folder.file("first") + "/last.safetensors");
  {
    Trainer trainer(config_of(folder, length(4) + "seed = 7\n"), folder.file("from"), false, at::kCPU, {&checkpoint});
    // Killed now, the run has a state of its own.
    auto begun = model::load_model(folder.file("from") + "/last.safetensors", at::kCPU);
    CHECK(same(begun, first));
    CHECK(io::Checkpoint(folder.file("from") + "/last.safetensors").entry(io::kTrainingKey).find("\"update\":0") !=
          std::string::npos);
    CHECK(io::Checkpoint(folder.file("from") + "/last.safetensors").entry(io::kConfigKey) ==
          read_text_file(folder.file("from") + "/config.toml"));
  }
  auto resumed = run_of(folder, "from", length(4) + "seed = 7\n", true);
  {
    Trainer trainer(config_of(folder, length(4) + "seed = 7\n"), folder.file("whole"), false, at::kCPU, {&checkpoint});
    at::set_num_threads(1);
    CHECK(trainer.run() == 0);
  }
  auto whole = model::load_model(folder.file("whole") + "/last.safetensors", at::kCPU);
  CHECK(same(resumed, whole));
  CHECK_FALSE(same(whole, first));
}

TEST_CASE("a run from a checkpoint of another vocabulary or of other parameters is refused", "[from]") {
  Folder folder;
  write_text(folder.file("t.mhs"), lines(400));
  run_of(folder, "first", length(1));
  const io::Checkpoint checkpoint(folder.file("first") + "/last.safetensors");
  CHECK(status_of([&] {
          Trainer(config_of(folder, length(4) + "[model]\nffn = 24\n"), folder.file("other"), false, at::kCPU,
                  {&checkpoint});
        }) == 3);
  CHECK_FALSE(std::filesystem::exists(folder.file("other")));
}
