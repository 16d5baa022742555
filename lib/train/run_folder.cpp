#include "train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/json_types.h"
#include "base/text.h"
#include "io/run_log.h"

namespace mh::train {

namespace fs = std::filesystem;

namespace {

// The files and folders of a run, which run_folder.h describes. `is_progress`: whether the file or folder holds weights
// or a training state that a new run must not overwrite.
struct RunFile {
  const char* name;
  bool is_progress;
};
constexpr RunFile kRunFiles[] = {{"config.toml", false},
                                 {"log.jsonl", false},
                                 {"last.safetensors", true},
                                 {"best.safetensors", true},
                                 {"diverged.safetensors", false},
                                 {"checkpoints", true},
                                 {"lock", false}};

// Returns whether `name` is the name of a temporary file of write_file_atomically() with the extension of a run file.
bool is_partial_file(const std::string& name) {
  return std::any_of(std::begin(kRunFiles), std::end(kRunFiles), [&](const RunFile& f) {
    const std::string extension = fs::path(f.name).extension().string();
    return !extension.empty() && name.find(extension + ".part") != std::string::npos;
  });
}

// Removes temporary files that a killed run left in a folder.
void remove_partial_files(const std::string& folder) {
  if (!fs::is_directory(folder)) return;
  std::vector<fs::path> partial_files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_partial_file(entry.path().filename().string())) partial_files.push_back(entry.path());
  for (const fs::path& file : partial_files) fs::remove(file);
}

// Throws the error of refuse_link() if a file or folder of the run is a symbolic link, or if checkpoints/ contains a
// symbolic link. Other links in the folder are harmless, since the run does not write to them.
void refuse_links(const fs::path& folder) {
  for (const RunFile& f : kRunFiles) refuse_link(folder / f.name);
  if (!fs::is_directory(folder / "checkpoints")) return;
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints")) refuse_link(entry.path());
}

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

void refuse_link(const fs::path& path) {
  if (fs::is_symlink(path))
    refuse_input(path.string(), "a file or folder of the run", "a symbolic link",
                 "remove the link, since a run writes only inside its folder");
}

RunFolder::RunFolder(const std::string& path, bool resume, bool is_owner) : path_(path), is_owner_(is_owner) {
  if (!is_owner) return;
  std::error_code error;
  if (resume && !fs::exists(file("config.toml"), error))
    refuse_input(path, "the folder of a run",
                 fs::exists(path, error) ? "a folder without config.toml" : "no such folder",
                 "start a run with --config and --train");
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path))
    throw Error(Exit::failed,
                Problem{path, "a folder for the run", error ? error.message() : "a file", "choose another --out"});
  refuse_links(path);
  lock_fd_ = open_descriptor(file("lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_fd_ < 0)
    throw Error(Exit::failed, Problem{file("lock"), "a writable file", std::strerror(errno), "choose another --out"});
  if (flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    const int code = errno;
    const std::string owner = code == EWOULDBLOCK ? read_owner(file("lock")) : "";
    throw Error(Exit::failed, Problem{path, "a folder that no other process uses",
                                      code != EWOULDBLOCK ? std::string("a lock that fails: ") + std::strerror(code)
                                      : owner.empty()     ? "a running mh-train or mh-finetune"
                                                          : "a running mh-train or mh-finetune: " + owner,
                                      resume ? "wait for the other process" : "choose another --out"});
  }
  if (ftruncate(lock_fd_, 0) != 0 || write_fully(lock_fd_, str("process ", getpid(), " on ", host_name(), "\n")) != 0)
    throw Error(Exit::failed, Problem{file("lock"), "a successful write", std::strerror(errno),
                                      "free some space, or choose another --out"});
  remove_partial_files(path);
  remove_partial_files(file("checkpoints"));
  if (!resume && has_progress())
    refuse_usage(path, "a new folder", "a folder with a run",
                 "continue with mh-train --resume --out " + path + ", or choose another --out");
}

RunFolder::~RunFolder() {
  if (log_fd_ >= 0) ::close(log_fd_);
  if (lock_fd_ < 0) return;
  // Clears the text that names this process as the owner before the lock ends, so that another process does not read
  // the text afterwards. A failure is harmless, since read_owner() ignores a process that has ended.
  [[maybe_unused]] const int result = ftruncate(lock_fd_, 0);
  ::close(lock_fd_);
}

bool RunFolder::has(const std::string& name) const { return fs::exists(file(name)); }

bool RunFolder::has_progress() const {
  return std::any_of(std::begin(kRunFiles), std::end(kRunFiles),
                     [&](const RunFile& f) { return f.is_progress && has(f.name); });
}

void RunFolder::log(const nlohmann::ordered_json& line) {
  if (!is_owner_) return;
  const std::string text = line.dump() + "\n";
  if (log_fd_ < 0) log_fd_ = open_descriptor(file("log.jsonl"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (const int code = log_fd_ < 0 ? errno : write_fully(log_fd_, text); code != 0)
    throw Error(Exit::failed, Problem{file("log.jsonl"), "a successful write", std::strerror(code),
                                      "free some space, then continue with mh-train --resume --out " + path_});
}

void RunFolder::rewind_log(int64_t update, bool is_complete) {
  if (!is_owner_ || !has("log.jsonl")) return;
  const std::string name = file("log.jsonl");
  write_file_atomically(name, io::rewind_log(read_text_file(name), update, is_complete, name));
}

std::string RunFolder::checkpoint_path(int64_t update) {
  if (is_owner_) fs::create_directories(file("checkpoints"));
  char name[64];
  std::snprintf(name, sizeof name, "checkpoints/update-%09lld.safetensors", static_cast<long long>(update));
  return file(name);
}

namespace {

std::vector<fs::path> checkpoint_files(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

void RunFolder::retain_newest_checkpoints(int64_t num_retained) {
  if (!is_owner_ || !has("checkpoints")) return;
  const auto files = checkpoint_files(file("checkpoints"));
  for (size_t i = 0; i + static_cast<size_t>(num_retained) < files.size(); ++i) fs::remove(files[i]);
}

void RunFolder::remove_checkpoints_except(const std::map<int64_t, double>& scores) {
  if (!is_owner_ || !has("checkpoints")) return;
  std::set<fs::path> retained_files;
  for (const auto& entry : scores) retained_files.insert(checkpoint_path(entry.first));
  for (const fs::path& path : checkpoint_files(file("checkpoints")))
    if (retained_files.count(path) == 0) fs::remove(path);
}

}  // namespace mh::train
