#include "task/scoring.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "base/error.h"
#include "base/signals.h"
#include "model/memories.h"

namespace mh::task {

namespace {

constexpr int64_t kStreams = 10;  // the published evaluation's batch

// Rows that go through the model one after another, in `count` lanes side by side; a lane's memory is its own. The rows
// of a few neighbouring lanes, taken together, are a contiguous part of the text.
struct Lanes {
  int64_t count, steps;
  std::function<Row(int64_t lane, int64_t step)> row;
};

Lanes lanes_of(const ScoringOptions& o, int64_t tokens) {
  if (o.memory > 0) {
    const Streams streams(tokens, o.streams, o.block);
    return {o.streams, streams.segments(), [streams](int64_t lane, int64_t step) { return streams.row(lane, step); }};
  }
  auto chunks = make_chunks(tokens, o.block, o.context);
  const auto count = static_cast<int64_t>(chunks.size());
  return {count, 1, [chunks](int64_t lane, int64_t) { return chunks[static_cast<size_t>(lane)]; }};
}

}  // namespace

std::vector<Row> make_chunks(int64_t tokens, int64_t block, int64_t context) {
  if (context >= block)
    throw Error(Exit::usage, Problem{"--context", str("less than the block of ", block, " tokens"), str(context),
                                     "raise --block, or lower --context"});
  std::vector<Row> chunks;
  for (int64_t scored = 0; scored < tokens; scored += block - context) {
    const int64_t first = std::max<int64_t>(0, scored - context);
    chunks.push_back({first, std::min(tokens, scored + block - context) - first, scored - first});
  }
  return chunks;
}

ScoringOptions resolve(const ScoringOptions& given, model::LanguageModel& model, int64_t tokens) {
  auto refuse = [](const char* option, const char* expected, int64_t found, const char* next) {
    throw Error(Exit::usage, Problem{option, expected, str(found), next});
  };
  ScoringOptions o = given;
  if (o.memory > 0 && o.context > 0) refuse("--context", "a context or a memory, not both", o.context, "");
  if (o.memory > 0 && model.memory() == 0)
    refuse("--memory", "a model that keeps a memory", o.memory, "--context gives any model a context");
  if (o.memory < 0) o.memory = o.context > 0 ? 0 : model.memory();
  if (o.streams > 0 && o.memory == 0) refuse("--streams", "a memory, which streams are for", o.streams, "");
  // More streams than tokens would have nothing in them.
  if (o.memory > 0)
    o.streams = std::clamp<int64_t>(o.streams > 0 ? o.streams : kStreams, 1, std::max<int64_t>(1, tokens));
  if (o.batch == 0) o.batch = std::max<int64_t>(1, 4096 / o.block);
  return o;
}

const char* protocol_of(const ScoringOptions& resolved) {
  return resolved.memory > 0 ? "streams" : resolved.context > 0 ? "context-window" : "independent-blocks";
}

Score score_text(model::LanguageModel& model, const Text& text, const ScoringOptions& options,
                 const Listener& listener) {
  c10::NoGradGuard no_gradient;
  const ScoringOptions o = resolve(options, model, text.tokens);
  const Lanes lanes = lanes_of(o, text.tokens);
  const at::Device device = model.parameters().device();
  Score score;
  int64_t done = 0;
  for (int64_t begin = 0; begin < lanes.count && stop_signal() == 0; begin += o.batch) {
    const int64_t end = std::min(lanes.count, begin + o.batch);
    auto memory = o.memory > 0 ? model.new_memory(o.memory) : nullptr;
    // Lanes are walked side by side but told of one after the other.
    struct Told {
      int32_t token;
      double log_probability;
    };
    std::vector<std::vector<Told>> told(static_cast<size_t>(end - begin));
    for (int64_t step = 0; step < lanes.steps && stop_signal() == 0; ++step) {
      std::vector<Row> rows;
      int64_t width = 0;
      for (int64_t lane = begin; lane < end; ++lane) {
        rows.push_back(lanes.row(lane, step));
        width = std::max(width, rows.back().length);
      }
      if (width == 0) break;  // the group's streams are the shorter ones
      const Batch batch = load_rows(text, rows, width);
      if (listener.observer != nullptr) {
        at::Tensor lengths = at::empty({static_cast<int64_t>(rows.size())}, at::kLong);
        for (size_t r = 0; r < rows.size(); ++r) lengths.mutable_data_ptr<int64_t>()[r] = rows[r].length;
        listener.observer->begin(lengths);
      }
      const at::Tensor hidden = model.hidden(batch.inputs.to(device), {}, memory.get(), listener.observer);
      const at::Tensor log_p = model.target_log_probabilities(hidden, batch.targets).to(at::kCPU).contiguous();
      const auto* p = log_p.const_data_ptr<float>();
      const auto* target = batch.targets.const_data_ptr<int64_t>();
      for (size_t r = 0; r < rows.size(); ++r, p += width, target += width)
        for (int64_t t = rows[r].scored; t < rows[r].length; ++t) {
          score.nll -= static_cast<double>(p[t]);
          ++score.tokens;
          if (listener.each) told[r].push_back({static_cast<int32_t>(target[t]), static_cast<double>(p[t])});
        }
      if (listener.progress) listener.progress(done += end - begin, lanes.count * lanes.steps);
    }
    for (size_t r = 0; r < told.size(); ++r) {
      const Row first = lanes.row(begin + static_cast<int64_t>(r), 0);
      for (size_t t = 0; t < told[r].size(); ++t)
        listener.each(first.first + first.scored + static_cast<int64_t>(t), told[r][t].token,
                      told[r][t].log_probability);
    }
  }
  return score;
}

}  // namespace mh::task
