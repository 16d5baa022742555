// The procedure head-rotation (Azov & Landau): swaps of heads in training, their schedule, resume and refusals.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "analysis/importance.h"
#include "analysis/rotation.h"
#include "base/json_types.h"
#include "data/text.h"
#include "fixtures/corpora.h"
#include "fixtures/rounding.h"
#include "fixtures/runs.h"
#include "fixtures/status.h"

using namespace mh;
using namespace mh::analysis;
using namespace runs;

namespace {

HeadPair head_pair(int64_t layer, int64_t head, int64_t other_layer, int64_t other_head,
                   AttentionKind kind = AttentionKind::decoder_self) {
  return {kind, {layer, head}, {other_layer, other_head}};
}

constexpr int kEpochUpdates = 7;  // ⌈400 / 64⌉ updates per epoch of a text of 400 tokens, with batch.tokens = 64

std::string rotation_toml(const std::string& options) { return "[train.procedures.head-rotation]\n" + options; }

// Returns the configuration lines of a run of three layers and this many updates.
std::string train_lines(int updates, const std::string& lr = "0.0", const std::string& validate_every = "1e") {
  return str("[model]\nlayers = 3\n[train]\nlength = '", updates, "u'\nlr = ", lr,
             "\nschedule.length = '40u'\nvalidation.every = '", validate_every, "'\n");
}

// Returns the actions of head rotation in the log of the run: "swapped EPOCH [pairs]" or "undone EPOCH [pairs]".
std::vector<std::string> logged_actions(const Folder& folder, const std::string& name) {
  std::vector<std::string> lines;
  for (const auto& line : runs::read_log(folder.file(name), "head-rotation")) {
    const auto& action = line.at("head-rotation");
    const char* name_of_action = action.contains("swapped") ? "swapped" : "undone";
    lines.push_back(str(name_of_action, " ", action.at("epoch").get<int>(), " ", action.at(name_of_action).dump()));
  }
  return lines;
}

std::vector<std::string> remove_pairs(std::vector<std::string> lines) {
  for (std::string& line : lines) line = line.substr(0, line.find(" ["));
  return lines;
}

}  // namespace

TEST_CASE("manual head rotation swaps heads before the first listed epoch and swaps them back before the second",
          "[rotation]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  const std::string method =
      rotation_toml("mode = 'manual'\npairs = ['decoder.self:0.1-2.3', 'decoder.self:1.0-2.0']\nepochs = [2, 4]\n");
  auto start = train_in_folder(folder, "start", train_lines(1));
  // At learning rate 0 only swaps change parameters. A swap before epoch e + 1 is not yet in the checkpoint after epoch
  // e.
  for (auto [updates, is_swapped] : {std::pair{kEpochUpdates, false},
                                     {kEpochUpdates + 1, true},
                                     {3 * kEpochUpdates, true},
                                     {3 * kEpochUpdates + 1, false}}) {
    INFO(updates);
    auto run = train_in_folder(folder, str("run", updates), method + train_lines(updates));
    auto expected = train_in_folder(folder, str("start", updates), train_lines(1));
    if (is_swapped)
      swap_heads(expected.model->parameters(), {head_pair(0, 1, 2, 3), head_pair(1, 0, 2, 0)}, {}, "test");
    for (auto& p : expected.model->parameters().all()) {
      INFO(p.name());
      CHECK(at::equal(p.master(), find(run, p.name())));
    }
    CHECK(at::equal(find(run, "decoder.layers.0.self.query.weight"),
                    find(start, "decoder.layers.0.self.query.weight")) != is_swapped);
  }
  CHECK(logged_actions(folder, str("run", 3 * kEpochUpdates + 1)) ==
        std::vector<std::string>{"swapped 2 [\"decoder.self:0.1-2.3\",\"decoder.self:1.0-2.0\"]",
                                 "undone 4 [\"decoder.self:0.1-2.3\",\"decoder.self:1.0-2.0\"]"});
}

TEST_CASE("head rotation swaps optimizer moments along with the heads only if swap_optimizer_state is set",
          "[rotation]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  const std::string method = rotation_toml("mode = 'manual'\npairs = ['decoder.self:0.1-2.3']\nepochs = [2]\n");
  auto moments = [&](const std::string& name, const std::string& extra) {
    train_in_folder(folder, name, extra);
    io::Checkpoint checkpoint(folder.file(name) + "/last.safetensors");
    std::vector<at::Tensor> by_layer;
    for (int layer : {0, 2}) {
      at::Tensor m = at::empty({16, 16});
      model::load_tensor(checkpoint, str("optimizer.decoder.layers.", layer, ".self.query.weight.first"), m);
      by_layer.push_back(m);
    }
    return by_layer;
  };
  const auto before = moments("before", train_lines(kEpochUpdates));
  const auto unswapped_moments = moments("unswapped-moments", method + train_lines(kEpochUpdates + 1));
  const auto swapped_moments =
      moments("swapped-moments", method + "swap_optimizer_state = true\n" + train_lines(kEpochUpdates + 1));
  // The runs with and without swap_optimizer_state have equal weights and therefore equal gradients. After one update,
  // their moments differ by β (b - a) in the swapped head of layer 0 and by β (a - b) in the swapped head of layer 2,
  // where a and b are the moments of these heads before the swap.
  const double beta = 0.9;
  const at::Tensor a = before[0].narrow(0, 4, 4), b = before[1].narrow(0, 12, 4);
  // An update rounds a moment three times, and the difference is rounded once more.
  const int64_t operations = 4;
  const double size = std::max({numbers::max_abs(swapped_moments[0]), numbers::max_abs(swapped_moments[1]),
                                numbers::max_abs(a), numbers::max_abs(b)});
  CHECK(numbers::max_abs(b - a) > rounding::bound(at::kFloat, at::kFloat, operations, size));
  CHECK(rounding::agree(swapped_moments[0].narrow(0, 4, 4) - unswapped_moments[0].narrow(0, 4, 4), beta * (b - a),
                        operations, size));
  CHECK(rounding::agree(swapped_moments[1].narrow(0, 12, 4) - unswapped_moments[1].narrow(0, 12, 4), beta * (a - b),
                        operations, size));
  CHECK(at::equal(swapped_moments[0].narrow(0, 0, 4), unswapped_moments[0].narrow(0, 0, 4)));
}

TEST_CASE("head rotation in training swaps heads and swaps them back before the scheduled epochs", "[rotation]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  const std::string schedule = "start = 2\nfrequency = 2\nrest = 1\nend = 5\nk = 2\n";
  const std::vector<std::string> expected{"swapped 2", "undone 4", "swapped 5", "undone 6"};
  for (const char* mode :
       {"mode = 'soft'\n", "mode = 'in-layer'\n", "mode = 'random'\n", "mode = 'hard'\nmeasure = 'confidence'\n"}) {
    INFO(mode);
    const std::string name = str("run", std::hash<std::string>()(mode));
    train_in_folder(folder, name, rotation_toml(mode + schedule) + train_lines(5 * kEpochUpdates + 1, "0.01"));
    CHECK(remove_pairs(logged_actions(folder, name)) == expected);
    // Each undo swaps back the pairs of the preceding swap.
    const auto lines = logged_actions(folder, name);
    for (size_t i = 0; i + 1 < lines.size(); i += 2)
      CHECK(lines[i].substr(lines[i].find('[')) == lines[i + 1].substr(lines[i + 1].find('[')));
  }
}

TEST_CASE("hard head rotation pairs heads by their importance in the preceding validation", "[rotation]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(403));  // the last block is padded
  auto run =
      train_in_folder(folder, "run", rotation_toml("mode = 'hard'\nk = 4\n") + train_lines(kEpochUpdates, "0.01"));
  auto measure = importance_measures().make("avg-l2", "")->make_observer(SideSelection::whole);
  {
    c10::NoGradGuard no_gradient;
    io::ShardFile shard(folder.file("t.mhs"));
    for (int64_t block = 0; block < 51; ++block) {
      const data::Row row{block * 8, std::min<int64_t>(8, 403 - block * 8), 0};
      const data::Batch batch = data::load_rows(corpora::text_of(shard, 0), {row}, 8);
      measure->begin_batch(attention::Lengths(at::tensor({row.length}, at::kLong)));
      run.model->hidden(model::Input{batch.input.tokens}, {}, nullptr, measure.get());
    }
  }
  const auto pairs = pair_hard(AttentionKind::decoder_self, measure->mean_scores().at(AttentionKind::decoder_self), 4);
  io::Checkpoint checkpoint(folder.file("run") + "/last.safetensors");
  const auto state = nlohmann::json::parse(checkpoint.metadata_entry(io::kTrainingKey));
  const auto procedure = nlohmann::json::parse(state.at("procedures").at("head-rotation").get<std::string>());
  CHECK(procedure.at("planned").get<std::vector<std::string>>() == to_strings(pairs));
  CHECK(procedure.at("active").empty());
}

TEST_CASE("in soft head rotation, t_max limits the number of layer pairs", "[rotation]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  auto layer_pairs = [&](const std::string& name, const std::string& t_max) {
    train_in_folder(folder, name,
                    rotation_toml("mode = 'soft'\nk = 1\n" + t_max) + str("[model]\nlayers = 5\n[train]\nlength = '",
                                                                          kEpochUpdates + 1,
                                                                          "u'\nlr = 0.0\nschedule.length = '40u'\n"));
    const auto swapped = runs::read_log(folder.file(name), "head-rotation").at(0).at("head-rotation").at("swapped");
    std::vector<std::string> layers;
    for (const auto& text : swapped) {
      const HeadPair p = parse_pair(text.get<std::string>(), "test");
      layers.push_back(str(p.a.layer, "-", p.b.layer));
    }
    return layers;
  };
  CHECK(layer_pairs("all", "") == std::vector<std::string>{"0-4", "1-3"});
  CHECK(layer_pairs("one", "t_max = 1\n") == std::vector<std::string>{"0-4"});
  CHECK(layer_pairs("two", "t_max = 2\n") == std::vector<std::string>{"0-4", "1-3"});
}

TEST_CASE("resume at any point of a head rotation schedule gives bit-identical weights and the same log",
          "[rotation]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  const std::string schedule = "start = 2\nfrequency = 1\nrest = 1\nend = 9\nk = 2\nswap_optimizer_state = true\n";
  const int end = 4 * kEpochUpdates + 2;
  // Updates at which a run stops: in the first epoch; after pairs are planned; while heads are swapped; before these
  // heads are swapped back; in a rest epoch; after new pairs are planned.
  const std::map<std::string, std::vector<int>> stops{
      {"soft", {3, kEpochUpdates, kEpochUpdates + 2, 2 * kEpochUpdates, 2 * kEpochUpdates + 3, 3 * kEpochUpdates}},
      {"random", {kEpochUpdates, kEpochUpdates + 2}}};
  for (const auto& [mode, updates] : stops) {
    const std::string method = rotation_toml(str("mode = '", mode, "'\n") + schedule);
    auto uninterrupted = train_in_folder(folder, str("whole-", mode), method + train_lines(end, "0.01"));
    for (int stop : updates) {
      INFO(mode << " " << stop);
      const std::string name = str(mode, stop);
      train_in_folder(folder, name, method + train_lines(stop, "0.01"));
      auto resumed = train_in_folder(folder, name, method + train_lines(end, "0.01"), true);
      for (auto& p : uninterrupted.model->parameters().all()) {
        INFO(p.name());
        CHECK(at::equal(p.master(), find(resumed, p.name())));
      }
      CHECK(logged_actions(folder, name) == logged_actions(folder, str("whole-", mode)));
    }
  }
}

TEST_CASE("head rotation refuses invalid options and combinations of options before training starts", "[rotation]") {
  Folder folder;
  write_text(folder.file("t.mhs"), repeating_tokens(400));
  auto check_refused = [&](const std::string& options, const std::string& extra = "",
                           const std::string& validate_every = "1e") {
    INFO(options << extra << validate_every);
    CHECK(status_of([&] {
            train_in_folder(folder, "refused", rotation_toml(options) + train_lines(3, "0.0", validate_every) + extra);
          }) == 2);
  };
  check_refused("mode = 'soft'\nk = 3\n");
  check_refused("mode = 'hard'\nk = 7\n");
  check_refused("mode = 'soft'\nk = 2\nsoft = 'released'\n");
  check_refused("mode = 'hard'\nk = 2\nsoft = 'released'\n");
  check_refused("mode = 'soft'\nk = 2\nt_max = 2\n");  // three layers form only one pair of layers
  check_refused("mode = 'soft'\nk = 1\nsoft = 'released'\nt_max = 1\n");
  check_refused("mode = 'hard'\nt_max = 1\n");
  check_refused("mode = 'random'\nt_max = 1\n");
  check_refused("mode = 'in-layer'\nk = 3\n");
  check_refused("mode = 'in-layer'\nk = 1\nt_max = 1\n");
  check_refused("mode = 'in-layer'\nk = 1\nsoft = 'released'\n");
  check_refused("mode = 'in-layer'\nk = 1\nswap_output = true\n");
  check_refused("mode = 'in-layer'\nk = 1\n", "[data]\nvalid = ''\n");
  check_refused("mode = 'manual'\npairs = ['decoder.self:0.0-1.0']\nepochs = [2]\nt_max = 1\n");
  check_refused("mode = 'hard'\nstart = 1\n");
  check_refused("mode = 'hard'\nstart = 5\nend = 4\n");
  check_refused("mode = 'hard'\nrest = 0\n");
  check_refused("mode = 'hard'\nmeasure = 'tailor'\n");
  check_refused("mode = 'hard'\n", "[data]\nvalid = ''\n");
  check_refused("mode = 'hard'\n", "", "2e");
  check_refused("mode = 'hard'\n", "", "0u");
  check_refused("mode = 'hard'\nkind = ['decoder.cross']\n");
  check_refused("mode = 'hard'\nkind = ['decoder']\n");
  check_refused("mode = 'hard'\npairs = ['decoder.self:0.0-1.0']\n");
  check_refused("mode = 'hard'\nepochs = [2]\n");
  check_refused("mode = 'manual'\nepochs = [2]\n");
  check_refused("mode = 'manual'\npairs = ['decoder.self:0.0-1.0']\n");
  check_refused("mode = 'manual'\npairs = ['decoder.self:0.0-1.9']\nepochs = [2]\n");
  check_refused("mode = 'manual'\npairs = ['decoder.self:0.0-1.0']\nepochs = [4, 2]\n");
  check_refused("mode = 'manual'\npairs = ['decoder.self:0.0-1.0']\nepochs = [2]\nkind = ['decoder.self']\n");
  check_refused("mode = 'random'\nk = 2\n", "[attention.decoder.self.1]\nhead_size = 3\n");
  check_refused("mode = 'random'\nk = 2\nswap_optimizer_state = true\n",
                "[train.groups.low]\nmatch = ['decoder.layers.0.*']\nrule = 'sgd'\n");
  CHECK_NOTHROW(train_in_folder(
      folder, "random", rotation_toml("mode = 'random'\nstart = 1\n") + train_lines(3) + "[data]\nvalid = ''\n"));
  CHECK(remove_pairs(logged_actions(folder, "random")) == std::vector<std::string>{"swapped 1"});
}
