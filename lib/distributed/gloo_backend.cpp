// The only source that includes headers of Gloo. Debian's headers are older than the Gloo in LibTorch, whose class
// gloo::rendezvous::Store has additional virtual functions. This source therefore only passes pointers between
// functions of LibTorch, and creates no object of a class of Gloo (tests/cli/cases/gloo_objects.sh).
#define USE_C10D_GLOO
#include "distributed/gloo_backend.h"

#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace mh::distributed {

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    const std::string& host, std::chrono::milliseconds timeout) {
  using Gloo = c10d::ProcessGroupGloo;
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  auto options = Gloo::Options::create(timeout);
  options->devices = {!host.empty()                                ? Gloo::createDeviceForHostname(host)
                      : interface != nullptr && *interface != '\0' ? Gloo::createDeviceForInterface(interface)
                                                                   : Gloo::createDefaultDevice()};
  return c10::make_intrusive<Gloo>(store, rank, size, std::move(options));
}

}  // namespace mh::distributed
