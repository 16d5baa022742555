// Processes that start a job, here threads of the test program.
#include "distributed/join.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/text.h"

using namespace mh;
using Catch::Contains;

namespace {

// Returns a TCP port that no program uses.
int free_port() {
  const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(bind(descriptor, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  close(descriptor);
  return ntohs(address.sin_port);
}

// Starts a job of two processes, rank r on devices[r], and returns the error of each process; "" without an error.
std::array<std::string, 2> join_errors(const std::array<at::Device, 2>& devices) {
  Launch launch;
  launch.size = 2, launch.host = "127.0.0.1", launch.port = free_port();
  std::array<std::string, 2> errors;
  std::array<distributed::Membership, 2> memberships;  // kept until both processes have connected
  std::array<std::thread, 2> threads;
  for (size_t rank = 0; rank < 2; ++rank)
    threads[rank] = std::thread([&, launch, rank]() mutable {
      launch.rank = static_cast<int>(rank);
      try {
        memberships[rank] = distributed::join(launch, "", std::chrono::seconds(60), {devices[rank], false});
      } catch (const Error& error) {
        errors[rank] = str(static_cast<int>(error.exit()), " ", error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace

TEST_CASE("join: processes on devices of one type connect, without NCCL if they exchange no tensors on GPUs") {
  for (const at::Device device : {at::Device(at::kCPU), at::Device(at::kCUDA, 0)})
    CHECK(join_errors({device, device}) == std::array<std::string, 2>{"", ""});
}

TEST_CASE("join: processes on a CPU and on a GPU refuse to start a job") {
  const std::string expected = "2 --device: expected a GPU, as in rank 0; found a CPU in rank 1";
  for (const std::string& error : join_errors({at::Device(at::kCUDA, 0), at::Device(at::kCPU)}))
    CHECK_THAT(error, Contains(expected));
}
