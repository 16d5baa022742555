#include "search/beams.h"

#include <algorithm>
#include <cmath>

#include "attention/fused/fused_cpu.h"
#include "base/error.h"
#include "base/text.h"
#include "nn/aten.h"

namespace mh::search {

namespace {

// Returns the length, in tokens, to which shorter sources are padded, unless the model has fewer positions. Attention
// with at most max_decode_queries() queries uses another kernel, so without this padding the kernel, and the rounding,
// would depend on the longest source in the batch.
size_t min_padded_length() { return static_cast<size_t>(attention::max_decode_queries()) + 1; }

// Returns the live hypothesis `parent` with the token of `extension` appended.
LiveHypothesis extend(const LiveHypothesis& parent, const Extension& extension) {
  LiveHypothesis p{parent.tokens, extension.log_probability, parent.slot};
  p.tokens.push_back(extension.token);
  return p;
}

}  // namespace

std::vector<Beam> BeamPolicy::initial_beams(model::LanguageModel& model, const Sentences& sentences) const {
  std::vector<Beam> beams;
  for (size_t i = 0; i < sentences.size(); ++i) {
    const Sentence& s = *sentences[i];
    Beam beam{i, max_hypothesis_length(options_, model, static_cast<int64_t>(s.source.size())), {}, {}, {}, {}};
    if (const auto prefix_length = static_cast<int64_t>(s.prefix.size()); prefix_length > beam.max_length)
      refuse_usage(str("the prefix of sentence ", s.index + 1),
                   str("at most ", count_of(beam.max_length, "token"), ", the maximum length of a hypothesis"),
                   str(prefix_length), "shorten the prefix, or raise --max-length-b");
    beam.live_hypotheses.resize(static_cast<size_t>(std::max<int64_t>(1, sampling_.samples)));
    for (size_t k = 0; k < beam.live_hypotheses.size(); ++k) {
      beam.live_hypotheses[k].slot = static_cast<int64_t>(k);
      if (!is_sampling()) continue;
      beam.sample_numbers.push_back(k);
      beam.random_sequences.emplace_back(RandomStream(static_cast<uint64_t>(sampling_.seed), "translate"),
                                         static_cast<uint32_t>(s.index), static_cast<uint32_t>(k));
    }
    if (is_sampling()) beam.finished_hypotheses.resize(static_cast<size_t>(sampling_.samples));
    beams.push_back(std::move(beam));
  }
  return beams;
}

int32_t BeamPolicy::forced_token(const Sentence& sentence, const Beam& beam, int64_t length) const {
  if (length < static_cast<int64_t>(sentence.prefix.size())) return sentence.prefix[static_cast<size_t>(length)];
  return length >= beam.max_length ? special_tokens_.end_id : -1;
}

std::vector<int32_t> BeamPolicy::excluded_tokens(int64_t length) const {
  std::vector<int32_t> tokens;
  if (length < options_.min_length) tokens.push_back(special_tokens_.end_id);
  if (options_.no_unknown && special_tokens_.unknown_id >= 0) tokens.push_back(special_tokens_.unknown_id);
  if (special_tokens_.start_id >= 0 && special_tokens_.start_id != special_tokens_.end_id)
    tokens.push_back(special_tokens_.start_id);
  return tokens;
}

Hypothesis BeamPolicy::finish(const LiveHypothesis& p, double log_probability, int64_t length) const {
  Hypothesis h{p.tokens, log_probability,
               log_probability / std::pow(static_cast<double>(length + 1), options_.length_penalty)};
  h.tokens.push_back(special_tokens_.end_id);
  return h;
}

void BeamPolicy::advance(Beam& beam, std::span<const Extension> extensions, int64_t length) const {
  const auto beam_size = static_cast<size_t>(options_.beam);
  std::vector<LiveHypothesis> new_live_hypotheses;
  std::vector<size_t> new_sample_numbers;
  if (is_sampling()) {
    for (const Extension& extension : extensions) {
      const size_t sample = beam.sample_numbers[extension.rank];
      if (extension.token == special_tokens_.end_id) {
        beam.finished_hypotheses[sample] =
            finish(beam.live_hypotheses[extension.rank], extension.log_probability, length);
      } else {
        new_live_hypotheses.push_back(extend(beam.live_hypotheses[extension.rank], extension));
        new_sample_numbers.push_back(sample);
      }
    }
  } else {
    const size_t num_candidates = std::min(extensions.size(), 2 * beam_size);
    for (size_t i = 0;
         i < num_candidates && new_live_hypotheses.size() < beam_size && beam.finished_hypotheses.size() < beam_size;
         ++i) {
      const Extension& extension = extensions[i];
      if (extension.token != special_tokens_.end_id)
        new_live_hypotheses.push_back(extend(beam.live_hypotheses[extension.rank], extension));
      else if (i < beam_size)
        beam.finished_hypotheses.push_back(
            finish(beam.live_hypotheses[extension.rank], extension.log_probability, length));
    }
    if (beam.finished_hypotheses.size() >= beam_size) new_live_hypotheses.clear();
    if (new_live_hypotheses.empty() && beam.finished_hypotheses.empty()) throw_no_candidates();
  }
  beam.live_hypotheses = std::move(new_live_hypotheses);
  beam.sample_numbers = std::move(new_sample_numbers);
}

void BeamPolicy::throw_no_candidates() {
  refuse_usage("the search", "an allowed next token", "only excluded tokens",
               "lower --min-length, or leave out --no-unknown");
}

std::vector<Hypothesis> BeamPolicy::take_results(Beam& beam) const {
  std::vector<Hypothesis>& hypotheses = beam.finished_hypotheses;
  if (!is_sampling())
    std::stable_sort(hypotheses.begin(), hypotheses.end(),
                     [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  return std::move(hypotheses);
}

void set_sources(model::LanguageModel& model, const Sentences& sentences, int64_t rows_per_sentence,
                 model::Input& input) {
  const auto model_limit = static_cast<size_t>(model.max_length());
  size_t padded_length = model_limit > 0 ? std::min(min_padded_length(), model_limit) : min_padded_length();
  for (const Sentence* s : sentences) padded_length = std::max(padded_length, s->source.size());
  const int64_t num_rows = static_cast<int64_t>(sentences.size()) * rows_per_sentence;
  input.source = at::zeros({num_rows, static_cast<int64_t>(padded_length)}, at::kLong);
  input.lengths.encoder = at::empty({num_rows}, at::kLong);
  auto* source_data = input.source.mutable_data_ptr<int64_t>();
  auto* length = input.lengths.encoder.mutable_data_ptr<int64_t>();
  for (const Sentence* s : sentences)
    for (int64_t i = 0; i < rows_per_sentence; ++i, source_data += padded_length) {
      std::copy(s->source.begin(), s->source.end(), source_data);
      *length++ = static_cast<int64_t>(s->source.size());
    }
}

}  // namespace mh::search
