// Multi-head attention as a row of stages (facts of each in stage.h):
//
//   q, k, v = projections -> pairing -> score -> mixer (logits) -> mask, normaliser -> mixer -> dropout -> · v
//           -> observer, head scale -> combiner -> output projection
//
// Source: Vaswani et al. 2017, section 3.2, with head sizes free of the width (Bhojanapalli et al. 2020).
//
// A layer without heads has no stage and gives the bias of its output projection.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attention/cache.h"
#include "attention/options.h"
#include "attention/stage.h"

namespace mh::attention {

// Which implementation of the mathematics: composed tensor operations, or the fused kernel of the tensor library.
// `fused` is an error wherever a layer would take the other: an observer, scales of score heads and masks included.
// `automatic` takes it where every stage, the shapes, the device and the forward pass allow.
enum class Path { automatic, composed, fused };
Path path_named(const std::string& name);  // "auto", "composed", "fused"

// Which reasons for the composed path the layers of a model have logged. Layers may run in several threads.
class PathLog {
 public:
  // Whether no layer of the kind has logged this reason before.
  bool first(Kind kind, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    return logged_.emplace(kind, reason).second;
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<Kind, std::string>> logged_;
};

// Scales what heads give without being parameters, for ablation. Each is (h), (B, h) or (B, h, Tq), or undefined; h of
// its side.
struct HeadScales {
  at::Tensor score;   // what score heads give to a mixer: probabilities, or logits where it mixes those
  at::Tensor value;   // head outputs, before the combiner
  at::Tensor output;  // what the combiner gives to the output projection
  // F > 0: scales are (F, h), and forward gives F blocks of rows, (F·B, Tq, d): row f·B + b is row b of block from[f]
  // of what it is given, under scale f. What does not depend on the scales is computed once. Outside of training.
  int64_t copies = 0;
  // The blocks that are given come first, in their order: 0, 1, 2, …, then any of them again. Empty: one is given.
  std::vector<int64_t> from = {};
};

class AttentionLayer {
 public:
  // `output_init` etc. come from the model's initialisation scheme.
  struct Inits {
    nn::Init query_key_value;
    nn::Init query_key_value_bias;
    nn::Init output;
  };
  AttentionLayer(nn::ParameterList& parameters, const AttentionOptions& options, const Shape& shape,
                 const Inits& inits);

  const Shape& shape() const { return shape_; }

  // query_input (B, Tq, d); key_input (B, Tk, d), the same tensor for self-attention (with memory in front, Tk > Tq)
  // -> (B, Tq, d). With a cache, self-attention appends the new keys; cross-attention fills it once and then ignores
  // key_input. An observer, which needs the composed path, is an error under Path::fused.
  at::Tensor forward(const at::Tensor& query_input, const at::Tensor& key_input, const Mask& mask,
                     const nn::ForwardContext& step, Cache* cache = nullptr, Observer* observer = nullptr);

  // Where the layer can act, all its stages considered.
  Places places() const;
  // Whether all its stages give a query the same whatever other queries its row has.
  bool by_query() const;
  // The stage that draws in training what it does (Stage::draws), in words; empty: none.
  std::string draws() const;
  // The most positions that all its stages can act on, and the key that says so; 0 where there is no bound.
  std::pair<int64_t, std::string> longest() const;

  // Whether a side's heads are something of their own: values always, the others where something mixes. None in a layer
  // that has lost all its heads.
  bool has_side(HeadSide side) const;
  Mixes mixes() const { return mixer_ != nullptr ? mixer_->mixes() : Mixes::nothing; }
  bool weighs() const { return combiner_ != nullptr && combiner_->weighs(); }

  // Whether heads of this side can be cut, and those of the others stay.
  bool can_part(HeadSide side) const;
  // The options of the layer that is left where only these heads stay; without values, or outputs, no head does.
  // Error(usage) where they cannot part from the others.
  AttentionOptions keep(const KeptHeads& kept) const;

  // What the combiner is outside of training where it folds into the output projection (Combiner::folded), and the
  // options of the layer that is left without it: head outputs side by side.
  at::Tensor folded() const;
  AttentionOptions without_combiner() const;

  // Until it is set anew. Error(usage) for a score scale in a layer that mixes no heads.
  void set_head_scales(const HeadScales& scales);
  const HeadScales& head_scales() const { return scales_; }
  // Rows that stand beside what forward() is given, as many as it gives, each beside its own.
  at::Tensor copied(const at::Tensor& x) const;

  // Layers that share `log` log each reason once for their kind.
  void set_path(Path path, std::shared_ptr<PathLog> log = std::make_shared<PathLog>()) {
    path_ = path;
    path_log_ = std::move(log);
  }
  // The path that forward() takes, with the reason where it is the composed one. What only a forward pass knows, such
  // as its mask, may still need the composed path.
  std::string describe_path(bool training) const;
  // Error(usage) with the reasons where the fused path cannot be taken.
  void require_fused(bool training) const;
  // Why the fused path cannot be taken, one reason each; empty where it can. `training`: dropout of probabilities acts.
  std::vector<std::string> unfused_reasons(bool training) const;
  // Whether it is, unless a forward pass needs the composed path.
  bool takes_fused(bool training) const;

 private:
  struct Projected {
    at::Tensor q, k, v;
    bool cached = false;  // k and v are all that the cache holds
  };
  static void take_pairs(Context& c);
  Projected project(const at::Tensor& query_input, const at::Tensor& key_input, Cache* cache);
  at::Tensor read_in_place(const Context& c, Cache& cache);
  void check_heads() const;
  nn::HeadRole role_of(const Stage& stage) const;
  at::Tensor composed(Context& context);
  at::Tensor to_mixer(Context& context, const at::Tensor& x);
  void copy_weights(Context& context) const;
  struct Choice;  // which implementation computes a forward pass, or why none of the fused ones does
  // The one place that decides.
  Choice choose(const Context& context) const;
  // Error(usage) under Path::fused; otherwise logs a reason of the pass.
  void report_composed(const Choice& choice) const;
  at::Tensor fused(Context& context, const Choice& choice);
  // By the tensor library's fused attention; `square`: causal, as many keys as queries, nothing else hidden.
  at::Tensor by_library(Context& context, bool square) const;
  [[noreturn]] void refuse_path(const char* expected, const std::vector<std::string>& reasons) const;
  // What of the layer the project's own kernels do, and the tensor library's fused attention does not.
  std::vector<std::string> left_to_the_kernel(bool training) const;
  bool drops(bool training) const { return training && options_.dropout > 0; }
  std::string probabilities_stream() const;  // of the dropout of probabilities
  at::Tensor without_heads(const at::Tensor& query_input, const at::Tensor& key_input, Cache* cache) const;
  template <class Visit>
  void each_stage(const Visit& visit) const;  // visit(stage, "mixer", "mixhead-a")

  Shape shape_;
  AttentionOptions options_;
  std::vector<std::string> unfused_reasons_;  // those that hold whether or not it trains
  Path path_ = Path::automatic;
  std::shared_ptr<PathLog> path_log_ = std::make_shared<PathLog>();
  HeadScales scales_;
  std::unique_ptr<Pairing> pairing_;
  std::unique_ptr<Score> score_;
  std::unique_ptr<Normaliser> normaliser_;
  std::unique_ptr<Mixer> mixer_;
  std::unique_ptr<Combiner> combiner_;
  nn::Parameter *query_ = nullptr, *key_ = nullptr, *value_ = nullptr, *output_ = nullptr;
  nn::Parameter *query_bias_ = nullptr, *key_bias_ = nullptr, *value_bias_ = nullptr, *output_bias_ = nullptr;
};

}  // namespace mh::attention
