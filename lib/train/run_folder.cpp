#include "train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json_types.h"
#include "base/text.h"

namespace mh::train {

namespace fs = std::filesystem;

namespace {

// Removes temporary files that a killed run left in a folder.
void remove_partial_files(const std::string& folder) {
  if (!fs::is_directory(folder)) return;
  std::vector<fs::path> partial_files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    for (const char* ending : {".safetensors.part", ".toml.part", ".jsonl.part"})
      if (name.find(ending) != std::string::npos) partial_files.push_back(entry.path());
  }
  for (const fs::path& file : partial_files) fs::remove(file);
}

}  // namespace

RunFolder::RunFolder(const std::string& path, bool resume) : path_(path) {
  std::error_code error;
  if (resume && !fs::exists(file("config.toml"), error))
    throw Error(Exit::input, Problem{path, "the folder of a run",
                                     fs::exists(path, error) ? "no config.toml in it" : "no such folder",
                                     "start a run with --config and --train"});
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path))
    throw Error(Exit::failed,
                Problem{path, "a folder for the run", error ? error.message() : "a file", "choose another --out"});
  lock_ = open(file("lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0)
    throw Error(Exit::failed, Problem{path, "a writable folder", std::strerror(errno), "choose another --out"});
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0)
    throw Error(Exit::failed, Problem{path, "a folder that no other process uses", "a running mh-train or mh-finetune",
                                      "wait for the other process, or choose another --out"});
  remove_partial_files(path);
  remove_partial_files(file("checkpoints"));
  if (!resume && has_progress())
    throw Error(Exit::usage, Problem{path, "a new folder", "a folder with a run",
                                     "continue with mh-train --resume --out " + path + ", or choose another --out"});
}

RunFolder::~RunFolder() {
  if (log_fd_ >= 0) ::close(log_fd_);
  if (lock_ >= 0) ::close(lock_);
}

bool RunFolder::has(const std::string& name) const { return fs::exists(file(name)); }

void RunFolder::log(const nlohmann::ordered_json& line) {
  const std::string text = line.dump() + "\n";
  errno = ENOSPC;  // reported for a short write, which does not set errno
  if (log_fd_ < 0) log_fd_ = open(file("log.jsonl").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log_fd_ < 0 || ::write(log_fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw Error(Exit::failed, Problem{file("log.jsonl"), "a successful write", std::strerror(errno),
                                      "free space, then mh-train --resume --out " + path_});
}

void RunFolder::rewind_log(int64_t update, bool is_complete) {
  if (!has("log.jsonl")) return;
  std::string remaining_lines;
  for (const std::string& line : split(read_text_file(file("log.jsonl")), '\n')) {
    auto log_entry = nlohmann::json::parse(line, nullptr, false);
    if (!log_entry.is_object()) continue;
    const auto update_field = log_entry.find("update");
    if (update_field == log_entry.end() || !update_field->is_number_integer())
      throw Error(Exit::input,
                  Problem{file("log.jsonl"), "an integer \"update\" in each line", line, "delete the line"});
    // Lines with these keys are written after the update. Lines without them (start of the program, procedures) are
    // written before the next update and stay.
    const bool is_after_update =
        log_entry.contains("loss") || log_entry.contains("valid_nll") || log_entry.contains("returned_to");
    if (*update_field < update || (*update_field == update && (is_complete || !is_after_update)))
      remaining_lines += line + "\n";
  }
  write_file_atomically(file("log.jsonl"), remaining_lines);
}

std::string RunFolder::checkpoint_path(int64_t update) {
  fs::create_directories(file("checkpoints"));
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
  if (!has("checkpoints")) return;
  const auto files = checkpoint_files(file("checkpoints"));
  for (size_t i = 0; i + static_cast<size_t>(num_retained) < files.size(); ++i) fs::remove(files[i]);
}

void RunFolder::remove_checkpoints_except(const std::map<int64_t, double>& updates) {
  if (!has("checkpoints")) return;
  std::set<fs::path> retained_files;
  for (const auto& entry : updates) retained_files.insert(checkpoint_path(entry.first));
  for (const fs::path& model : checkpoint_files(file("checkpoints")))
    if (retained_files.count(model) == 0) fs::remove(model);
}

}  // namespace mh::train
