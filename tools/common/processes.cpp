#include "common/processes.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/processors.h"
#include "distributed/build_id.h"
#include "distributed/join.h"
#include "nn/ops.h"

namespace mh {

const Launch& start_process() {
  static const Launch launch = [] {
    Launch l = read_launch();
    if (l.rank > 0) {
      set_log_rank(l.rank);
      discard_outputs();
    }
    return l;
  }();
  return launch;
}

const distributed::Group& join_processes(std::chrono::seconds timeout, int num_threads) {
  static const distributed::Membership membership = [&] {
    const Launch& launch = start_process();
    distributed::Membership m = distributed::join(launch, distributed::build_id(), timeout);
    if (!m.group.is_single() && num_threads == 0 && std::getenv("OMP_NUM_THREADS") == nullptr)
      nn::prepare_cpu(std::max(1, num_usable_processors() / m.num_sharing_processors));
    if (!m.group.is_single())
      log_info(str("job of ", m.group.size(), " processes, ", m.local_size, " on this machine"));
    return m;
  }();
  return membership.group;
}

const distributed::Group& join_readers(const std::vector<std::string>& files, int num_threads) {
  constexpr std::chrono::minutes timeout{10};  // longest wait for the results of another process
  if (const Launch& launch = start_process(); launch.size > 1 && std::count(files.begin(), files.end(), "-") > 0)
    refuse_usage(str("a job of ", launch.size, " processes"), "files, which each process reads", input_name("-"),
                 "write the input to a file first");
  return join_processes(timeout, num_threads);
}

}  // namespace mh
