#include "task/scoring.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/ahead.h"
#include "base/error.h"
#include "base/random.h"
#include "base/signals.h"
#include "model/memories.h"
#include "task/pinned.h"

namespace mh::task {

namespace {

constexpr int64_t kStreams = 10;  // the published evaluation's batch

// Rows that go through the model one after another, in `count` lanes side by side; a lane's memory is its own. The rows
// of a few neighbouring lanes, taken together, are a contiguous part of the text, unless they are a sample.
struct Lanes {
  int64_t count, steps;
  std::function<Row(int64_t lane, int64_t step)> row;
  int64_t unseen = 0;  // the first so many steps fill the memory
};

// Of 0 … all - 1, `count` different ones in ascending order (Floyd's draw).
std::vector<int64_t> drawn(int64_t count, int64_t all, int64_t seed) {
  RandomSequence random(RandomStream(static_cast<uint64_t>(seed), "sample"), 0, 0);
  std::set<int64_t> chosen;
  for (int64_t i = all - count; i < all; ++i) {
    const auto pick = static_cast<int64_t>(random.below(static_cast<uint64_t>(i) + 1));
    chosen.insert(chosen.count(pick) > 0 ? i : pick);
  }
  return {chosen.begin(), chosen.end()};
}

void require_context(int64_t block, int64_t context) {
  if (context >= block)
    throw Error(Exit::usage, Problem{"--context", str("less than the block of ", block, " tokens"), str(context),
                                     "raise --block, or lower --context"});
}

// `all`: how many there are to draw from. Error(usage), of `what` with `next`, for more.
int64_t blocks_of(const Sample& sample, int64_t all, const std::string& what, const char* next) {
  if (sample.at_most && all > 0) return std::min(sample.blocks, all);
  if (sample.blocks > all)
    throw Error(Exit::usage,
                Problem{"--blocks", str("at most ", std::max<int64_t>(0, all), ", ", what), str(sample.blocks), next});
  return sample.blocks;
}

// Blocks of the sample, each behind the blocks that fill its memory.
Lanes sampled_lanes(const ScoringOptions& o, int64_t tokens) {
  const int64_t before = o.memory > 0 ? divided_up(o.memory, o.block) : 0, wide = o.block - o.context;
  // Blocks scored from a multiple of `wide` on, with all of their context and memory in front.
  const int64_t first = before + (o.context > 0 ? divided_up(o.context, wide) : 0), all = tokens / wide - first;
  const int64_t blocks = blocks_of(
      o.sample, all, str("the text's whole blocks of ", o.block, " tokens", before > 0 ? " behind a full memory" : ""),
      "lower it, or --block");
  const auto chosen = drawn(blocks, all, o.sample.seed);
  return {blocks, before + 1,
          [=](int64_t lane, int64_t step) -> Row {
            const int64_t scored = (first + chosen[static_cast<size_t>(lane)] - before + step) * wide;
            return {scored - o.context, o.block, o.context};
          },
          before};
}

Lanes lanes_of(const ScoringOptions& o, int64_t tokens) {
  if (o.sample.blocks > 0) return sampled_lanes(o, tokens);
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
  require_context(block, context);
  std::vector<Row> chunks;
  for (int64_t scored = 0; scored < tokens; scored += block - context) {
    const int64_t first = std::max<int64_t>(0, scored - context);
    chunks.push_back({first, std::min(tokens, scored + block - context) - first, scored - first});
  }
  return chunks;
}

namespace {

// Of rows that stand alone: `count` of them, the longest of `longest` tokens.
ScoringOptions resolve_alone(const ScoringOptions& given, model::LanguageModel& model, int64_t count, int64_t longest) {
  if (given.sentences) return given;  // resolved already
  auto refuse = [](const char* option, int64_t found) {
    throw Error(Exit::usage, Problem{option, "a text, of which it is; sentences and examples stand alone", str(found),
                                     "leave it out"});
  };
  ScoringOptions o = given;
  if (o.block > 0) refuse("--block", o.block);
  if (o.context > 0) refuse("--context", o.context);
  if (o.memory > 0) refuse("--memory", o.memory);
  if (o.streams > 0) refuse("--streams", o.streams);
  o.sample.blocks = blocks_of(o.sample, count, "the pairs or rows there are", "lower it");
  o.memory = 0;
  o.sentences = true;
  o.block = std::max<int64_t>(1, longest);
  model.require_length("the longest sentence", o.block);
  if (o.batch == 0) o.batch = std::max<int64_t>(1, 4096 / o.block);
  return o;
}

int64_t longest_of(const Examples& examples) {
  int64_t longest = 0;
  for (int64_t row = 0; row < examples.size(); ++row) longest = std::max(longest, examples.source->length(0, row));
  return longest;
}

}  // namespace

ScoringOptions resolve(const ScoringOptions& given, model::LanguageModel& model, const Corpus& corpus) {
  if (const auto* pairs = std::get_if<Pairs>(&corpus))
    return resolve_alone(given, model, pairs->size(), pairs->longest);
  if (const auto* examples = std::get_if<Examples>(&corpus))
    return resolve_alone(given, model, examples->size(), longest_of(*examples));
  const int64_t tokens = targets_in(corpus);
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
  model.require_length("--block", o.block);
  require_context(o.block, o.context);
  if (o.sample.blocks > 0) o.sample.blocks = sampled_lanes(o, tokens).count;
  if (o.batch == 0) o.batch = std::max<int64_t>(1, 4096 / o.block);
  return o;
}

const char* protocol_of(const ScoringOptions& resolved) {
  if (resolved.sentences) return "sentences";
  return resolved.memory > 0 ? "streams" : resolved.context > 0 ? "context-window" : "independent-blocks";
}

namespace {

// Rows that go through the model together, in the order of the walk.
struct Piece {
  std::vector<Row> rows;
  Batch batch;
  int64_t first_lane = 0;
  bool begins = false;  // lanes begin here, with an empty memory
  bool visited = true;
  bool last = false;  // as Pass has it
  int64_t done = 0;   // what progress counts
};
using Pieces = std::function<std::optional<Piece>()>;  // one after another, none behind the last

// The text outlives them.
Pieces pieces_of(const Text& text, const ScoringOptions& o, const Lanes& lanes) {
  return [&text, lanes, at_once = o.batch, begin = int64_t{0}, step = int64_t{0}]() mutable -> std::optional<Piece> {
    for (; begin < lanes.count; begin += at_once, step = 0) {
      if (step == lanes.steps) continue;
      const int64_t end = std::min(lanes.count, begin + at_once);
      Piece piece;
      int64_t width = 0, next = 0;  // of the rows that follow these
      for (int64_t lane = begin; lane < end; ++lane) {
        piece.rows.push_back(lanes.row(lane, step));
        width = std::max(width, piece.rows.back().length);
        if (step + 1 < lanes.steps) next = std::max(next, lanes.row(lane, step + 1).length);
      }
      if (width == 0) continue;  // the group's streams are the shorter ones
      piece.batch = load_rows(text, piece.rows, width);
      piece.first_lane = begin;
      piece.begins = step == 0;
      piece.visited = step >= lanes.unseen;
      piece.last = next == 0;
      piece.done = end - begin;
      ++step;
      return piece;
    }
    return std::nullopt;
  };
}

// Pairs of this many are sorted by length together, so that what is told of them in their order need not be held for
// all.
constexpr int64_t kSortedTogether = 4096;

// Rows that stand alone, by number.
struct Alone {
  int64_t count;
  std::function<std::pair<int64_t, int64_t>(int64_t)> sizes;  // what rows of like length are sorted by
  std::function<Batch(const std::vector<int64_t>& chosen, std::vector<Row>& rows)> load;
};

Alone alone(const Pairs& pairs) {
  return {pairs.size(), [&](int64_t pair) { return std::pair(pairs.target_length(pair), pairs.source_length(pair)); },
          [&](const std::vector<int64_t>& chosen, std::vector<Row>& rows) {
            for (int64_t pair : chosen) rows.push_back(row_of(pairs, pair));
            return load_pairs(pairs, rows);
          }};
}

Alone alone(const Examples& examples) {
  return {examples.size(), [&](int64_t row) { return std::pair(examples.source->length(0, row), int64_t{0}); },
          [&](const std::vector<int64_t>& chosen, std::vector<Row>& rows) {
            std::vector<text::Example> made;
            for (int64_t row : chosen) {
              made.push_back(examples.source->make(0, row));
              rows.push_back({0, static_cast<int64_t>(made.back().targets.size()), 0, row});
            }
            return load_examples(examples, made);
          }};
}

Pieces pieces_of(const Alone& all, const ScoringOptions& o) {
  std::vector<int64_t> chosen(static_cast<size_t>(all.count));
  if (o.sample.blocks > 0) chosen = drawn(o.sample.blocks, all.count, o.sample.seed);
  else std::iota(chosen.begin(), chosen.end(), 0);
  return [all, chosen, room = o.batch * o.block, window = std::vector<int64_t>(), begin = size_t{0},
          at = size_t{0}]() mutable -> std::optional<Piece> {
    if (at == window.size()) {
      const size_t end = std::min(chosen.size(), begin + static_cast<size_t>(kSortedTogether));
      if (begin == end) return std::nullopt;
      window.assign(chosen.begin() + static_cast<int64_t>(begin), chosen.begin() + static_cast<int64_t>(end));
      std::stable_sort(window.begin(), window.end(), [&](int64_t a, int64_t b) { return all.sizes(a) < all.sizes(b); });
      begin = end, at = 0;
    }
    std::vector<int64_t> together;
    int64_t widest = 0;
    for (; at < window.size(); ++at) {
      const auto [target, source] = all.sizes(window[at]);
      widest = std::max({widest, target, source});
      if (!together.empty() && widest * (static_cast<int64_t>(together.size()) + 1) > room) break;
      together.push_back(window[at]);
    }
    Piece piece;
    piece.batch = all.load(together, piece.rows);
    piece.last = at == window.size();
    piece.done = static_cast<int64_t>(piece.rows.size());
    return piece;
  };
}

void walk_pieces(model::LanguageModel& model, const ScoringOptions& o, const Pieces& make, int64_t all,
                 const Walk& walk) {
  const at::Device device = model.parameters().device();
  // While a GPU computes, the host has nothing else to do.
  std::optional<Ahead<Piece>> ahead;
  if (!device.is_cpu())
    ahead.emplace(kBatchesAhead, [&make] {
      std::optional<Piece> piece = make();
      if (piece) piece->batch = pinned(std::move(piece->batch));
      return piece;
    });
  std::unique_ptr<model::Memories> memory;
  int64_t done = 0;
  while (stop_signal() == 0) {
    const std::optional<Piece> piece = ahead ? ahead->next() : make();
    if (!piece) return;
    if (piece->begins && o.memory > 0) memory = model.new_memory(o.memory);
    attention::Observer* observer = piece->visited ? walk.observer : nullptr;
    if (observer != nullptr) observer->begin(piece->batch.input.lengths);
    const at::Tensor hidden = model.hidden(piece->batch.input.to(device), {}, memory.get(), observer);
    if (piece->visited) walk.visit({piece->rows, piece->batch, hidden, piece->first_lane, piece->last});
    if (walk.progress) walk.progress(done += piece->done, all);
  }
}

int64_t count_of(const Alone& all, const ScoringOptions& o) {
  return o.sample.blocks > 0 ? o.sample.blocks : all.count;
}

}  // namespace

void walk(model::LanguageModel& model, const Corpus& corpus, const ScoringOptions& options, const Walk& how) {
  const ScoringOptions o = resolve(options, model, corpus);
  if (const auto* text = std::get_if<Text>(&corpus)) {
    const Lanes lanes = lanes_of(o, text->tokens);
    return walk_pieces(model, o, pieces_of(*text, o, lanes), lanes.count * lanes.steps, how);
  }
  const auto* pairs = std::get_if<Pairs>(&corpus);
  const Alone all = pairs != nullptr ? alone(*pairs) : alone(std::get<Examples>(corpus));
  walk_pieces(model, o, pieces_of(all, o), count_of(all, o), how);
}

Score score(model::LanguageModel& model, const Corpus& corpus, const ScoringOptions& options,
            const Listener& listener) {
  c10::NoGradGuard no_gradient;
  Score score;
  // Lanes are walked side by side but told of one after the other.
  struct Told {
    int64_t index;
    int32_t token;
    double log_probability;
  };
  std::map<int64_t, std::vector<Told>> told;  // by lane
  const auto tell = [&] {
    for (const auto& [lane, all] : told)
      for (const Told& t : all) listener.each(t.index, t.token, t.log_probability);
    told.clear();
  };
  Walk how;
  how.observer = listener.observer;
  how.progress = listener.progress;
  how.visit = [&](const Pass& pass) {
    const at::Tensor log_p = model.target_log_probabilities(pass.hidden, pass.batch.targets).to(at::kCPU).contiguous();
    const auto* p = log_p.const_data_ptr<float>();
    const auto* target = pass.batch.targets.const_data_ptr<int64_t>();
    const int64_t width = log_p.size(1);
    for (size_t r = 0; r < pass.rows.size(); ++r, p += width, target += width) {
      const Row& row = pass.rows[r];
      for (int64_t t = row.scored; t < row.length; ++t) {
        if (target[t] < 0) continue;
        score.nll -= static_cast<double>(p[t]);
        ++score.tokens;
        if (listener.each)
          told[pass.lane(r)].push_back({row.first + t, static_cast<int32_t>(target[t]), static_cast<double>(p[t])});
      }
    }
    if (pass.last) tell();
  };
  walk(model, corpus, options, how);
  tell();  // of what a signal has cut off
  return score;
}

}  // namespace mh::task
