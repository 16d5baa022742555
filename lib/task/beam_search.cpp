#include "task/beam_search.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention/layer.h"
#include "base/error.h"
#include "base/random.h"
#include "base/signals.h"
#include "cpu/attention.h"
#include "model/product.h"
#include "task/candidates.h"
#include "task/sampling.h"

namespace mh::task {

namespace {

// Sources are filled up to so many positions at least, if the model takes as many: attention takes another way for a
// few queries, and which it takes must not depend on how long the others are.
constexpr size_t kNarrowest = kernels::kFewQueries + 1;

// A hypothesis that is not finished.
struct Partial {
  std::vector<int32_t> tokens;
  double sum = 0;    // of log p, nats
  int64_t slot = 0;  // which of its sentence's rows of the batch is its own; of a new one, its parent's
};

// What is searched of one sentence.
struct Beam {
  size_t sentence = 0;
  int64_t longest = 0;
  std::vector<Partial> live;           // best first; samples: in their order
  std::vector<RandomSequence> random;  // of each sample
  std::vector<size_t> samples;         // of each live one
  std::vector<Hypothesis> finished;
};

at::Tensor tensor_of(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

// Some sentences, or none, all in one batch. They have the same number of rows each, so that what a sentence's rows
// share can be kept once; a row without a hypothesis is computed for nothing.
class Search {
 public:
  using Sentences = std::vector<const Sentence*>;
  Search(model::LanguageModel& model, const Sentences& sentences, const Ends& ends, const SearchOptions& o,
         const SamplingOptions& sampling, attention::Observer* observer)
      : model_(model), sentences_(sentences), ends_(ends), options_(o), sampling_(sampling), observer_(observer) {
    for (size_t i = 0; i < sentences.size(); ++i) {
      const Sentence& s = *sentences[i];
      Beam beam{i, longest_hypothesis(o, model, static_cast<int64_t>(s.source.size())), {}, {}, {}, {}};
      if (const auto given = static_cast<int64_t>(s.prefix.size()); given > beam.longest)
        throw Error(Exit::usage, Problem{str("the prefix of sentence ", s.number + 1),
                                         str("at most ", beam.longest, " tokens, which a hypothesis may have"),
                                         str(given), "shorten it, or raise --max-length-b"});
      beam.live.resize(static_cast<size_t>(std::max<int64_t>(1, sampling.samples)));
      for (size_t k = 0; k < beam.live.size(); ++k) {
        beam.live[k].slot = static_cast<int64_t>(k);
        if (sampling.samples == 0) continue;
        beam.samples.push_back(k);
        beam.random.emplace_back(RandomStream(static_cast<uint64_t>(sampling.seed), "translate"),
                                 static_cast<uint32_t>(s.number), static_cast<uint32_t>(k));
      }
      if (sampling.samples > 0) beam.finished.resize(static_cast<size_t>(sampling.samples));
      beams_.push_back(std::move(beam));
    }
    width_ = beams_.empty() ? 1 : static_cast<int64_t>(beams_[0].live.size());
    results_.resize(sentences.size());
  }

  std::vector<std::vector<Hypothesis>> run() {
    if (beams_.empty()) return results_;
    state_ = model_.new_state();
    while (!beams_.empty() && stop_signal() == 0) {
      const at::Tensor logits = next_logits();
      if (sampling_.samples > 0) draw_next(logits);
      else search_next(logits);
      ++length_;
      rearrange();
    }
    return std::move(results_);
  }

 private:
  int64_t rows() const { return static_cast<int64_t>(beams_.size()) * width_; }
  int64_t row(size_t beam, const Partial& p) const { return static_cast<int64_t>(beam) * width_ + p.slot; }

  // (R, V) fp32
  at::Tensor next_logits() {
    at::Tensor tokens = at::full({rows(), 1}, static_cast<int64_t>(ends_.end), at::kLong);
    auto* t = tokens.mutable_data_ptr<int64_t>();
    for (size_t b = 0; b < beams_.size(); ++b)
      for (const Partial& p : beams_[b].live)
        if (!p.tokens.empty()) t[row(b, p)] = p.tokens.back();
    model::Input input(tokens);
    if (length_ == 0 && model_.has_encoder()) read_sources(input);
    if (observer_ != nullptr) observer_->begin(input.lengths);
    const at::Tensor hidden = model_.hidden(input.to(model_.parameters().device()), {}, state_.get(), observer_);
    return model_.logits(hidden).flatten(0, 1);
  }

  void read_sources(model::Input& input) const {
    const auto bound = static_cast<size_t>(model_.max_length());
    size_t longest = bound > 0 ? std::min(kNarrowest, bound) : kNarrowest;
    for (const Sentence* s : sentences_) longest = std::max(longest, s->source.size());
    std::vector<int64_t> lengths;
    input.source = at::zeros({rows(), static_cast<int64_t>(longest)}, at::kLong);
    auto* to = input.source.mutable_data_ptr<int64_t>();
    for (const Sentence* s : sentences_)
      for (int64_t i = 0; i < width_; ++i, to += longest) {
        std::copy(s->source.begin(), s->source.end(), to);
        lengths.push_back(static_cast<int64_t>(s->source.size()));
      }
    input.lengths.encoder = tensor_of(lengths);
  }

  // The only token that may come next, or -1.
  int32_t forced(const Beam& beam) const {
    const std::vector<int32_t>& prefix = sentences_[beam.sentence]->prefix;
    if (length_ < static_cast<int64_t>(prefix.size())) return prefix[static_cast<size_t>(length_)];
    return length_ >= beam.longest ? ends_.end : -1;
  }

  std::vector<int32_t> never() const {
    std::vector<int32_t> tokens;
    if (length_ < options_.min_length) tokens.push_back(ends_.end);
    if (options_.no_unknown && ends_.unknown >= 0) tokens.push_back(ends_.unknown);
    return tokens;
  }

  Hypothesis finished(const Partial& p, double sum) const {
    Hypothesis h{p.tokens, sum, sum / std::pow(static_cast<double>(length_ + 1), options_.length_penalty)};
    h.tokens.push_back(ends_.end);
    return h;
  }

  static Partial extended(const std::vector<Partial>& live, size_t parent, int32_t token, double sum) {
    Partial p{live[parent].tokens, sum, live[parent].slot};
    p.tokens.push_back(token);
    return p;
  }

  void search_next(const at::Tensor& logits) {
    const auto beam = static_cast<size_t>(options_.beam);
    Wanted wanted{2 * options_.beam, never(), {}};
    for (size_t b = 0; b < beams_.size(); ++b)
      if (const int32_t token = forced(beams_[b]); token >= 0) {
        wanted.forced.resize(static_cast<size_t>(rows()), -1);
        std::fill_n(wanted.forced.begin() + static_cast<int64_t>(b) * width_, width_, token);
      }
    const Candidates candidates = candidates_of(logits, wanted);
    struct Way {
      double sum;
      size_t rank;
      int32_t token;
    };
    std::vector<Way> ways;
    for (size_t b = 0; b < beams_.size(); ++b) {
      Beam& now = beams_[b];
      ways.clear();
      for (size_t rank = 0; rank < now.live.size(); ++rank) {
        const auto r = static_cast<size_t>(row(b, now.live[rank]));
        for (const kernels::Entry& e : candidates.rows[r])
          ways.push_back({now.live[rank].sum + (static_cast<double>(e.logit) - candidates.log_sums[r]), rank, e.index});
      }
      const size_t seen = std::min(ways.size(), 2 * beam);
      std::partial_sort(
          ways.begin(), ways.begin() + static_cast<int64_t>(seen), ways.end(), [](const Way& x, const Way& y) {
            return x.sum != y.sum ? x.sum > y.sum : x.rank != y.rank ? x.rank < y.rank : x.token < y.token;
          });
      std::vector<Partial> next;
      for (size_t i = 0; i < seen && next.size() < beam && now.finished.size() < beam; ++i) {
        const Way& way = ways[i];
        if (way.token != ends_.end) next.push_back(extended(now.live, way.rank, way.token, way.sum));
        else if (i < beam) now.finished.push_back(finished(now.live[way.rank], way.sum));
      }
      if (now.finished.size() >= beam) next.clear();
      now.live = std::move(next);
      if (now.live.empty() && now.finished.empty()) refuse_nothing();
    }
  }

  void draw_next(const at::Tensor& logits) {
    const Candidates sums = candidates_of(logits, {0, {}, {}});
    at::Tensor open = logits.to(at::kCPU, at::kFloat, false, true).contiguous();
    const at::Tensor given = open.clone();
    for (int32_t token : never()) open.select(1, token).fill_(-INFINITY);
    const int64_t entries = open.size(1);
    if (entries <= static_cast<int64_t>(never().size())) refuse_nothing();
    for (size_t b = 0; b < beams_.size(); ++b) {
      Beam& now = beams_[b];
      std::vector<Partial> next;
      std::vector<size_t> samples;
      for (size_t rank = 0; rank < now.live.size(); ++rank) {
        const int64_t r = row(b, now.live[rank]);
        const size_t sample = now.samples[rank];
        int32_t token = forced(now);
        if (token < 0)
          token = draw({open.const_data_ptr<float>() + r * entries, static_cast<size_t>(entries)},
                       sampling_.temperature, sampling_.top_k, now.random[sample]);
        const double logit = given.const_data_ptr<float>()[r * entries + token];
        const double sum = now.live[rank].sum + (logit - sums.log_sums[static_cast<size_t>(r)]);
        if (token == ends_.end) {
          now.finished[sample] = finished(now.live[rank], sum);
        } else {
          next.push_back(extended(now.live, rank, token, sum));
          samples.push_back(sample);
        }
      }
      now.live = std::move(next);
      now.samples = std::move(samples);
    }
  }

  // A vocabulary may have nothing that could come next: its end too early, its other token the unknown one.
  [[noreturn]] static void refuse_nothing() {
    throw Error(Exit::usage, Problem{"the search", "a token that may come next", "none",
                                     "lower --min-length, or leave out --no-unknown"});
  }

  // Sentences that are done leave; hypotheses that go on stay in their rows where they can, so that little of the cache
  // is moved, and the last sentences fill the places of those that have left.
  void rearrange() {
    const int64_t before = rows();              // of the state
    std::vector<size_t> places(beams_.size());  // of those that stay: where they were
    std::iota(places.begin(), places.end(), size_t{0});
    for (size_t b = beams_.size(); b-- > 0;) {
      if (!beams_[b].live.empty()) continue;
      finish(beams_[b]);
      if (b + 1 < beams_.size()) beams_[b] = std::move(beams_.back());
      places[b] = places.back();
      beams_.pop_back();
      places.pop_back();
    }
    if (beams_.empty()) return;
    int64_t width = 0;
    for (const Beam& beam : beams_) width = std::max(width, static_cast<int64_t>(beam.live.size()));
    std::vector<int64_t> from;
    for (size_t b = 0; b < beams_.size(); ++b) place(beams_[b], static_cast<int64_t>(places[b]) * width_, width, from);
    bool moves = false;
    for (size_t i = 0; i < from.size(); ++i) moves = moves || from[i] != static_cast<int64_t>(i);
    width_ = width;
    if (moves || rows() != before) state_->reorder(tensor_of(from));
  }

  // Chooses a slot for each live hypothesis; appends the rows that its slots continue.
  void place(Beam& beam, int64_t first, int64_t width, std::vector<int64_t>& from) const {
    std::vector<int64_t> parents(static_cast<size_t>(width), -1);  // of each slot
    std::vector<Partial*> waiting;
    for (Partial& p : beam.live) {
      const bool stays = width == width_ && parents[static_cast<size_t>(p.slot)] < 0;
      if (stays) parents[static_cast<size_t>(p.slot)] = p.slot;
      else waiting.push_back(&p);
    }
    size_t free = 0;
    for (Partial* p : waiting) {
      while (parents[free] >= 0) ++free;
      parents[free] = p->slot;
      p->slot = static_cast<int64_t>(free);
    }
    for (int64_t slot = 0; slot < width; ++slot) {
      const int64_t parent = parents[static_cast<size_t>(slot)];
      from.push_back(first + (parent >= 0 ? parent : std::min(slot, width_ - 1)));
    }
  }

  void finish(Beam& beam) {
    std::vector<Hypothesis>& found = beam.finished;
    if (sampling_.samples == 0)
      std::stable_sort(found.begin(), found.end(),
                       [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    results_[beam.sentence] = std::move(found);
  }

  model::LanguageModel& model_;
  const Sentences& sentences_;
  Ends ends_;
  const SearchOptions& options_;
  const SamplingOptions& sampling_;
  attention::Observer* observer_;
  std::unique_ptr<model::DecodingState> state_;
  std::vector<Beam> beams_;  // of sentences that are not done, in the order of their rows
  int64_t width_ = 1;        // rows of a sentence
  int64_t length_ = 0;       // tokens of each live hypothesis
  std::vector<std::vector<Hypothesis>> results_;
};

// How many parts of a batch are searched side by side, each by one thread: as many as there are threads where every one
// has rows enough for full products. Threads that share a step wait for each other at each of its operations. Only of
// layers that several threads may use at once and to which it does not matter what else is in the batch.
int64_t parts_of(model::LanguageModel& model, int64_t rows) {
  const int64_t threads = at::get_num_threads();
  if (!model.parameters().device().is_cpu() || rows < threads * model::DecodingProducts::kFullRows) return 1;
  for (const attention::AttentionLayer* layer : model.attention_layers())
    if (!layer->by_query() || !layer->takes_fused(false)) return 1;
  return threads;
}

}  // namespace

void SearchOptions::check(model::LanguageModel& model) const {
  if (beam > model.vocabularies().target)
    throw Error(Exit::usage, Problem{"beam", str("at most ", model.vocabularies().target, ", the vocabulary's entries"),
                                     str(beam), "choose a narrower one"});
  const int64_t bound = model.max_length() > 0 ? model.max_length() - 1 : INT64_MAX;
  if (const int64_t most = max_length_a == 0 ? std::min(max_length_b, bound) : bound; min_length > most)
    throw Error(Exit::usage,
                Problem{"min_length", str("at most the maximum, ", most, most == bound ? " of the model" : ""),
                        str(min_length), ""});
}

int64_t longest_hypothesis(const SearchOptions& o, model::LanguageModel& model, int64_t source) {
  const auto by_source = static_cast<int64_t>(o.max_length_a * static_cast<double>(source));
  const int64_t longest = by_source + o.max_length_b, bound = model.max_length();
  return bound > 0 ? std::min(longest, bound - 1) : longest;  // the end is predicted from the last of them
}

std::vector<std::vector<Hypothesis>> search(model::LanguageModel& model, const std::vector<Sentence>& sentences,
                                            const Ends& ends, const SearchOptions& options,
                                            const SamplingOptions& sampling, attention::Observer* observer) {
  const c10::NoGradGuard no_gradient;
  const model::DecodingProducts products;
  const auto of_each = std::max<int64_t>(1, sampling.samples > 0 ? sampling.samples : options.beam);
  const int64_t count = observer != nullptr ? 1 : parts_of(model, static_cast<int64_t>(sentences.size()) * of_each);
  // Side by side in a batch stand sentences of about one length, so that parts of every so many end together.
  std::vector<Search::Sentences> parts(static_cast<size_t>(count));
  for (size_t i = 0; i < sentences.size(); ++i) parts[i % parts.size()].push_back(&sentences[i]);
  std::vector<std::vector<std::vector<Hypothesis>>> found(parts.size());
  const auto search_part = [&](size_t i) {
    found[i] = Search(model, parts[i], ends, options, sampling, observer).run();
  };
  if (count == 1) {
    search_part(0);
  } else {
    at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      const c10::NoGradGuard none_here;  // of this thread, as the products
      const model::DecodingProducts same(&products);
      for (int64_t i = begin; i < end; ++i) search_part(static_cast<size_t>(i));
    });
  }
  std::vector<std::vector<Hypothesis>> all;
  for (size_t i = 0; i < sentences.size(); ++i) all.push_back(std::move(found[i % parts.size()][i / parts.size()]));
  return all;
}

}  // namespace mh::task
