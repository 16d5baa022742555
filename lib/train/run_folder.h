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
  // A new run makes the folder; Error(usage) where it holds a run that has begun. A resumed one needs config.toml
  // there; Error(input) without. Error(failed) while another training holds the lock.
  RunFolder(const std::string& path, bool resume);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  bool has(const std::string& name) const;
  // Whether some training has taken place here.
  bool has_progress() const { return has("best.safetensors") || has("last.safetensors") || has("checkpoints"); }
  // Appends a line to log.jsonl and flushes it. Error(failed) where the disk is full.
  void log(const nlohmann::ordered_json& line);
  // Drops what a run resumed at this update will write again: lines of later updates, and where the work that follows
  // this one is still to do (not `settled`) the lines of that work; and a last line cut short.
  void rewind_log(int64_t update, bool settled);
  // Path for the model saved at `update`, in checkpoints/.
  std::string checkpoint(int64_t update);
  // Removes all but the newest `keep` from there, or all but those of these updates.
  void prune_checkpoints(int64_t keep);
  void keep_checkpoints(const std::map<int64_t, double>& updates);

 private:
  std::string path_;
  int lock_ = -1;
  int log_ = -1;
};

}  // namespace mh::train
