#include "train/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/system_message.h"
#include "base/text.h"

namespace mh::train {

namespace {

std::string host_name() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return host;
}

// Returns whether `owner`, the text of a lock file, names a process of this host that has ended.
bool has_ended(const std::string& owner) {
  long long process = 0;
  int begin_host = 0;
  if (std::sscanf(owner.c_str(), "process %lld on %n", &process, &begin_host) != 1 || begin_host == 0 || process <= 0)
    return false;
  return owner.substr(static_cast<size_t>(begin_host)) == host_name() && kill(static_cast<pid_t>(process), 0) != 0 &&
         errno == ESRCH;
}

// Returns the text of a lock file that another process has locked. The process writes the text after it has locked the
// file, so that the file may still be empty or name the owner of the previous run; the function then reads the file
// again for up to a second. Returns "" if the owner stays unknown.
std::string read_owner(const std::string& lock_file) {
  constexpr int kAttempts = 50;
  for (int i = 0; i < kAttempts; ++i) {
    const std::string owner = trim(read_text_file(lock_file));
    if (!owner.empty() && !has_ended(owner)) return owner;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return "";
}

}  // namespace

void refuse_link(const std::filesystem::path& path) {
  if (std::filesystem::is_symlink(path))
    refuse_input(path.string(), "a file or folder of the run", "a symbolic link",
                 "remove the link, since a run writes only inside its folder");
}

FolderLock::FolderLock(const std::string& folder, const std::string& advice) {
  const std::string lock_file = folder + "/lock";
  refuse_link(lock_file);
  descriptor_ = open_descriptor(lock_file, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0)
    throw Error(Exit::failed, Problem{lock_file, "a writable file", system_message(errno), "choose another --out"});
  try {
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      const int error_number = errno;
      const std::string owner = error_number == EWOULDBLOCK ? read_owner(lock_file) : "";
      throw Error(Exit::failed,
                  Problem{folder, "a folder that no other process uses",
                          error_number != EWOULDBLOCK ? str("a lock that fails: ", system_message(error_number))
                          : owner.empty()             ? "a running mh-train or mh-finetune"
                                                      : "a running mh-train or mh-finetune: " + owner,
                          advice});
    }
    if (ftruncate(descriptor_, 0) != 0 ||
        write_fully(descriptor_, str("process ", getpid(), " on ", host_name(), "\n")) != 0)
      throw Error(Exit::failed, Problem{lock_file, "a successful write", system_message(errno),
                                        "free some space, or choose another --out"});
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

FolderLock::~FolderLock() {
  // Clears the text that names this process as the owner before the lock ends, so that another process does not read
  // the text afterwards. A failure is harmless, since read_owner() ignores a process that has ended.
  [[maybe_unused]] const int result = ftruncate(descriptor_, 0);
  ::close(descriptor_);
}

}  // namespace mh::train
