// Collective operations on tensors in main memory by Gloo, which LibTorch contains.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace mh::distributed {

// Connects process `rank` with the other processes of a job of `size` processes, which must call this function with the
// same store and timeout. `host`: name or address of this machine, by which the other processes connect to this
// process; "": the address of the interface GLOO_SOCKET_IFNAME if this environment variable is set, otherwise the
// address of the host name of this machine. Throws the exceptions of LibTorch if a connection fails.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    const std::string& host, std::chrono::milliseconds timeout);

}  // namespace mh::distributed
