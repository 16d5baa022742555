// The procedure skip-retain: its two phases, and resume in each of them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "base/json_types.h"
#include "fixtures/runs.h"
#include "fixtures/streams.h"
#include "model/load.h"

using namespace mh;
using namespace mh::train;
using runs::read_log;
using runs::write_text;
using streams::have_same_weights;
using streams::make_tokens;
using streams::train_in_folder;

TEST_CASE("Skip-Retain: phase 2 starts from the best weights, and resuming in either phase is bit-identical",
          "[streams]") {
  Folder folder;
  write_text(folder.file("t.mhs"), make_tokens(400));
  write_text(folder.file("v.mhs"), make_tokens(60));
  const std::string base_toml =
      "[data]\nvalid = '" + folder.file("v.mhs") + "'\n[train]\nvalidation.every = '2u'\nlr = 0.05\n" +
      "schedule.length = '16u'\n[train.procedures.skip-retain]\nschedule = 'all'\nrate = 0.4\n";
  auto length = [&](int num_updates) {
    return str(base_toml, "until = '8u'\n[train]\nlength = '", num_updates, "u'\n");
  };
  auto uninterrupted_model = train_in_folder(folder, "whole", length(16));
  for (int stop : {6, 8, 10}) {  // phase 1 ends at update 8
    train_in_folder(folder, str(stop), length(stop));
    CHECK(have_same_weights(train_in_folder(folder, str(stop), length(16), true), uninterrupted_model));
  }
  // The training state at the end of phase 1 has the best weights, a zero optimiser state and no memory.
  auto boundary_model = train_in_folder(folder, "boundary", length(8));
  CHECK(have_same_weights(boundary_model, model::load_model(folder.file("boundary") + "/best.safetensors", at::kCPU)));
  io::Checkpoint state(folder.file("boundary") + "/last.safetensors");
  const auto training_state = nlohmann::json::parse(state.metadata_entry(io::kTrainingKey));
  CHECK(training_state["memory"] == false);
  for (const auto& [name, steps] : training_state["steps"].items()) CHECK(steps == 0);
  for (const io::TensorInfo& info : state.tensors()) {
    CHECK(info.name.rfind("memory.", 0) != 0);
    if (info.name.rfind("optimizer.", 0) != 0) continue;
    const auto* values = static_cast<const float*>(state.data(info.name));
    for (uint64_t i = 0; i < info.num_bytes() / 4; ++i) REQUIRE(values[i] == 0);
  }
  // A run without phase 2 gives different weights; a skip rate of 0 gives the weights of training without Skip-Retain.
  CHECK_FALSE(have_same_weights(train_in_folder(folder, "endless", base_toml + "[train]\nlength = '16u'\n"),
                                uninterrupted_model));
  const std::string no_procedure = "[train]\nlength = '9u'\n";
  CHECK(have_same_weights(
      train_in_folder(folder, "plain", no_procedure),
      train_in_folder(folder, "zero",
                      no_procedure + "[train.procedures.skip-retain]\nschedule = 'all'\nrate = 0.0\n")));
}

TEST_CASE("Skip-Retain: exhausted patience in phase 1 starts phase 2, and resuming is bit-identical", "[streams]") {
  Folder folder;
  write_text(folder.file("t.mhs"), make_tokens(400));
  write_text(folder.file("v.mhs"), make_tokens(60));
  // The learning rate is so high that most validation losses exceed the best validation loss so far.
  auto config = [&](int num_updates, int patience) {
    return str("[data]\nvalid = '", folder.file("v.mhs"),
               "'\n[train]\nvalidation.every = '1u'\nlr = 0.2\nschedule.length = '40u'\n", "length = '", num_updates,
               "u'\nvalidation.patience = ", patience,
               "\n[train.procedures.skip-retain]\nschedule = 'all'\nrate = 0.4\nuntil = '36u'\n");
  };
  // An entry of the log: a validation, or the return to the best weights at the start of phase 2.
  struct LogEvent {
    int64_t update;
    double nll;  // validation loss, nats per token; NaN: the return to the best weights
  };
  auto log_of = [&](const std::string& name) {
    std::vector<LogEvent> events;
    for (const auto& line : read_log(folder.file(name))) {
      if (line.contains("valid_nll")) events.push_back({line["update"], line["valid_nll"]});
      if (line.contains("returned_to")) events.push_back({line["update"], NAN});
    }
    return events;
  };
  auto uninterrupted_model = train_in_folder(folder, "whole", config(40, 3));
  double best_nll = INFINITY;
  int64_t num_worse_validations = 0, return_update = 0, last_update = 0, num_returns = 0;
  for (const LogEvent& event : log_of("whole")) {
    last_update = event.update;
    if (std::isnan(event.nll)) {
      CHECK(num_worse_validations == 3);
      CHECK(return_update == 0);
      return_update = event.update, num_worse_validations = 0;
      ++num_returns;
      continue;
    }
    CHECK(num_worse_validations < 3);  // 3 worse validations end the phase or the run
    num_worse_validations = event.nll < best_nll ? 0 : num_worse_validations + 1;
    best_nll = std::min(best_nll, event.nll);
  }
  REQUIRE(num_returns == 1);
  REQUIRE(return_update < 36);
  CHECK((last_update == 40 || num_worse_validations == 3));
  CHECK(last_update > return_update);
  for (int64_t stop : {return_update - 1, return_update, return_update + 1}) {
    train_in_folder(folder, str(stop), config(static_cast<int>(stop), 3));
    CHECK(have_same_weights(train_in_folder(folder, str(stop), config(40, 3), true), uninterrupted_model));
  }
  // A resumed run may set a patience that the validations before the resume have already exhausted.
  train_in_folder(folder, "exhausted", config(static_cast<int>(return_update), 0));
  CHECK(have_same_weights(train_in_folder(folder, "exhausted", config(40, 3), true), uninterrupted_model));
}

TEST_CASE("Skip-Retain: a run may resume with validation disabled, in phase 1 and in phase 2", "[streams]") {
  Folder folder;
  write_text(folder.file("t.mhs"), make_tokens(400));
  const std::string base_toml = "[data]\nvalid = '" + folder.file("t.mhs") +
                                "'\n[train.procedures.skip-retain]\nuntil = '4u'\n[train]\nschedule.length = '8u'\n";
  auto config = [&](int num_updates, const char* every) {
    return str(base_toml, "length = '", num_updates, "u'\nvalidation.every = '", every, "'\n");
  };
  for (int stop : {3, 4, 6}) {  // in phase 1, at the end of phase 1, in phase 2
    train_in_folder(folder, str(stop), config(stop, "1u"));
    CHECK_NOTHROW(train_in_folder(folder, str(stop), config(8, "0u"), true));
  }
}
