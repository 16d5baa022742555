// The parameters of a model: named tensors with the traits that the rest of the system reads, so that the optimiser,
// swap, prune, resume and import need not know the layers.
//
// Names (`decoder.layers.3.self.query.weight`) are an interface: stable, written to checkpoints and checked on load.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace mh::nn {

// The initialiser of a parameter. Each parameter draws from a random stream of its own name, so that adding a parameter
// does not change the others.
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
  double a = 0;  // constant: the value; normal: standard deviation; truncated_normal: standard deviation (truncated at
                 // 2 of them); uniform: half width; xavier_uniform: gain
  double b = 0;  // normal: the mean
  static Init constant(double value) { return {Kind::constant, value}; }
  static Init normal(double deviation) { return {Kind::normal, deviation}; }
  static Init normal(double mean, double deviation) { return {Kind::normal, deviation, mean}; }
  static Init truncated_normal(double deviation) { return {Kind::truncated_normal, deviation}; }
  static Init uniform(double half_width) { return {Kind::uniform, half_width}; }
  // fan_in and fan_out are the last two axes of the tensor: weights are (out, in).
  static Init xavier_uniform(double gain = 1) { return {Kind::xavier_uniform, gain}; }
  // The identity matrix in the last two axes, rectangular if they differ.
  static Init identity() { return {Kind::identity}; }
  // A matrix of standard normal numbers, or of uniform numbers in [0, 1), with each column divided by its sum.
  static Init normal_columns() { return {Kind::normal_columns}; }
  static Init uniform_columns() { return {Kind::uniform_columns}; }
};

// The role of a parameter with respect to the heads of an attention layer.
enum class HeadRole {
  none,        // not a parameter of an attention layer
  projection,  // projection to queries, keys or values
  output,      // output projection
  gate,        // of a stage that weighs heads
  mixing,      // of a stage that mixes heads
  stage        // of any other stage of the layer
};

// The sides of a head. A score head has queries and keys; a value head has values; an output head has a block of the
// output projection. All three are the same heads unless a mixer maps between the first two, or a combiner mixes
// between the last two; then the numbers of heads of the sides may differ.
enum class HeadSide { score, value, output };

// An axis of a parameter that consists of consecutive blocks of equal size, one for each head.
struct HeadAxis {
  int64_t axis = 0;
  int64_t heads = 0;  // number of heads of the layer on this side
  HeadSide side = HeadSide::value;
  // Whether blocks survive the pruning of their heads, such as the experts that each leave out one head: a block moves
  // with its head, but pruning keeps the whole axis. So there may be more blocks than heads.
  bool survives_pruning = false;
  int64_t num_blocks = 0;                 // if blocks survive: their number; 0: the number of heads
  std::vector<int64_t> head_blocks = {};  // if blocks survive: block of each head; empty: block i belongs to head i

  int64_t blocks() const { return num_blocks > 0 ? num_blocks : heads; }
  int64_t block_of(int64_t head) const { return head_blocks.empty() ? head : head_blocks[static_cast<size_t>(head)]; }
};

// The properties of a parameter.
struct Traits {
  Init init;
  bool decay = true;                     // whether weight decay acts on it (biases and norms: false)
  bool product = false;                  // whether it enters a matrix product, so that bf16 training keeps a bf16 copy
                                         // of it
  std::vector<HeadAxis> head_axes = {};  // empty: belongs to no head; two: a matrix from heads to heads
  bool trainable = true;                 // false: drawn once, or statistics; saved, but no optimiser changes it
  HeadRole role = HeadRole::none;
};

class Parameter {
 public:
  Parameter(std::string name, at::Tensor value, Traits traits);
  const std::string& name() const { return name_; }
  const Traits& traits() const { return traits_; }
  // Returns the fp32 leaf that the optimiser updates and checkpoints hold; a trainable parameter's requires a gradient.
  at::Tensor& master() { return master_; }
  const at::Tensor& master() const { return master_; }
  // Returns the tensor that the forward pass uses: the master itself, or its bf16 copy (a leaf of its own) if bf16
  // training is on and traits().product is set.
  const at::Tensor& value() const { return copy_.defined() ? copy_ : master_; }

  // Sets whether the parameter gets gradients from now on; ignored unless it is trainable.
  void set_trained(bool on);

  // Turns the bf16 copy (precision bf16) on or off; see ParameterList::set_bf16().
  void use_copy(bool on);
  void refresh_copy();      // copy <- master, after an update
  void collect_gradient();  // master.grad += copy.grad (in fp32), copy.grad cleared

 private:
  std::string name_;
  at::Tensor master_;
  at::Tensor copy_;
  Traits traits_;
};

// Owns the parameters of a model. Modules hold references, which stay valid (deque) for the lifetime of the list.
class ParameterList {
 public:
  // Device "meta" creates tensors without storage, for counting (`--dry-run`).
  explicit ParameterList(at::Device device) : device_(device) {}
  ParameterList(const ParameterList&) = delete;
  ParameterList& operator=(const ParameterList&) = delete;

  // Sets the role of parameters that are added from now on and whose traits have none.
  void set_role(HeadRole role) { role_ = role; }
  // Adds an uninitialised parameter. Throws Error(failed) if the name is not new.
  Parameter& add(const std::string& name, std::vector<int64_t> shape, Traits traits);
  // Returns the parameter of this name, which several layers share; adds it if there is none.
  Parameter& share(const std::string& name, std::vector<int64_t> shape, Traits traits);
  // Initialises all parameters from random streams of `seed`. Bit-identical on every device.
  void initialise(uint64_t seed);

  int64_t count() const;  // number of elements of all trainable parameters
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
