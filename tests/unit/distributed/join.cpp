// Processes that start a job, here threads of the test program.
#include "distributed/join.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/text.h"

using namespace mh;
using Catch::Contains;

namespace {

// A socket on a free TCP port of 127.0.0.1, which is open during the lifetime of the object.
class Listener {
 public:
  Listener() {
    address_.sin_family = AF_INET, address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    REQUIRE(bind(descriptor_, reinterpret_cast<sockaddr*>(&address_), size) == 0);
    REQUIRE(listen(descriptor_, 8) == 0);
    REQUIRE(getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address_), &size) == 0);
  }
  ~Listener() { close(descriptor_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  int port() const { return ntohs(address_.sin_port); }

 private:
  const int descriptor_ = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address_{};
};

// Returns a TCP port that no program uses.
int free_port() { return Listener().port(); }

// A process of a job of two processes.
struct Process {
  int rank = 0;
  std::string job{}, build{};
  at::Device device = at::kCPU;
};

// Processes that call join() with one address, each in its own thread.
class Processes {
 public:
  // Starts the processes and waits until join() has returned in each of them. Returns the error of each process, after
  // its exit status; "" without an error. The processes without an error stay in their jobs until the destruction of
  // this object.
  std::vector<std::string> join(const std::vector<Process>& processes) {
    std::vector<std::string> errors(processes.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < processes.size(); ++i) {
      distributed::Membership& membership = memberships_.emplace_back();
      threads.emplace_back([this, &membership, &error = errors[i], process = processes[i]] {
        Launch launch;
        launch.rank = process.rank, launch.size = 2, launch.job = process.job;
        launch.host = "127.0.0.1", launch.port = port_;
        try {
          membership = distributed::join(launch, process.build, std::chrono::seconds(60), {process.device, false});
        } catch (const Error& e) {
          error = str(static_cast<int>(e.exit()), " ", e.what());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

 private:
  const int port_ = free_port();
  std::deque<distributed::Membership> memberships_;
};

// Starts two processes, which are expected to be refused, and checks that the error of each contains `expected`.
void check_refusal(const Process& first, const Process& second, const std::string& expected) {
  for (const std::string& error : Processes().join({first, second})) CHECK_THAT(error, Contains(expected));
}

}  // namespace

TEST_CASE("join: processes on devices of one type connect, without NCCL if they exchange no tensors on GPUs") {
  for (const at::Device device : {at::Device(at::kCPU), at::Device(at::kCUDA, 0)})
    CHECK(Processes().join({{0, "", "", device}, {1, "", "", device}}) == std::vector<std::string>{"", ""});
}

TEST_CASE("join: processes on a CPU and on a GPU refuse to start a job") {
  check_refusal({0, "", "", at::Device(at::kCUDA, 0)}, {1, "", "", at::kCPU},
                "2 --device: expected a GPU, as in rank 0; found a CPU in rank 1");
}

TEST_CASE("join: processes of two builds refuse to start a job and report both build ids") {
  check_refusal({0, "", "a1b2"}, {1, "", "c3d4"},
                "2 build of the program: expected a1b2, as in rank 0; found c3d4 in rank 1");
}

TEST_CASE("join: processes of two jobs with different ranks refuse to start a job and report both job ids") {
  check_refusal({0, "first job"}, {1, "second job"},
                "2 job: expected 'first job', as in rank 0; found 'second job' in rank 1");
}

TEST_CASE("join: a process whose rank a process of another job has is refused, and reports both job ids") {
  Processes processes;
  CHECK(processes.join({{0, "first job"}, {1, "first job"}}) == std::vector<std::string>{"", ""});
  CHECK_THAT(processes.join({{1, "second job"}})[0],
             Contains("2 job: expected 'first job', as in an earlier process of rank 1; found 'second job'"));
  CHECK_THAT(processes.join({{1, "first job"}})[0],
             Contains("1 start of the job: expected one process of rank 1; found several processes"));
}

TEST_CASE("join: a process that receives no answer from the store ends with an error after the timeout") {
  // A listening socket of which no thread accepts connections acts like a process of rank 0 that is stopped.
  const Listener listener;
  Launch launch;
  launch.rank = 1, launch.size = 2, launch.host = "127.0.0.1", launch.port = listener.port();
  const auto start = std::chrono::steady_clock::now();
  CHECK_THROWS_WITH(
      distributed::join(launch, "", std::chrono::milliseconds(500), {}),
      Contains("a connection to the key-value store of the job at 127.0.0.1") && Contains("found no answer"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}
