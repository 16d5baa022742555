#include "distributed/join.h"

#include <c10/util/Logging.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "distributed/call_within.h"
#include "distributed/connections.h"
#include "distributed/gloo_backend.h"
#include "distributed/nccl_backend.h"
#include "nn/aten.h"

namespace mh::distributed {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

constexpr milliseconds kPollInterval{50};
// Time by which call_within() exceeds the time limits of the called function, whose errors are more precise.
constexpr milliseconds kAnswerMargin{2000};
// Maximum time for which rank 0 serves the store after an error, so that the other processes can read why the job
// cannot start.
constexpr milliseconds kRefusalWait{5000};
// What an error reports as found if the key-value store does not answer within the time limit.
constexpr const char* kNoAnswer = "no answer";

// The properties of a process that the process writes to the store.
struct ProcessDescription {
  int rank = 0, size = 1;
  std::string job, device, build;
  std::string processors;  // the processors of the machine that the process may use
  std::string machine;     // identifies the machine, and differs after a restart of the machine
};

std::string machine_id() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  std::string boot_id;
  try {
    boot_id = trim(read_text_file("/proc/sys/kernel/random/boot_id"));
  } catch (const Error&) {
    // Without /proc, the host name alone identifies the machine.
  }
  return str(name, " ", boot_id);
}

// Returns the indices of the processors that the process may use; "" if they are unknown.
std::string processor_list() {
  cpu_set_t cpus;
  std::vector<std::string> indices;
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return "";
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &cpus)) indices.push_back(std::to_string(i));
  return mh::join(indices, ",");
}

std::string key_of(int rank, const char* property) { return str("process/", rank, "/", property); }

constexpr const char* kLastProperty = "machine";  // the property that write_description() writes last

void write_description(c10d::Store& store, const ProcessDescription& d) {
  store.set(key_of(d.rank, "size"), std::to_string(d.size));
  store.set(key_of(d.rank, "job"), d.job);
  store.set(key_of(d.rank, "device"), d.device);
  store.set(key_of(d.rank, "build"), d.build);
  store.set(key_of(d.rank, "processors"), d.processors);
  store.set(key_of(d.rank, kLastProperty), d.machine);
}
// Reads the description of a process that has written its last property.
ProcessDescription read_description(c10d::Store& store, int rank) {
  return {rank,
          std::stoi(store.get_to_str(key_of(rank, "size"))),
          store.get_to_str(key_of(rank, "job")),
          store.get_to_str(key_of(rank, "device")),
          store.get_to_str(key_of(rank, "build")),
          store.get_to_str(key_of(rank, "processors")),
          store.get_to_str(key_of(rank, kLastProperty))};
}

// Returns the problem that this process has no connection to the store.
Problem store_problem(const Launch& launch, milliseconds timeout, const std::string& found) {
  return {"MASTER_ADDR, MASTER_PORT",
          str("a connection to the key-value store of the job at ", launch.host, ":", launch.port, " within ",
              seconds_text(timeout)),
          found, "check the address, and that the process of rank 0 runs"};
}

// Opens the key-value store of the job, which rank 0 or the launcher serves.
StorePtr open_store(const Launch& launch, milliseconds timeout) {
  const bool serves = launch.rank == 0 && !launch.launcher_serves_store;
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(launch.port);
  options.isServer = serves;
  options.waitWorkers = false;
  options.timeout = timeout;
  StorePtr server;
  try {
    server = c10::make_intrusive<c10d::TCPStore>(launch.host, options);
  } catch (const std::exception& error) {
    if (serves)
      throw Error(Exit::failed,
                  Problem{"MASTER_PORT", "a port at which rank 0 can listen",
                          str("port ", launch.port, ": ", first_line_of(error)), "set MASTER_PORT to a free port"});
    // c10d's time limit and that of call_within() can end in either order, so both give the same message.
    const std::string message = first_line_of(error);
    throw Error(Exit::failed,
                store_problem(launch, timeout, message.find("timed out") == std::string::npos ? message : kNoAnswer));
  }
  // A store of torchrun also holds the keys of torchrun, of earlier attempts of the same job, and of earlier programs
  // that its workers ran. The prefix has no job id, so that processes of two jobs with the same port find each other
  // and report both ids.
  std::string prefix = "multihead/" + launch.attempt;
  if (launch.launcher_serves_store) prefix += str("/", server->add(str(prefix, "/programs/", launch.rank), 1));
  return c10::make_intrusive<c10d::PrefixStore>(prefix, server);
}

// The end of the time in which the processes must connect.
struct Deadline {
  explicit Deadline(milliseconds limit) : timeout(limit), time(Clock::now() + limit) {}
  milliseconds remaining() const {
    return std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(time - Clock::now()));
  }
  const milliseconds timeout;
  const Clock::time_point time;
};

// Returns the descriptions of all processes. Throws Error(failed), which names the missing ranks, after the deadline.
std::vector<ProcessDescription> wait_for_descriptions(c10d::Store& store, int size, const Deadline& deadline) {
  std::vector<ProcessDescription> descriptions;
  for (int rank = 0; rank < size; ++rank) {
    while (!store.check({key_of(rank, kLastProperty)})) {
      if (Clock::now() > deadline.time) {
        std::vector<std::string> missing_ranks;
        for (int i = rank; i < size; ++i)
          if (!store.check({key_of(i, kLastProperty)})) missing_ranks.push_back(std::to_string(i));
        throw Error(Exit::failed,
                    Problem{"start of the job",
                            str("connections of all ", size, " processes within ", seconds_text(deadline.timeout)),
                            str("no connection of rank ", join_alternatives(missing_ranks)),
                            "check that all processes run, with the same MASTER_ADDR and MASTER_PORT"});
      }
      std::this_thread::sleep_for(kPollInterval);
    }
    descriptions.push_back(read_description(store, rank));
  }
  return descriptions;
}

// Returns the problem that process `rank` and rank 0 differ in the property `name`. `value`: value in rank 0.
Problem disagreement(const std::string& name, const std::string& value, int rank, const std::string& other_value) {
  return {name, str(value, ", as in rank 0"), str(other_value, " in rank ", rank),
          "start all processes of the job with the same program and the same environment variables of the launcher"};
}

// Throws Error(usage) unless the description `other` of a process agrees with `first`, the description of rank 0.
void check_agreement(const ProcessDescription& first, const ProcessDescription& other) {
  if (other.job != first.job)
    throw Error(Exit::usage, disagreement("job", quote_start(first.job), other.rank, quote_start(other.job)));
  if (other.size != first.size)
    throw Error(Exit::usage, disagreement("number of processes", std::to_string(first.size), other.rank,
                                          std::to_string(other.size)));
  // Must precede the comparison of the builds, which include the libraries that only a process on a GPU has loaded.
  if (other.device != first.device)
    refuse_usage("--device", str(first.device, ", as in rank 0"), str(other.device, " in rank ", other.rank),
                 "pass --device cpu or --device cuda to all processes");
  if (other.build != first.build)
    throw Error(Exit::usage, disagreement("build of the program", first.build, other.rank, other.build));
}

// Claims the rank of this process in the store. Throws Error(usage) if a process of another job has claimed the rank,
// and Error(failed) if a process of the same job has.
void claim_rank(c10d::Store& store, const ProcessDescription& own_description) {
  // A claim is a number that no other process has, a blank, and the job.
  const std::string number = std::to_string(store.add("claims", 1));
  const std::string claim =
      store.compareSet(str("claims/", own_description.rank), "", str(number, " ", own_description.job));
  const size_t blank = claim.find(' ');
  if (claim.substr(0, blank) == number) return;
  const std::string first_job = claim.substr(blank + 1);
  const std::string advice = "give each process its own rank, and each job its own MASTER_PORT";
  if (first_job != own_description.job)
    refuse_usage("job", str(quote_start(first_job), ", as in an earlier process of rank ", own_description.rank),
                 quote_start(own_description.job), advice);
  throw Error(Exit::failed, Problem{"start of the job", str("one process of rank ", own_description.rank),
                                    "several processes", advice});
}

// Writes the description of this process to the store, compares the descriptions of all processes and returns them.
std::vector<ProcessDescription> exchange_descriptions(c10d::Store& store, const ProcessDescription& own_description,
                                                      const Deadline& deadline) {
  claim_rank(store, own_description);
  write_description(store, own_description);
  if (own_description.rank != 0) {
    store.wait({key_of(0, kLastProperty)}, deadline.remaining());
    check_agreement(read_description(store, 0), own_description);
  }
  const std::vector<ProcessDescription> descriptions = wait_for_descriptions(store, own_description.size, deadline);
  for (const ProcessDescription& other : descriptions) check_agreement(descriptions[0], other);
  return descriptions;
}

// Counts the error of this process in the store. Rank 0, which serves the store unless the launcher does, waits at most
// for kRefusalWait until every other process has read the descriptions and counted its error.
void count_refusal(c10d::Store& store, const ProcessDescription& own_description, milliseconds timeout) {
  if (own_description.rank != 0) {
    store.add("refused", 1);
    return;
  }
  const Deadline deadline(std::min(kRefusalWait, timeout));
  while (Clock::now() < deadline.time && store.add("refused", 0) + 1 < own_description.size)
    std::this_thread::sleep_for(kPollInterval);
}

// Returns the problem that a process does not answer.
Problem answer_problem(const Launch& launch, milliseconds timeout) {
  return {"start of the job", str("connections of all ", launch.size, " processes within ", seconds_text(timeout)),
          str("no answer of the key-value store, which ", launch.launcher_serves_store ? launch.launcher : "rank 0",
              " serves"),
          "check that all processes run, and that none is stopped or disconnected"};
}

// Returns the result of an exchange with the other processes. Throws Error(failed) with the problem `no_answer` if the
// exchange has not ended after `limit`, since operations of the store wait without end for a process that is stopped.
template <class Result>
Result answer_within(milliseconds limit, const Problem& no_answer, std::function<Result()> exchange) {
  std::optional<Result> result = call_within<Result>(limit, std::move(exchange));
  if (!result.has_value()) throw Error(Exit::failed, no_answer);
  return std::move(*result);
}

// Calls exchange_descriptions(), which throws in every process if it throws in one.
std::vector<ProcessDescription> agree_on_descriptions(c10d::Store& store, const ProcessDescription& own_description,
                                                      const Deadline& deadline) {
  try {
    return exchange_descriptions(store, own_description, deadline);
  } catch (const std::exception&) {
    try {
      count_refusal(store, own_description, deadline.timeout);
    } catch (const std::exception&) {
      // The store has ended, too; the first error is the reason.
    }
    throw;
  }
}

}  // namespace

Membership join(const Launch& launch, const std::string& build, milliseconds timeout, const DeviceUse& device_use) {
  if (launch.size == 1) return {};
  // Silences c10d, which logs every failed attempt to connect; join() throws an error instead.
  FLAGS_caffe2_log_level = 3;
  const Deadline deadline(timeout);
  const auto store = answer_within<StorePtr>(timeout + kAnswerMargin, store_problem(launch, timeout, kNoAnswer),
                                             [launch, timeout] { return open_store(launch, timeout); });
  const bool is_on_gpu = device_use.device.is_cuda();
  const ProcessDescription own_description{launch.rank, launch.size,      launch.job,  is_on_gpu ? "a GPU" : "a CPU",
                                           build,       processor_list(), machine_id()};
  std::vector<ProcessDescription> descriptions;
  try {
    descriptions = answer_within<std::vector<ProcessDescription>>(
        deadline.remaining() + kRefusalWait + kAnswerMargin, answer_problem(launch, timeout),
        [store, own_description, deadline] { return agree_on_descriptions(*store, own_description, deadline); });
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(Exit::failed,
                Problem{"start of the job", "a connection to the key-value store of the job, which rank 0 serves",
                        first_line_of(error), "see the message of rank 0"});
  }
  Membership membership;
  const auto count = [&](const auto& predicate) {
    return static_cast<int>(std::count_if(descriptions.begin(), descriptions.end(), predicate));
  };
  membership.local_size = count([&](const ProcessDescription& d) { return d.machine == own_description.machine; });
  membership.num_processes_sharing_processors = count([&](const ProcessDescription& d) {
    return d.machine == own_description.machine && d.processors == own_description.processors;
  });
  auto connections = std::make_shared<Connections>();
  connections->rank = launch.rank;
  connections->size = launch.size;
  connections->timeout = timeout;
  connections->store = store;
  const std::string host = membership.local_size == launch.size ? "127.0.0.1" : "";
  const HeartbeatTimes times = HeartbeatTimes::for_timeout(timeout);
  using Links = std::pair<c10::intrusive_ptr<c10d::Backend>, std::shared_ptr<Heartbeat>>;
  try {
    std::tie(connections->backend, connections->heartbeat) = answer_within<Links>(
        timeout + kAnswerMargin, answer_problem(launch, timeout), [store, launch, host, timeout, times]() -> Links {
          const auto gloo_store = c10::make_intrusive<c10d::PrefixStore>("gloo", store);
          return {make_gloo_backend(gloo_store, launch.rank, launch.size, host, timeout),
                  std::make_shared<Heartbeat>(store, launch.rank, launch.size, times)};
        });
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(
        Exit::failed,
        Problem{"start of the job", "connections to all processes of the job", first_line_of(error),
                "see the messages of the other processes; if the machine has several network interfaces, name one in "
                "GLOO_SOCKET_IFNAME"});
  }
  // An operation that fails ends within `timeout` together with the search for the silent ranks.
  connections->backend->setTimeout(timeout - times.diagnosis);
  const bool uses_nccl = is_on_gpu && device_use.exchanges_tensors;
  if (uses_nccl)
    connections->gpu_backend = make_nccl_backend(c10::make_intrusive<c10d::PrefixStore>("nccl", store), launch.rank,
                                                 launch.size, timeout - times.diagnosis);
  membership.group = Group(std::move(connections));
  membership.group.barrier();  // otherwise a process could end before the other processes have connected to it
  // Connects the GPUs while all processes are known to run, since NCCL waits for them without a time limit, and reports
  // a failure to connect before the processes load their data.
  if (uses_nccl) membership.group.sum(at::zeros({1}, device_use.device));
  return membership;
}

}  // namespace mh::distributed
