// The folder of a training run:
//
//   config.toml            resolved configuration
//   log.jsonl              log, one JSON object per line
//   last.safetensors       weights and training state from which --resume continues
//   best.safetensors       weights of the best validation (train.validation.metric)
//   diverged.safetensors   weights and training state before a step whose loss or gradient was not finite
//   checkpoints/           weights at several updates, retained by train.checkpoint.retain and retain_by
//   lock                   lock file of the process that trains in this folder
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "train/folder_lock.h"

namespace mh::train {

class RunFolder {
 public:
  // Creates or opens the folder and locks it. `is_owner`: whether this process writes the files of the run; if not, the
  // folder must exist, and no function changes the folder or throws for its content. For a new run, throws Error(usage)
  // if has_progress(), but removes the state of a folder with has_only_start_state(). For a resume, throws Error(input)
  // without config.toml. Throws the error of refuse_link() for the files of the run, Error(failed) if the folder cannot
  // be created, and the errors of FolderLock.
  RunFolder(const std::string& path, bool resume, bool is_owner = true);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  bool has(const std::string& name) const;
  // Returns whether a run has saved weights or a training state in this folder.
  bool has_progress() const;
  // Returns whether the folder has no config.toml, and as its only progress a training state of no update. A run with a
  // warm start leaves such a folder if it is killed after it has saved this state, and before it writes config.toml.
  bool has_only_start_state() const;
  // Appends a line to log.jsonl. Throws Error(failed) if the file cannot be opened or written.
  void log(const nlohmann::ordered_json& line);
  // Removes from log.jsonl the lines that a run resumed after `update` updates will write again: lines of later
  // updates, a truncated last line, and, unless `is_complete` (TrainState::is_complete), the lines of update `update`
  // about loss, validation and a return to the best weights.
  void rewind_log(int64_t update, bool is_complete);
  // Returns the path of the weights after `update` updates in checkpoints/, and creates checkpoints/.
  std::string checkpoint_path(int64_t update);
  // Removes all files of weights from checkpoints/ except the newest `num_retained`.
  void retain_newest_checkpoints(int64_t num_retained);
  // Removes the files of weights in checkpoints/ whose updates are not keys of `scores`.
  void remove_checkpoints_except(const std::map<int64_t, double>& scores);

 private:
  std::string path_;
  bool is_owner_;
  std::optional<FolderLock> lock_;  // empty unless this process is the owner
  int log_fd_ = -1;                 // file descriptor of log.jsonl; -1: not open
};

}  // namespace mh::train
