#include "search/beams.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "cpu/attention.h"
#include "nn/aten.h"

namespace mh::search {

namespace {

// Minimum padded length of sources, in tokens, if the model has as many positions. Attention with few queries uses
// another kernel, so without this minimum the kernel, and the rounding, would depend on the longest source in the
// batch.
constexpr size_t kMinSourceLength = kernels::kMaxDecodeQueries + 1;

// Returns the live hypothesis `parent` with the token of `extension` appended.
LiveHypothesis extend(const LiveHypothesis& parent, const Extension& extension) {
  LiveHypothesis p{parent.tokens, extension.sum, parent.slot};
  p.tokens.push_back(extension.token);
  return p;
}

}  // namespace

std::vector<Beam> BeamPolicy::begin(model::LanguageModel& model, const Sentences& sentences) const {
  std::vector<Beam> beams;
  for (size_t i = 0; i < sentences.size(); ++i) {
    const Sentence& s = *sentences[i];
    Beam beam{i, max_hypothesis_length(options_, model, static_cast<int64_t>(s.source.size())), {}, {}, {}, {}};
    if (const auto given = static_cast<int64_t>(s.prefix.size()); given > beam.longest)
      throw Error(Exit::usage, Problem{str("the prefix of sentence ", s.number + 1),
                                       str("at most ", beam.longest, " tokens, the maximum length of a hypothesis"),
                                       str(given), "shorten the prefix, or raise --max-length-b"});
    beam.live.resize(static_cast<size_t>(std::max<int64_t>(1, sampling_.samples)));
    for (size_t k = 0; k < beam.live.size(); ++k) {
      beam.live[k].slot = static_cast<int64_t>(k);
      if (!samples()) continue;
      beam.samples.push_back(k);
      beam.random.emplace_back(RandomStream(static_cast<uint64_t>(sampling_.seed), "translate"),
                               static_cast<uint32_t>(s.number), static_cast<uint32_t>(k));
    }
    if (samples()) beam.finished.resize(static_cast<size_t>(sampling_.samples));
    beams.push_back(std::move(beam));
  }
  return beams;
}

int32_t BeamPolicy::forced(const Sentence& sentence, const Beam& beam, int64_t length) const {
  if (length < static_cast<int64_t>(sentence.prefix.size())) return sentence.prefix[static_cast<size_t>(length)];
  return length >= beam.longest ? end_tokens_.end : -1;
}

std::vector<int32_t> BeamPolicy::excluded(int64_t length) const {
  std::vector<int32_t> tokens;
  if (length < options_.min_length) tokens.push_back(end_tokens_.end);
  if (options_.no_unknown && end_tokens_.unknown >= 0) tokens.push_back(end_tokens_.unknown);
  return tokens;
}

Hypothesis BeamPolicy::finished(const LiveHypothesis& p, double sum, int64_t length) const {
  Hypothesis h{p.tokens, sum, sum / std::pow(static_cast<double>(length + 1), options_.length_penalty)};
  h.tokens.push_back(end_tokens_.end);
  return h;
}

void BeamPolicy::advance(Beam& now, std::span<const Extension> extensions, int64_t length) const {
  const auto beam = static_cast<size_t>(options_.beam);
  std::vector<LiveHypothesis> next;
  std::vector<size_t> num_extensions;
  if (samples()) {
    for (const Extension& extension : extensions) {
      const size_t sample = now.samples[extension.rank];
      if (extension.token == end_tokens_.end) {
        now.finished[sample] = finished(now.live[extension.rank], extension.sum, length);
      } else {
        next.push_back(extend(now.live[extension.rank], extension));
        num_extensions.push_back(sample);
      }
    }
  } else {
    const size_t seen = std::min(extensions.size(), 2 * beam);
    for (size_t i = 0; i < seen && next.size() < beam && now.finished.size() < beam; ++i) {
      const Extension& extension = extensions[i];
      if (extension.token != end_tokens_.end) next.push_back(extend(now.live[extension.rank], extension));
      else if (i < beam) now.finished.push_back(finished(now.live[extension.rank], extension.sum, length));
    }
    if (now.finished.size() >= beam) next.clear();
    if (next.empty() && now.finished.empty()) throw_no_candidates();
  }
  now.live = std::move(next);
  now.samples = std::move(num_extensions);
}

void BeamPolicy::throw_no_candidates() {
  throw Error(Exit::usage,
              Problem{"the search", "an allowed next token", "none", "lower --min-length, or leave out --no-unknown"});
}

std::vector<Hypothesis> BeamPolicy::results(Beam& beam) const {
  std::vector<Hypothesis>& found = beam.finished;
  if (!samples())
    std::stable_sort(found.begin(), found.end(),
                     [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  return std::move(found);
}

void read_sources(model::LanguageModel& model, const Sentences& sentences, int64_t width, model::Input& input) {
  const auto bound = static_cast<size_t>(model.max_length());
  size_t longest = bound > 0 ? std::min(kMinSourceLength, bound) : kMinSourceLength;
  for (const Sentence* s : sentences) longest = std::max(longest, s->source.size());
  const int64_t rows = static_cast<int64_t>(sentences.size()) * width;
  input.source = at::zeros({rows, static_cast<int64_t>(longest)}, at::kLong);
  input.lengths.encoder = at::empty({rows}, at::kLong);
  auto* to = input.source.mutable_data_ptr<int64_t>();
  auto* length = input.lengths.encoder.mutable_data_ptr<int64_t>();
  for (const Sentence* s : sentences)
    for (int64_t i = 0; i < width; ++i, to += longest) {
      std::copy(s->source.begin(), s->source.end(), to);
      *length++ = static_cast<int64_t>(s->source.size());
    }
}

}  // namespace mh::search
