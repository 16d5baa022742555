#include "task/scoring.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace mh::task {

std::vector<Chunk> make_chunks(int64_t tokens, int64_t block, int64_t context) {
  if (context >= block)
    throw Error(Exit::usage, Problem{"--context", str("less than the block of ", block, " tokens"), str(context),
                                     "raise --block, or lower --context"});
  std::vector<Chunk> chunks;
  for (int64_t scored = 0; scored < tokens; scored += block - context) {
    const int64_t first = std::max<int64_t>(0, scored - context);
    chunks.push_back({first, scored - first, std::min(tokens, scored + block - context) - first});
  }
  return chunks;
}

Score score_text(model::LanguageModel& model, const std::vector<int32_t>& tokens, int32_t end_of_line,
                 const ScoringOptions& options, const EachToken& each) {
  c10::NoGradGuard no_gradient;
  auto chunks = make_chunks(static_cast<int64_t>(tokens.size()), options.block, options.context);
  const auto batch =
      static_cast<size_t>(options.batch > 0 ? options.batch : std::max<int64_t>(1, 4096 / options.block));
  Progress progress("score", static_cast<int64_t>(chunks.size()), "passes");
  const at::Device device = model.parameters().device();
  Score score;
  for (size_t begin = 0; begin < chunks.size(); begin += batch) {
    const size_t rows = std::min(batch, chunks.size() - begin);
    int64_t longest = 0;
    for (size_t r = 0; r < rows; ++r) longest = std::max(longest, chunks[begin + r].length);
    // Short rows are filled up behind their end, where a causal model does not look.
    at::Tensor inputs = at::full({static_cast<int64_t>(rows), longest}, static_cast<int64_t>(end_of_line), at::kLong);
    at::Tensor targets = at::full({static_cast<int64_t>(rows), longest}, -1, at::kLong);
    for (size_t r = 0; r < rows; ++r) {
      const Chunk& c = chunks[begin + r];
      auto* in = inputs.mutable_data_ptr<int64_t>() + static_cast<int64_t>(r) * longest;
      auto* out = targets.mutable_data_ptr<int64_t>() + static_cast<int64_t>(r) * longest;
      for (int64_t t = 0; t < c.length; ++t) {
        const auto at = static_cast<size_t>(c.first + t);
        if (at > 0) in[t] = tokens[at - 1];
        if (t >= c.scored) out[t] = tokens[at];
      }
    }
    at::Tensor log_p =
        model.target_log_probabilities(model.hidden(inputs.to(device), {}), targets).to(at::kCPU).contiguous();
    const auto* p = log_p.const_data_ptr<float>();
    for (size_t r = 0; r < rows; ++r) {
      const Chunk& c = chunks[begin + r];
      for (int64_t t = c.scored; t < c.length; ++t) {
        const double value = static_cast<double>(p[static_cast<int64_t>(r) * longest + t]);
        score.nll -= value;
        ++score.tokens;
        if (each) each(c.first + t, tokens[static_cast<size_t>(c.first + t)], value);
      }
    }
    progress.update(static_cast<int64_t>(begin + rows));
  }
  return score;
}

}  // namespace mh::task
