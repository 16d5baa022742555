// The folder of a run:
//
//   config.toml            the resolved configuration, written first
//   log.jsonl              one JSON object a line
//   last.safetensors       weights and training state: what --resume continues from
//   best.safetensors       weights with the lowest validation loss
//   diverged.safetensors   the state before a step whose loss or gradient was not finite
//   checkpoints/           weights of saved updates, the newest `keep`
//   lock                   held by the training that runs here
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace mh::train {

class RunFolder {
 public:
  // Creates the folder of a new run; throws Error(usage) if the folder holds a run that has begun. A resumed run needs
  // config.toml in it, or throws Error(input). Throws Error(failed) while another process holds the lock.
  RunFolder(const std::string& path, bool resume);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  bool has(const std::string& name) const;
  // Returns whether a run has saved anything here.
  bool has_progress() const { return has("best.safetensors") || has("last.safetensors") || has("checkpoints"); }
  // Appends a line to log.jsonl and flushes it. Throws Error(failed) if the disk is full.
  void log(const nlohmann::ordered_json& line);
  // Removes the lines that a run resumed at `update` writes again: lines of later updates, the lines after this update
  // if its remaining work is not `is_complete`, and a truncated last line.
  void rewind_log(int64_t update, bool is_complete);
  // Returns the path for the model saved at `update`, in checkpoints/.
  std::string checkpoint(int64_t update);
  // Remove all models from checkpoints/ but the newest `keep`, or but those of these updates.
  void prune_checkpoints(int64_t keep);
  void keep_checkpoints(const std::map<int64_t, double>& updates);

 private:
  std::string path_;
  int lock_ = -1;
  int log_ = -1;
};

}  // namespace mh::train
