// A model's parameters: named tensors with what the rest of the system must know of each, so that the optimiser, swap,
// prune, resume and import never learn what a layer is.
//
// Names (`decoder.layers.3.self.query.weight`) are an interface: stable, written to checkpoints, checked on load.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace mh::nn {

// How a parameter gets its first values. Each draws from a random stream of its own name, so that adding a parameter
// changes no other one.
struct Init {
  enum class Kind {
    constant,
    normal,
    truncated_normal,
    uniform,
    xavier_uniform,
    identity,
    normal_columns,
    uniform_columns
  };
  Kind kind = Kind::constant;
  double a = 0;  // constant: the value; normal: standard deviation; truncated_normal: standard deviation (cut at 2 of
                 // them); uniform: half width; xavier_uniform: gain
  double b = 0;  // normal: the mean
  static Init constant(double value) { return {Kind::constant, value}; }
  static Init normal(double deviation) { return {Kind::normal, deviation}; }
  static Init normal(double mean, double deviation) { return {Kind::normal, deviation, mean}; }
  static Init truncated_normal(double deviation) { return {Kind::truncated_normal, deviation}; }
  static Init uniform(double half_width) { return {Kind::uniform, half_width}; }
  // fan_in and fan_out are the last two axes of the tensor: weights are (out, in).
  static Init xavier_uniform(double gain = 1) { return {Kind::xavier_uniform, gain}; }
  // Of the last two axes, as far as they reach.
  static Init identity() { return {Kind::identity}; }
  // A matrix of standard normal numbers, or of numbers from [0, 1), each column divided by its sum.
  static Init normal_columns() { return {Kind::normal_columns}; }
  static Init uniform_columns() { return {Kind::uniform_columns}; }
};

// The role of a parameter for the heads of an attention layer.
enum class HeadRole {
  none,        // it is of no attention layer
  projection,  // makes their queries, keys and values
  output,      // takes what they give into the layer's output
  gate,        // is of a stage that weighs them,
  mixing,      // of one that mixes them,
  stage        // or of any other stage of the layer
};

// The sides of a head. A score head has queries and keys; a value head values; an output head a block of the output
// projection. They are one thing, unless a mixer is between the first two or a combiner that mixes between the last;
// then a layer may have other numbers of each.
enum class HeadSide { score, value, output };

// An axis of a parameter that is a row of equal consecutive blocks, each of one head.
struct HeadAxis {
  int64_t axis = 0;
  int64_t heads = 0;  // of the layer, on this side
  HeadSide side = HeadSide::value;
  // Whether blocks outlive their heads, such as an expert that leaves a head out: a block goes with a head that moves,
  // and the axis stays whole where heads are cut. So there may be more blocks than heads.
  bool stays = false;
  int64_t all = 0;                   // blocks of what stays; 0: as many as heads
  std::vector<int64_t> places = {};  // of each head the block, of what stays; none: block i is of head i

  int64_t blocks() const { return all > 0 ? all : heads; }
  int64_t block_of(int64_t head) const { return places.empty() ? head : places[static_cast<size_t>(head)]; }
};

struct Traits {
  Init init;
  bool decay = true;                     // weight decay may act on it (biases and norms: false)
  bool product = false;                  // enters a matrix product, so bf16 training keeps a bf16 copy of it
  std::vector<HeadAxis> head_axes = {};  // none: it is of no head; two: a matrix from heads to heads
  bool trainable = true;                 // false: drawn once, or statistics; saved, but no optimiser changes it
  HeadRole role = HeadRole::none;
};

class Parameter {
 public:
  Parameter(std::string name, at::Tensor value, Traits traits);
  const std::string& name() const { return name_; }
  const Traits& traits() const { return traits_; }
  // fp32 leaf that requires a gradient, where it is trainable: what the optimiser changes and what a checkpoint holds.
  at::Tensor& master() { return master_; }
  const at::Tensor& master() const { return master_; }
  // The tensor that the forward pass uses: the master itself, or its bf16 copy (a leaf of its own) when bf16 training
  // is on and traits().product is set.
  const at::Tensor& value() const { return copy_.defined() ? copy_ : master_; }

  // Whether it gets gradients now; only for trainable ones.
  void set_trained(bool on);

  // Turns the bf16 copy on (precision bf16) or off; see ParameterList.
  void use_copy(bool on);
  void refresh_copy();      // copy <- master, after the optimiser changed it
  void collect_gradient();  // master.grad += copy.grad (in fp32), copy.grad cleared

 private:
  std::string name_;
  at::Tensor master_;
  at::Tensor copy_;
  Traits traits_;
};

// Owns a model's parameters; modules hold references, which stay valid (deque) as long as the list lives.
class ParameterList {
 public:
  // device "meta" makes tensors without storage: for counting (`--dry-run`).
  explicit ParameterList(at::Device device) : device_(device) {}
  ParameterList(const ParameterList&) = delete;
  ParameterList& operator=(const ParameterList&) = delete;

  // Sets the role of parameters that are added from now on, where their traits have none.
  void set_role(HeadRole role) { role_ = role; }
  // Adds an uninitialised parameter. The name must be new.
  Parameter& add(const std::string& name, std::vector<int64_t> shape, Traits traits);
  // The same, or the parameter of this name that is there already: one that several layers share.
  Parameter& share(const std::string& name, std::vector<int64_t> shape, Traits traits);
  // Draws every parameter's first values from streams of `seed`. The same bits on every device.
  void initialise(uint64_t seed);

  int64_t count() const;  // numbers in all trainable parameters
  std::deque<Parameter>& all() { return parameters_; }
  const std::deque<Parameter>& all() const { return parameters_; }
  Parameter* find(const std::string& name);
  at::Device device() const { return device_; }

  void set_bf16(bool on);
  void refresh_copies();
  void collect_gradients();
  void zero_gradients();

 private:
  at::Device device_;
  HeadRole role_ = HeadRole::none;
  std::deque<Parameter> parameters_;
};

}  // namespace mh::nn
