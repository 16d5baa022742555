// An optimiser whose state the processes of a job divide (train.shard = "optimizer"), and the exchange of shards.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "fixtures/aten.h"
#include "fixtures/peak_memory.h"
#include "fixtures/processes.h"
#include "fixtures/runs.h"
#include "fixtures/skip.h"
#include "train/checkpointer.h"
#include "train/optimizer.h"
#include "train/run_batches.h"
#include "train/run_data.h"
#include "train/shard_exchange.h"

using namespace mh;
using namespace mh::train;
using distributed::Group;

namespace {

void require(bool condition, const char* message) {
  if (!condition) throw std::runtime_error(message);
}

// Returns different numbers between -1 and 1 for each element and each `seed`.
at::Tensor numbers_of(at::IntArrayRef shape, int64_t seed) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return (at::arange(count, at::kFloat) * 0.37 + static_cast<double>(17 * seed)).sin().view(shape);
}

// Adds parameters of different sizes: product operands, a lookup table that is also a product operand, fp32 vectors,
// and a parameter that is not trainable.
void add_parameters(nn::ParameterList& parameters) {
  const nn::Init init = nn::Init::normal(1);
  nn::ParameterTraits operand{init, true, true}, table = operand, fixed{init};
  table.is_lookup_table = true;
  fixed.trainable = false;
  parameters.add("table", {11, 6}, table);
  parameters.add("fixed", {5}, fixed);
  parameters.add("weight", {6, 6}, operand);
  parameters.add("bias", {6}, {init, false});
  parameters.add("rare", {3, 6}, operand);
  parameters.add("scale", {1}, {init});
  parameters.add("last", {6, 13}, operand);
}

// Sets gradients of update `update`. In every second update, "rare" and "scale" have no gradient.
void set_gradients(nn::ParameterList& parameters, int64_t update) {
  int64_t seed = 10 * update;
  for (nn::Parameter& p : parameters.all()) {
    const bool has_gradient = p.traits().trainable && (update % 2 == 0 || (p.name() != "rare" && p.name() != "scale"));
    p.gradient_leaf().mutable_grad() = has_gradient ? numbers_of(p.gradient_leaf().sizes(), ++seed) : at::Tensor();
  }
}

// Checks that `sharded` has the parameters, the moments and the numbers of steps of `plain`, bit for bit.
void check_equal(nn::ParameterList& plain_parameters, Optimizer& plain, nn::ParameterList& parameters,
                 Optimizer& sharded) {
  for (const nn::Parameter& p : plain_parameters.all()) {
    const nn::Parameter& q = *parameters.find(p.name());
    require(at::equal(p.value(), q.value()), "different values of a parameter");
    if (q.has_whole_master()) require(at::equal(p.master(), q.master()), "different masters of a parameter");
  }
  const auto flat_equal = [](const TensorShard& shard, const at::Tensor& whole) {
    return shard.shape == whole.sizes().vec() &&
           at::equal(shard.elements, whole.detach().view(-1).narrow(0, shard.begin, shard.elements.numel()));
  };
  const auto moments = plain.moments();
  const auto moment_shards = sharded.moment_shards();
  require(moments.size() == moment_shards.size(), "another number of moments");
  for (size_t i = 0; i < moments.size(); ++i) {
    require(moments[i].first == moment_shards[i].name, "another order of the moments");
    require(flat_equal(moment_shards[i], moments[i].second), "different moments");
  }
  for (const TensorShard& shard : sharded.master_shards())
    require(flat_equal(shard, plain_parameters.find(shard.name)->master()), "different elements of a divided master");
  require(plain.steps() == sharded.steps(), "different numbers of steps");
}

}  // namespace

TEST_CASE("sharded optimiser: parameters and moments have the bits of an optimiser that is not sharded") {
  for (const std::string rule : {"adamw", "sgd", "nag"})
    for (const bool is_bf16 : {false, true})
      for (const int num_processes : {2, 3}) {
        CAPTURE(rule, is_bf16, num_processes);
        CHECK_NOTHROW(in_each_process(num_processes, [&](const Group& group) {
          TrainOptions options;
          options.optimizer.rule = rule;
          options.optimizer.weight_decay = 0.1;
          const ParameterGroups groups;
          nn::ParameterList plain_parameters(at::kCPU), parameters(at::kCPU);
          for (nn::ParameterList* list : {&plain_parameters, &parameters}) add_parameters(*list), list->initialise(5);
          Optimizer plain(plain_parameters, options, groups);
          TrainOptions shard_options = options;
          shard_options.shard = "optimizer";
          Optimizer sharded(parameters, shard_options, groups, group);
          plain_parameters.use_bf16_copies(is_bf16), parameters.use_bf16_copies(is_bf16);
          sharded.divide_masters();
          require(sharded.is_sharded(), "expected a sharded optimiser");
          require(sharded.master_shards().size() == (is_bf16 ? 3 : 0), "another number of divided masters");
          int64_t num_own_elements = 0;
          for (const TensorShard& shard : sharded.moment_shards()) num_own_elements += shard.elements.numel();
          const int64_t num_moments = (rule == "adamw" ? 2 : 1) * parameters.num_trainable_elements();
          require(num_own_elements <= num_moments / num_processes + 2, "more moments than the own shard has");
          for (int64_t update = 0; update < 4; ++update) {
            set_gradients(plain_parameters, update), set_gradients(parameters, update);
            require(plain.gradient_norm(0.5) == sharded.gradient_norm(0.5), "different gradient norms");
            plain.step(0.01 * static_cast<double>(update + 1), 0.5);
            sharded.step(0.01 * static_cast<double>(update + 1), 0.5);
            check_equal(plain_parameters, plain, parameters, sharded);
          }
        }));
      }
}

TEST_CASE("sharded optimiser: some processes own no element if there are more processes than elements") {
  CHECK_NOTHROW(in_each_process(3, [](const Group& group) {
    TrainOptions options;
    options.shard = "optimizer";
    const ParameterGroups groups;
    nn::ParameterList plain_parameters(at::kCPU), parameters(at::kCPU);
    for (nn::ParameterList* list : {&plain_parameters, &parameters})
      list->add("w", {2}, {nn::Init::normal(1)}), list->initialise(5);
    Optimizer plain(plain_parameters, options, groups), sharded(parameters, options, groups, group);
    for (int64_t update = 0; update < 2; ++update) {
      set_gradients(plain_parameters, update), set_gradients(parameters, update);
      plain.step(0.01, 1), sharded.step(0.01, 1);
      check_equal(plain_parameters, plain, parameters, sharded);
    }
  }));
}

TEST_CASE("sharded optimiser: a divided master and the whole moments cannot be read") {
  CHECK_NOTHROW(in_each_process(2, [](const Group& group) {
    TrainOptions options;
    options.shard = "optimizer";
    const ParameterGroups groups;
    nn::ParameterList parameters(at::kCPU);
    add_parameters(parameters);
    parameters.initialise(5);
    parameters.use_bf16_copies(true);
    Optimizer optimizer(parameters, options, groups, group);
    optimizer.divide_masters();
    const auto is_refused = [](const auto& access) {
      try {
        access();
      } catch (const std::logic_error&) {
        return true;
      }
      return false;
    };
    require(is_refused([&] { parameters.find("weight")->master(); }), "expected an error of master()");
    require(is_refused([&] { parameters.refresh_bf16_copies(); }), "expected an error of refresh_bf16_copies()");
    require(is_refused([&] { parameters.use_bf16_copies(false); }), "expected an error of use_bf16_copies()");
    require(is_refused([&] { optimizer.moments(); }), "expected an error of moments()");
    require(!is_refused([&] { parameters.find("table")->master(); }), "expected the whole master of a lookup table");
  }));
}

TEST_CASE("shard exchange: gathers shards of several element types through a small buffer") {
  for (const int64_t buffer_bytes : {1, 10, 1000})
    for (const int num_processes : {2, 3})
      CHECK_NOTHROW(in_each_process(num_processes, [&](const Group& group) {
        const std::vector<int64_t> sizes{5, 1, 0, 23, 2};
        const OptimizerShards shards(sizes, group.size());
        ShardExchange exchange(group, buffer_bytes);
        for (int pass = 0; pass < 2; ++pass) {
          std::vector<ShardExchange::Values> values;
          std::vector<at::Tensor> expected;
          for (size_t i = 0; i < sizes.size(); ++i) {
            if (i == 1) continue;  // this parameter is not exchanged
            const at::Tensor whole =
                numbers_of({sizes[i]}, static_cast<int64_t>(i) + pass).to(i % 2 == 0 ? at::kFloat : at::kBFloat16);
            const ElementRange own_range = shards.of(i, group.rank());
            values.push_back({i, at::full_like(whole, -2)});
            values.back()
                .tensor.narrow(0, own_range.begin, own_range.size())
                .copy_(whole.narrow(0, own_range.begin, own_range.size()));
            expected.push_back(whole);
          }
          exchange.all_gather(shards, values);
          for (size_t i = 0; i < values.size(); ++i)
            require(at::equal(values[i].tensor, expected[i]), "wrong elements after all_gather()");
          at::Tensor whole = at::empty({0}, at::kFloat);
          for (size_t i = 0; i < sizes.size(); ++i) {
            const at::Tensor source = numbers_of({sizes[i]}, static_cast<int64_t>(i));
            const ElementRange own_range = shards.of(i, group.rank());
            gather_shards(group, shards, i, source.narrow(0, own_range.begin, own_range.size()),
                          std::chrono::minutes(1), whole);
            require(!group.is_main() || at::equal(whole, source), "wrong elements after gather_shards()");
          }
        }
      }));
}

TEST_CASE("shard exchange: the buffers, with the copies of Gloo, stay within their limit") {
  if (!reset_peak_memory()) SKIP("peak memory cannot be reset on this system");
  constexpr int64_t buffer_bytes = 32 << 20, num_elements = 16 << 20;
  CHECK_NOTHROW(in_each_process(2, [&](const Group& group) {
    const OptimizerShards shards({num_elements}, group.size());
    const ShardExchange exchange(group, buffer_bytes);
    const at::Tensor values = at::full({num_elements}, group.rank(), at::kFloat);
    group.barrier();
    if (group.is_main()) reset_peak_memory();
    const int64_t initial_kb = peak_memory_kb();
    group.barrier();
    exchange.all_gather(shards, {{0, values}});
    group.barrier();
    require(values.sum().item<double>() == num_elements / 2, "wrong elements after all_gather()");
    // Both processes are threads of this program. An operation of Gloo has 2 MiB of its own.
    const bool is_within_limit = peak_memory_kb() - initial_kb <= (2 * buffer_bytes + (8 << 20)) / 1024;
    require(!group.is_main() || is_within_limit, "too much memory in all_gather()");
  }));
}

TEST_CASE("shard exchange: a long wait for rank 0 ends within the timeout of the group if rank 0 is stopped") {
  const std::chrono::milliseconds timeout(1500);
  std::string message;
  std::atomic<bool> has_ended = false;
  const auto start = std::chrono::steady_clock::now();
  in_each_process(
      2,
      [&](const Group& group) {
        if (group.is_main()) {
          while (!has_ended) std::this_thread::sleep_for(std::chrono::milliseconds(10));
          return;
        }
        const OptimizerShards shards({1000}, group.size());
        at::Tensor whole;
        try {
          gather_shards(group, shards, 0, at::ones({500}), std::chrono::hours(1), whole);
        } catch (const Error& error) {
          message = error.what();
        }
        has_ended = true;
      },
      timeout, std::set<int>{1});
  CHECK_THAT(message, Catch::Contains("no heartbeat of rank 0"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}

TEST_CASE("sharded optimiser: a training state has the bytes of a state that is not sharded, and restores shards") {
  const Folder folder;
  runs::write_text(folder.file("t.mhs"), runs::repeating_tokens(200));
  for (const bool is_bf16 : {false, true})
    for (const int num_processes : {2, 3}) {
      CAPTURE(is_bf16, num_processes);
      CHECK_NOTHROW(in_each_process(num_processes, [&](const Group& group) {
        RunConfig config = runs::config_of(folder, "");
        const RunData data = open_data(config);
        const auto batches = batches_of(config, data.train_shards, data.tokenizers);
        TrainOptions shard_options = config.train;
        shard_options.shard = "optimizer";
        const std::string toml = "# a configuration";
        // One run: a model with its optimiser, memories, training state and checkpointer.
        struct Run {
          std::unique_ptr<model::LanguageModel> model;
          std::unique_ptr<Optimizer> optimizer;
          std::vector<model::Memories> memories{};
          TrainState state{};
          std::unique_ptr<Checkpointer> checkpointer{};
        };
        const auto make_run = [&](Run& run, const TrainOptions& options, uint64_t seed) {
          run.model = model::build_language_model(config.model, model::vocabulary_sizes_of(data.tokenizers), at::kCPU);
          nn::ParameterList& parameters = run.model->parameters();
          parameters.initialise(seed);
          run.optimizer = std::make_unique<Optimizer>(parameters, options, config.groups, group);
          parameters.use_bf16_copies(is_bf16);
          run.optimizer->divide_masters();
          run.checkpointer = std::make_unique<Checkpointer>(
              toml, data.tokenizers,
              TrainingObjects{*run.model, *run.optimizer, config.procedures, run.memories, run.state, *batches, group});
        };
        const auto train = [&](Run& run, int64_t update) {
          set_gradients(run.model->parameters(), update);
          run.optimizer->step(0.01, 1);
          run.model->parameters().zero_gradients();
          run.state.update = update + 1;
        };
        // `plain` and `sharded` start from the same weights, and their updates have the same gradients. `resumed`
        // starts from other weights and then loads the training state of `sharded`.
        Run plain, sharded, resumed;
        make_run(plain, config.train, 5), make_run(sharded, shard_options, 5), make_run(resumed, shard_options, 6);
        for (int64_t update = 0; update < 2; ++update) train(plain, update), train(sharded, update);
        const std::string plain_path = folder.file("plain"), sharded_path = folder.file("sharded");
        plain.checkpointer->save_state(plain_path, "test");
        sharded.checkpointer->save_state(sharded_path, "test");
        require(read_text_file(plain_path) == read_text_file(sharded_path), "different bytes of the training states");
        plain.checkpointer->save_weights(plain_path + "-weights");
        sharded.checkpointer->save_weights(sharded_path + "-weights");
        require(read_text_file(plain_path + "-weights") == read_text_file(sharded_path + "-weights"),
                "different bytes of the weights");
        resumed.checkpointer->load_state(io::Checkpoint(sharded_path), config.model.model.width);
        train(plain, 2), train(resumed, 2);
        check_equal(plain.model->parameters(), *plain.optimizer, resumed.model->parameters(), *resumed.optimizer);
      }));
    }
}
