#include "train/run_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json_types.h"
#include "base/system_message.h"
#include "base/text.h"
#include "io/checkpoint.h"
#include "io/run_log.h"
#include "train/train_state.h"

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

}  // namespace

RunFolder::RunFolder(const std::string& path, bool resume, bool is_owner) : path_(path), is_owner_(is_owner) {
  if (!is_owner) return;
  std::error_code error;
  if (resume && !fs::exists(file("config.toml"), error)) {
    const bool has_lost_config = fs::exists(path, error) && has_progress() && !has_only_start_state();
    refuse_input(path, "the folder of a run",
                 fs::exists(path, error) ? "a folder without config.toml" : "no such folder",
                 has_lost_config ? "restore config.toml, or start a new run with another --out"
                                 : "start a run with --config and --train");
  }
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path))
    throw Error(Exit::failed, Problem{path, "a folder for the run", error ? system_message(error.value()) : "a file",
                                      "choose another --out"});
  refuse_links(path);
  lock_.emplace(path, resume ? "wait for the other process" : "choose another --out");
  remove_partial_files(path);
  remove_partial_files(file("checkpoints"));
  if (resume || !has_progress()) return;
  if (!has_only_start_state())
    refuse_usage(path, "a new folder",
                 has("config.toml") ? "a folder with a run" : "a folder with the weights of a run, without config.toml",
                 has("config.toml") ? "continue with --resume --out " + path + ", or choose another --out"
                                    : "restore config.toml and continue with --resume, or choose another --out");
  fs::remove(file("last.safetensors"));  // otherwise a resume of a run without a warm start would read this state
}

RunFolder::~RunFolder() {
  if (log_fd_ >= 0) ::close(log_fd_);
}

bool RunFolder::has(const std::string& name) const { return fs::exists(file(name)); }

bool RunFolder::has_progress() const {
  return std::any_of(std::begin(kRunFiles), std::end(kRunFiles),
                     [&](const RunFile& f) { return f.is_progress && has(f.name); });
}

bool RunFolder::has_only_start_state() const {
  const std::string state = file("last.safetensors");
  if (has("config.toml") || fs::is_symlink(state) || !MappedFile::is_mappable(state) ||
      std::any_of(std::begin(kRunFiles), std::end(kRunFiles), [&](const RunFile& f) {
        return f.is_progress && f.name != std::string("last.safetensors") && has(f.name);
      }))
    return false;
  try {
    return parse_train_state(io::Checkpoint(state).metadata_entry(io::kTrainingKey), state).update == 0;
  } catch (const Error&) {
    return false;  // a file that is not a training state, or is damaged; a new run must not replace it
  }
}

void RunFolder::log(const nlohmann::ordered_json& line) {
  if (!is_owner_) return;
  const std::string text = line.dump() + "\n";
  if (log_fd_ < 0) log_fd_ = open_descriptor(file("log.jsonl"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (const int code = log_fd_ < 0 ? errno : write_fully(log_fd_, text); code != 0)
    throw Error(Exit::failed, Problem{file("log.jsonl"), "a successful write", system_message(code),
                                      "free some space, then continue with --resume --out " + path_});
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
