#include "common/processes.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/processors.h"
#include "base/text.h"
#include "distributed/build_id.h"
#include "io/content_checksum.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "nn/visible_gpus.h"

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

at::Device device_of_process(const std::string& device_option) {
  static const at::Device device = nn::choose_device(device_option);
  return device;
}

at::Device device_in_job(const std::string& device_option) {
  if (device_option != "cpu") nn::limit_to_own_gpu(start_process());
  return device_of_process(device_option);
}

const distributed::Group& join_processes(std::chrono::seconds timeout, int num_threads,
                                         const distributed::DeviceUse& device_use) {
  static const distributed::Membership membership = [&] {
    const Launch& launch = start_process();
    distributed::Membership m = distributed::join(launch, distributed::build_id(), timeout, device_use);
    if (!m.group.is_single() && num_threads == 0 && std::getenv("OMP_NUM_THREADS") == nullptr)
      nn::prepare_cpu(std::max(1, num_usable_processors() / m.num_processes_sharing_processors));
    if (!m.group.is_single())
      log_info(str("job of ", m.group.size(), " processes, ", m.local_size, " on this machine"));
    return m;
  }();
  return membership.group;
}

namespace {

// Returns the arguments of this process, without the path of the program.
std::vector<std::string> arguments_of_process() {
  std::vector<std::string> arguments;
  const std::string text = read_text_file("/proc/self/cmdline");  // each argument ends with a zero byte
  for (size_t begin = text.find('\0') + 1; begin < text.size(); begin = text.find('\0', begin) + 1)
    arguments.push_back(text.substr(begin, text.find('\0', begin) - begin));
  return arguments;
}

// Returns the size and the checksum of a file; "no file" if it cannot be read, which the reader of the file reports.
std::string describe_content(const std::string& file) {
  try {
    return str(std::filesystem::file_size(file), " bytes with the checksum ", io::content_checksum(file));
  } catch (const std::filesystem::filesystem_error&) {
    return "no file";
  } catch (const Error&) {
    return "no file";
  }
}

// Throws Error(usage) unless all processes have the same arguments, and files of the same contents.
void require_same_inputs(const distributed::Group& group, const std::vector<std::string>& files) {
  const std::string job = str("a job of ", group.size(), " processes");
  const std::vector<std::string> arguments = group.gather(join(arguments_of_process(), " "));
  for (size_t rank = 1; rank < arguments.size(); ++rank)
    if (arguments[rank] != arguments[0])
      refuse_usage(job, str("the arguments of rank 0: ", arguments[0]), str(arguments[rank], " in rank ", rank),
                   "pass the same arguments to all processes; for independent runs set RANK=0 and WORLD_SIZE=1");
  for (const std::string& file : files) {
    const std::vector<std::string> contents = group.gather(describe_content(file));
    for (size_t rank = 1; rank < contents.size(); ++rank)
      if (contents[rank] != contents[0])
        refuse_usage(str(job, ": ", file), str("the content in rank 0: ", contents[0]),
                     str(contents[rank], " in rank ", rank), "copy the same file to all machines of the job");
  }
}

}  // namespace

const distributed::Group& join_evaluation(const std::vector<std::string>& files, const ModelArguments& args) {
  constexpr std::chrono::minutes timeout{10};  // longest wait for the results of another process
  const Launch& launch = start_process();
  if (launch.size > 1 && std::count(files.begin(), files.end(), "-") > 0)
    refuse_usage(str("a job of ", launch.size, " processes"), "files, which each process reads", input_name("-"),
                 "write the input to a file first");
  distributed::DeviceUse device_use;
  // The device must be chosen before the first tensor is created, see choose_device().
  if (launch.size > 1) device_use.device = device_in_job(args.device);
  const distributed::Group& group = join_processes(timeout, args.threads, device_use);
  if (!group.is_single()) {
    require_same_inputs(group, files);
    continue_after_closed_pipe();
  }
  return group;
}

}  // namespace mh
