// The parameters of a model: named tensors with traits. The optimiser, the swapping and pruning of heads, the resuming
// of training and the import of checkpoints read the traits instead of depending on the code of each layer.
//
// The names (`decoder.layers.3.self.query.weight`) are an interface and must not change: they are written to
// checkpoints and checked when a checkpoint is loaded.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace mh::nn {

// The initialiser of a parameter. The random stream of a parameter is derived from the parameter's name, so that adding
// a parameter to a model does not change the initial values of the others.
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
  // constant: the value; normal: standard deviation; truncated_normal: standard deviation of the normal distribution,
  // which is truncated at ±2 scale; uniform: half width; xavier_uniform: gain; other kinds: not used
  double scale = 0;
  double mean = 0;  // mean of the kind `normal`; the mean of truncated_normal is 0
  static Init constant(double value) { return {Kind::constant, value}; }
  static Init normal(double deviation) { return {Kind::normal, deviation}; }
  static Init normal(double mean, double deviation) { return {Kind::normal, deviation, mean}; }
  static Init truncated_normal(double deviation) { return {Kind::truncated_normal, deviation}; }
  static Init uniform(double half_width) { return {Kind::uniform, half_width}; }
  // Glorot's uniform distribution. fan_out and fan_in are the sizes of the last two axes, since weights are (out, in).
  static Init xavier_uniform(double gain = 1) { return {Kind::xavier_uniform, gain}; }
  // In the last two axes, a matrix with ones on the main diagonal and zeros elsewhere; it need not be square.
  static Init identity() { return {Kind::identity}; }
  // A matrix of standard normal numbers (normal_columns) or of uniform numbers in [0, 1) (uniform_columns), where each
  // column is divided by its sum.
  static Init normal_columns() { return {Kind::normal_columns}; }
  static Init uniform_columns() { return {Kind::uniform_columns}; }
};

// The role of a parameter with respect to the heads of an attention layer.
enum class HeadRole {
  none,        // not a parameter of an attention layer
  projection,  // projection to queries, keys or values
  output,      // output projection
  gate,        // parameter of a stage that weighs heads
  mixing,      // parameter of a stage that mixes heads
  stage        // parameter of any other stage of the layer
};

// The kinds of heads of an attention layer: score heads (queries and keys), value heads (values) and output heads
// (blocks of columns of the output projection). Score head, value head and output head i are one head unless a mixer
// maps score heads to value heads, or a combiner mixes value heads into output heads; then the numbers of heads of the
// three kinds may differ. In grouped-query attention, several score heads read one key/value head, a head of the fourth
// kind: keys and values then have key/value heads in place of score and value heads.
enum class HeadSide { score, value, output, key_value };

// A parameter's axis that consists of consecutive blocks of equal size, one block per head unless survives_pruning.
struct HeadAxis {
  int64_t axis = 0;
  int64_t heads = 0;  // number of heads of the kind `side` in the layer
  HeadSide side = HeadSide::value;
  // Whether pruning a head keeps the head's block, as in gates that keep one output for each head of the unpruned layer
  // (attention/pruned_heads.h). Swapping two heads swaps their blocks, but pruning leaves the axis unchanged, so there
  // may be more blocks than heads.
  bool survives_pruning = false;
  int64_t num_blocks = 0;  // number of blocks if survives_pruning; 0: one block per head
  // (heads): index of each head's block if survives_pruning; empty: block i belongs to head i.
  std::vector<int64_t> head_blocks = {};

  int64_t block_count() const { return num_blocks > 0 ? num_blocks : heads; }
  int64_t block_of(int64_t head) const { return head_blocks.empty() ? head : head_blocks[static_cast<size_t>(head)]; }
};

// The properties of a parameter, which code outside of the parameter's layer reads.
struct ParameterTraits {
  Init init;
  // Whether AdamW decays the parameter; false (biases, layer norms): only if decay_norms_and_biases is true.
  bool has_weight_decay = true;
  bool is_product_operand = false;  // whether matrix products read the parameter, so that bf16 training keeps a bf16
                                    // copy
  std::vector<HeadAxis> head_axes = {};  // empty: no axis is divided by heads; two axes: a matrix from heads to heads
  bool trainable = true;  // false: fixed random values, or running statistics; saved to checkpoints, but never
                          // updated by the optimiser
  HeadRole role = HeadRole::none;
  // Whether the forward pass looks up rows of the parameter (Parameter::lookup_table()), as in a token embedding. In
  // bf16 training, a lookup table that is also a product operand has gradients in two leaf tensors: the fp32 master and
  // the bf16 copy.
  bool is_lookup_table = false;
  // Whether training passes update the parameter with statistics of their batch, as in batch norm; then `trainable` is
  // false.
  bool is_running_statistic = false;
};

// A parameter stores its values in one of three ways:
// - the fp32 master, and in bf16 a bf16 copy of it if matrix products read the parameter (use_bf16_copy());
// - the bf16 copy, and the elements of the master that this process owns (divide_master());
// - for evaluation in bf16, only the values that forward passes read, without a master
//   (set_evaluation_values(), is_evaluation_only()).
class Parameter {
 public:
  Parameter(std::string name, at::Tensor value, ParameterTraits traits);
  const std::string& name() const { return name_; }
  const ParameterTraits& traits() const { return traits_; }
  at::IntArrayRef sizes() const { return master_.sizes(); }
  // Returns the fp32 leaf tensor, which the optimiser updates and which checkpoints store. The tensor requires a
  // gradient if the parameter is trained. Throws std::logic_error if this process does not hold the whole master.
  at::Tensor& master() {
    require_whole_master();
    return master_;
  }
  const at::Tensor& master() const {
    require_whole_master();
    return master_;
  }
  // Returns the leaf tensor that has the shape and the fp32 gradient of the parameter: the master or, in a parameter
  // without a whole master, a placeholder whose elements are all NaN and share one address. The placeholder of an
  // evaluation-only parameter never requires a gradient.
  at::Tensor& gradient_leaf() { return master_; }
  const at::Tensor& gradient_leaf() const { return master_; }
  // Returns the tensor that the forward pass uses, except for lookups: the bf16 copy, a separate leaf tensor, if there
  // is one; otherwise the fp32 master, or the table of an evaluation-only parameter that only lookups read.
  const at::Tensor& value() const {
    return bf16_copy_.defined() ? bf16_copy_ : lookup_table_.defined() ? lookup_table_ : master_;
  }
  // Returns the table of a parameter with traits().is_lookup_table, whose rows the forward pass looks up: the fp32
  // master or, in an evaluation-only parameter, the values in the type in which the checkpoint stores them: fp32, fp16
  // or bf16. Rows that are converted to fp32 after the lookup have the bits of the rows of the fp32 master, since the
  // conversion from fp16 and bf16 is exact.
  const at::Tensor& lookup_table() const { return lookup_table_.defined() ? lookup_table_ : master(); }
  bool has_bf16_copy() const { return bf16_copy_.defined(); }

  // Sets whether the parameter is trained, that is, receives gradients. Parameters with traits().trainable = false
  // are never trained. Throws std::logic_error if `enabled` is set for an evaluation-only parameter.
  void set_trained(bool enabled);

  // If `enabled`, creates the bf16 copy of a parameter with traits().is_product_operand; otherwise deletes the copy.
  // Parameters without traits().is_product_operand have no copy.
  void use_bf16_copy(bool enabled);
  void refresh_bf16_copy();  // copies the master to the bf16 copy, if there is one; called after each update

  // Releases the master except for its elements begin, …, begin + size - 1, flattened: the other elements are in other
  // processes. The parameter must be contiguous and have a bf16 copy, and the forward pass must not read the master.
  void divide_master(int64_t begin, int64_t size);
  // Returns whether this process holds the whole master, which neither divide_master() nor set_evaluation_values() has
  // released.
  bool has_whole_master() const { return !master_shard_.defined() && !is_evaluation_only_; }
  // Returns the elements (size) of the master that this process holds after divide_master().
  const at::Tensor& master_shard() const { return master_shard_; }
  // Copies master_shard() to its place in the bf16 copy; the other elements of the bf16 copy remain unchanged.
  void refresh_bf16_shard();
  // Copies `values`, which have the shape of the parameter and any floating-point type, to the master, or to the
  // elements of the master that this process holds, and to the bf16 copy. Throws std::logic_error for an
  // evaluation-only parameter.
  void set_values(const at::Tensor& values);

  // Stores the values for evaluation in bf16, on `device`, and releases the master. `stored_values`, fp32, fp16 or bf16
  // of the shape of the parameter, may be memory of a mapped file, which no function writes to:
  // - A product operand becomes evaluation-only: value() is bf16, and is `stored_values` itself if they are bf16 and on
  //   `device`. Its bits equal the bf16 copy of an fp32 master with these values.
  // - A lookup table becomes evaluation-only: lookup_table() is `stored_values` itself if they are on `device`, and
  //   shares memory with a bf16 value() of the same type.
  // - Any other parameter keeps a master, which receives the values in fp32.
  // An evaluation-only parameter cannot be trained, and all functions that need the whole master throw
  // std::logic_error. The parameter may have been without memory before (ParameterPlacement). Releases the mapped pages
  // of `stored_values` that value() does not share.
  void set_evaluation_values(const at::Tensor& stored_values, at::Device device);
  // Returns whether set_evaluation_values() has released the master.
  bool is_evaluation_only() const { return is_evaluation_only_; }
  // Releases the memory of the pages of a mapped file that value() shares (release_mapped_pages()), for a caller that
  // has made a copy of the values in another layout. The next access reads the pages from the file again.
  void release_value_pages() const;

  // Adds the bf16 copy's gradient to the master's in fp32, and clears the bf16 copy's gradient.
  void collect_gradient();

 private:
  void require_whole_master() const {
    if (!has_whole_master()) throw_without_master();
  }
  [[noreturn]] void throw_without_master() const;
  // Replaces the master by a placeholder of its shape and type, see gradient_leaf().
  void release_master(at::Device device);
  std::string name_;
  at::Tensor master_;        // without a whole master: the placeholder
  at::Tensor bf16_copy_;     // undefined: no bf16 values
  at::Tensor lookup_table_;  // undefined unless the parameter is an evaluation-only lookup table
  bool is_evaluation_only_ = false;
  at::Tensor master_shard_;  // undefined: `master_` is the whole master
  int64_t master_shard_begin_ = 0;
  ParameterTraits traits_;
};

// Where a list creates its parameters. The device "meta" creates tensors without memory, to count parameters
// (`--dry-run`); all operations of such a model compute shapes only.
struct ParameterPlacement {
  at::Device device;
  // Whether parameters have memory from the start; false: only Parameter::set_evaluation_values() gives a parameter
  // memory, on `device`, and until then the parameter is on the device "meta".
  bool allocates = true;
  ParameterPlacement(at::Device d, bool allocates_memory = true) : device(d), allocates(allocates_memory) {}
  ParameterPlacement(at::DeviceType type) : device(type) {}
};

// Owns the parameters of a model. Modules hold references to parameters; the references stay valid for the lifetime of
// the list, since a deque does not move its elements.
class ParameterList {
 public:
  explicit ParameterList(const ParameterPlacement& placement) : placement_(placement) {}
  ParameterList(const ParameterList&) = delete;
  ParameterList& operator=(const ParameterList&) = delete;

  // Sets the role that add() and share() assign, in later calls, to parameters whose traits have HeadRole::none.
  void set_role(HeadRole role) { role_ = role; }
  // Adds an uninitialised parameter. Throws Error(failed) if a parameter of this name exists, or if a head axis does
  // not fit the shape.
  Parameter& add(const std::string& name, std::vector<int64_t> shape, ParameterTraits traits);
  // Returns the parameter with this name, for parameters that several layers share; the first call adds it. Throws
  // Error(failed) if the shape differs from the first call.
  Parameter& share(const std::string& name, std::vector<int64_t> shape, ParameterTraits traits);
  // Calls set_evaluation_values(stored_values(p), device()) for each parameter p.
  void set_evaluation_values(const std::function<at::Tensor(const Parameter&)>& stored_values);
  // Initialises all parameters from random streams derived from `seed`. The values are the same on every device, bit
  // for bit.
  void initialise(uint64_t seed);

  int64_t num_trainable_elements() const;  // elements of the parameters with traits().trainable
  std::deque<Parameter>& all() { return parameters_; }
  const std::deque<Parameter>& all() const { return parameters_; }
  Parameter* find(const std::string& name);                // null if there is none
  at::Device device() const { return placement_.device; }  // device on which forward passes run

  // Call the functions of Parameter for all parameters: use_bf16_copy(enabled), refresh_bf16_copy() and
  // collect_gradient(). The first two require whole masters.
  void use_bf16_copies(bool enabled);
  void refresh_bf16_copies();
  void collect_gradients();
  // Removes the gradients of all masters (sets them to undefined tensors).
  void zero_gradients();

 private:
  ParameterPlacement placement_;
  HeadRole role_ = HeadRole::none;
  std::deque<Parameter> parameters_;
};

}  // namespace mh::nn
