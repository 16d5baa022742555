// Stochastic cross-head attention: what a permuted head reads, how often, and that nothing happens outside of training.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/text.h"
#include "fixtures/gradients.h"

using namespace mh;
using namespace mh::attention;
using namespace mh::nn;
using namespace numbers;
using namespace reference;
using layers::causal;
using Layer = layers::Shaken;

namespace {

std::string configured(const std::string& score, int64_t heads, double rate, int64_t size = 4) {
  return str("heads = ", heads, "\nhead_size = ", size, "\nscore = '", score,
             "'\npairing = 'cross-head'\n[attention.cross-head]\nrate = ", rate, "\n");
}

ForwardContext update(uint32_t number) { return {true, 3, number, 0}; }

// Block i of the parameter along its head axis becomes what block order[i] was.
void permute(Layer& l, const std::vector<std::string>& names, const std::vector<int64_t>& order) {
  c10::NoGradGuard no_gradient;
  for (const std::string& name : names) {
    nn::Parameter* p = l.parameters.find("x." + name);
    if (p == nullptr) continue;
    const nn::HeadAxis& heads = p->traits().head_axes.at(0);
    auto blocks = p->master().chunk(heads.heads, heads.axis);
    std::vector<at::Tensor> moved;
    for (int64_t from : order) moved.push_back(blocks[static_cast<size_t>(from)]);
    p->master().copy_(at::cat(moved, heads.axis));
  }
}

}  // namespace

TEST_CASE("a permuted head reads keys, values and position keys of one other head", "[cross-head]") {
  for (const char* score : {"dot-product", "relative"}) {
    const std::string toml = configured(score, 3, 1);
    Layer l(toml, 8, 5);
    at::Tensor x = normal({2, 6, 8}, 1);
    std::map<std::vector<int64_t>, int> seen;
    for (uint32_t i = 0; i < 60; ++i) {
      at::Tensor y = l.layer->forward(x, x, causal(), update(i));
      int equal = 0;
      std::vector<int64_t> order{0, 1, 2};
      do {
        // By moving the parameters of keys, or, just so, those of queries and outputs the other way.
        Layer keys(toml, 8, 5), queries(toml, 8, 5);
        permute(keys, {"key.weight", "key.bias", "value.weight", "value.bias", "relative.weight"}, order);
        std::vector<int64_t> back(3);
        for (int64_t j = 0; j < 3; ++j) back[static_cast<size_t>(order[static_cast<size_t>(j)])] = j;
        permute(queries,
                {"query.weight", "query.bias", "relative.content_bias", "relative.position_bias", "output.weight"},
                back);
        if (at::allclose(y, keys.layer->forward(x, x, causal(), {}), 1e-4, 1e-5)) {
          ++equal, ++seen[order];
          CHECK(at::allclose(y, queries.layer->forward(x, x, causal(), {}), 1e-4, 1e-5));
        }
      } while (std::next_permutation(order.begin(), order.end()));
      CHECK(equal == 1);
    }
    CHECK(seen.size() == 6);  // the identity, too
  }
}

TEST_CASE("heads are permuted at the rate, and keep their own keys with probability 1 - b + b / h", "[cross-head]") {
  // Each head's values are a constant of its own, so that the output tells what was read.
  Layer l(configured("dot-product", 4, 0.3, 1), 4, 5);
  {
    c10::NoGradGuard no_gradient;
    l["value.weight"].zero_();
    l["value.bias"].copy_(at::arange(4, at::kFloat));
    l["output.weight"].copy_(at::eye(4));
    l["output.bias"].zero_();
  }
  at::Tensor x = normal({1, 1, 4}, 1);
  const int draws = 6000;
  int moved = 0, own = 0;
  for (uint32_t i = 0; i < draws; ++i) {
    at::Tensor y = l.layer->forward(x, x, {}, update(i)).flatten().round();
    int kept = 0;
    for (int64_t j = 0; j < 4; ++j) kept += y[j].item<float>() == static_cast<float>(j);
    moved += kept < 4, own += kept;
  }
  // Four standard deviations.
  const double p = 0.3 * 23 / 24;
  CHECK(moved / double{draws} == Approx(p).margin(4 * std::sqrt(p * (1 - p) / draws)));
  // A uniform permutation has one fixed point in the mean, with variance 1.
  CHECK(own / double{draws} == Approx(4 * 0.7 + 0.3).margin(4 * std::sqrt((0.3 + 0.21 * 9) / draws)));
}

TEST_CASE("without a rate, or outside of training, cross-head is no pairing", "[cross-head]") {
  Layer never(configured("relative", 4, 0), 8, 5), always(configured("relative", 4, 1), 8, 5);
  at::Tensor x = normal({2, 6, 8}, 1);
  at::Tensor plain = always.layer->forward(x, x, causal(), {});
  int same = 0;
  for (uint32_t i = 0; i < 20; ++i) {
    ForwardContext outside = update(i);
    outside.training = false;
    CHECK(at::equal(never.layer->forward(x, x, causal(), update(i)), plain));
    CHECK(at::equal(always.layer->forward(x, x, causal(), outside), plain));
    same += at::allclose(always.layer->forward(x, x, causal(), update(i)), plain);
  }
  CHECK(same < 5);
}

TEST_CASE("heads with the same keys and values are not changed by any permutation", "[cross-head]") {
  Layer l(configured("relative", 4, 1), 8, 5);
  permute(l, {"key.weight", "key.bias", "value.weight", "value.bias", "relative.weight"}, {2, 2, 2, 2});
  at::Tensor x = normal({2, 6, 8}, 1), plain = l.layer->forward(x, x, causal(), {});
  for (uint32_t i = 0; i < 10; ++i) CHECK(at::allclose(l.layer->forward(x, x, causal(), update(i)), plain, 1e-4, 1e-5));
}

TEST_CASE("cross-head leaves the fused path possible, with the same values and gradients", "[cross-head]") {
  Layer l(configured("dot-product", 4, 1, 16), 8, 5);
  CHECK(l.layer->unfused_reasons(true).empty());
  at::Tensor x = normal({2, 6, 8}, 1);
  for (uint32_t i = 0; i < 5; ++i) {
    std::vector<at::Tensor> y, gradients;
    for (Path path : {Path::composed, Path::fused}) {
      l.layer->set_path(path);
      l.parameters.zero_gradients();
      y.push_back(l.layer->forward(x, x, causal(), update(i)));
      y.back().square().sum().backward();
      for (auto& p : l.parameters.all()) gradients.push_back(p.master().grad().clone());
    }
    CHECK(at::allclose(y[0], y[1], 1e-4, 1e-5));
    const size_t n = gradients.size() / 2;
    float largest = 0;  // that of the keys' bias is 0 but for rounding
    for (const at::Tensor& g : gradients) largest = std::max(largest, g.abs().max().item<float>());
    for (size_t g = 0; g < n; ++g) {
      INFO(l.parameters.all()[g].name());
      CHECK((gradients[g] - gradients[n + g]).abs().max().item<float>() < 1e-5F * largest);
    }
  }
}

TEST_CASE("one permutation serves the whole batch, and each layer draws its own", "[cross-head]") {
  Layer l(configured("dot-product", 4, 1), 8, 5);
  at::Tensor x = normal({5, 6, 8}, 1);
  ForwardContext rest = update(2);
  rest.row_offset = 3;
  at::Tensor part = x.narrow(0, 3, 2);
  CHECK(at::allclose(l.layer->forward(part, part, causal(), rest),
                     l.layer->forward(x, x, causal(), update(2)).narrow(0, 3, 2), 1e-4, 1e-5));
}
