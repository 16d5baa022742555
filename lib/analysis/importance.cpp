#include "analysis/importance.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace mh::analysis {

Registry<Measure>& measures() {
  static Registry<Measure> registry("measure");
  return registry;
}

void Measure::reset() {
  means_.clear();
  lengths_ = at::Tensor();
}

void Measure::add(const attention::Shape& shape, const at::Tensor& sums, double count) {
  Mean& mean = means_[shape.kind][shape.layer];
  const at::Tensor now = sums.detach().to(at::kCPU, at::kDouble);
  mean.sums = mean.sums.defined() ? mean.sums + now : now;
  mean.count += count;
}

int64_t Measure::real_queries(int64_t row, int64_t queries) const {
  return lengths_.defined() ? std::min(queries, lengths_[row].item<int64_t>()) : queries;
}

std::map<Kind, LayerScores> Measure::scores() const {
  std::map<Kind, LayerScores> all;
  for (const auto& [kind, layers] : means_)
    for (const auto& [layer, mean] : layers) {
      LayerScores& scores = all[kind];
      scores.resize(std::max(scores.size(), static_cast<size_t>(layer) + 1));
      for (int64_t head = 0; head < mean.sums.size(0); ++head) {
        const double score = mean.sums[head].item<double>() / std::max(mean.count, 1.0);
        if (!std::isfinite(score))
          throw Error(Exit::failed, Problem{str(name_of(kind), ", layer ", layer, ", head ", head),
                                            "a finite importance", str(score), "the model has diverged"});
        scores[static_cast<size_t>(layer)].push_back(score);
      }
    }
  return all;
}

namespace {

// The mean distance to the other heads; x (B, h, Tq, n).
class Distance : public Measure {
 protected:
  void measure(const attention::Shape& shape, const at::Tensor& x) {
    c10::NoGradGuard no_gradient;
    const int64_t h = x.size(1);
    for (int64_t b = 0; b < x.size(0); ++b) {
      const int64_t real = real_queries(b, x.size(2));
      if (real == 0) continue;
      const at::Tensor heads = x[b].narrow(1, 0, real).to(at::kDouble).flatten(1);
      // Differences first: by products, near distances would be lost in rounding.
      constexpr int64_t kByDifferences = 2;
      const at::Tensor apart = at::cdist(heads, heads, 2, kByDifferences);  // (h, h)
      add(shape, apart.sum(1) / static_cast<double>(std::max<int64_t>(1, h - 1)), 1);
    }
  }
};

class ProbabilityDistance : public Distance {
 public:
  void probabilities(const attention::Shape& shape, const at::Tensor& p) override { measure(shape, p); }
};

class OutputDistance : public Distance {
 public:
  at::Tensor head_outputs(const attention::Shape& shape, const at::Tensor& z) override {
    measure(shape, z);
    return z;
  }
};

class Confidence : public Measure {
 public:
  void probabilities(const attention::Shape& shape, const at::Tensor& p) override {
    c10::NoGradGuard no_gradient;
    const at::Tensor largest = p.amax(-1).to(at::kDouble);  // (B, h, Tq)
    for (int64_t b = 0; b < p.size(0); ++b) {
      const int64_t real = real_queries(b, p.size(2));
      add(shape, largest[b].narrow(1, 0, real).sum(1), static_cast<double>(real));
    }
  }
};

const Registered<Measure, ProbabilityDistance> probability_distance(measures(), "avg-l2",
                                                                    "distance of attention to that of other heads");
const Registered<Measure, OutputDistance> output_distance(measures(), "avg-l2-outputs",
                                                          "distance of outputs to those of other heads");
const Registered<Measure, Confidence> confidence(measures(), "confidence", "mean of the largest probability");

}  // namespace
}  // namespace mh::analysis
